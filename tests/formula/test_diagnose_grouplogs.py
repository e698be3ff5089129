"""nccl-tests logs of groups of hosts as evidence: of the GPUs that ran, at a size that all have."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from diagnose_cases import STATIC, machine
from railwright.catalog import load_catalog
from railwright.cli.main import app
from railwright.diagnose import diagnose
from railwright.diagnose.read.grouplogs import group_evidence, read_group
from railwright.errors import SpecError


def group_log(
    path, hosts: dict[str, list[int]], busbw: dict[int, float], gpu="NVIDIA H100 80GB HBM3", split=False
):
    """nccl-tests' log of GPUs of hosts; split: a communicator of each host by itself."""
    listed = [(host, device) for host, devices in hosts.items() for device in devices]
    groups = {host: i for i, host in enumerate(hosts)}
    lines = ["# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor)", "#", "# Using devices"]
    lines += [
        f"#  Rank {rank:2d} Group {groups[host] if split else 0:2d} Pid {rank + 1:6d} on {host} "
        f"device {device:2d} [0000:{device + 1:02x}:00] {gpu}"
        for rank, (host, device) in enumerate(listed)
    ]
    lines += ["# all_reduce_perf", "#  size  count  type  redop  root  time  algbw  busbw  #wrong"]
    n = len(listed) // (len(hosts) if split else 1)
    for size, rate in busbw.items():
        algbw = rate / (2 * (n - 1) / n)
        lines.append(f"{size} {size // 4} float sum -1 {size / algbw / 1e3:.2f} {algbw:.2f} {rate:.2f} 0")
    path.write_text("\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth : 1"]) + "\n")
    return path


def test_a_log_speaks_of_the_gpus_that_it_lists_alone(tmp_path):
    """One GPU of each host over its own NIC: the seven other NICs were cleared, or blamed, by logs that never
    touched them."""
    elements = machine(16)
    pairs = [(i, i + 8) for i in range(8)] + [(i, 8 + (i + 1) % 8) for i in range(8)]
    files = [
        group_log(tmp_path / f"{a}-{b}.log", {f"server-{a + 1:02d}": [3], f"server-{b + 1:02d}": [3]},
                  {2**30: 48.0 * (0.5 if 4 in (a, b) else 1.0)})
        for a, b in pairs
    ]  # fmt: skip
    groups = [read_group(file) for file in files]
    assert groups[0].members == ((("server-01", 3), ("server-09", 3)),)
    result = diagnose(elements, group_evidence(elements, STATIC, groups), STATIC)
    names = {name.split(" port")[0] for name, kind, _ in result.faults[0].alternatives if kind != "node"}
    assert names == {"server-05/gpu-3", "server-05/nic-3"}


def test_communicators_inside_hosts_say_nothing_of_nics(tmp_path):
    elements = machine(4)
    names = [f"server-{i + 1:02d}" for i in range(4)]
    files = [
        group_log(tmp_path / f"{i}.log", {name: list(range(8))}, {2**30: 240.0 if i == 2 else 480.0})
        for i, name in enumerate(names)
    ]  # fmt: skip
    files.append(
        group_log(tmp_path / "both.log", {n: list(range(8)) for n in names[:2]}, {2**30: 480.0}, split=True)
    )
    both = read_group(files[-1])
    assert [{host for host, _ in ring} for ring in both.members] == [{"server-01"}, {"server-02"}]
    result = diagnose(elements, group_evidence(elements, STATIC, [read_group(f) for f in files]), STATIC)
    assert {kind for _, kind, _ in result.faults[0].alternatives} <= {"gpu", "node"}
    assert "server-03" in result.faults[0].element


def test_like_logs_are_held_against_each_other_at_a_size_that_all_have(tmp_path):
    """A log that stopped at 1 MiB was a fault of its hosts: its last bandwidth is not a plateau."""
    elements = machine(4)
    curve = {2**20: 12.0, 2**25: 200.0, 2**30: 480.0}
    names = [f"server-{i + 1:02d}" for i in range(4)]
    eight = list(range(8))
    files = [
        group_log(
            tmp_path / f"{i}.log", {a: eight, b: eight}, dict(list(curve.items())[: 1 if i == 3 else 3])
        )
        for i, (a, b) in enumerate(zip(names, names[1:] + names[:1], strict=True))
    ]
    result = diagnose(elements, group_evidence(elements, STATIC, [read_group(f) for f in files]), STATIC)
    assert not result.faults
    alone = group_log(tmp_path / "odd.log", dict.fromkeys(names[:2], eight), {3 * 2**20: 30.0})
    told = group_evidence(elements, STATIC, [read_group(f) for f in (*files[:2], alone)]).notes
    assert any("have no size in common" in note for note in told)


def test_a_log_of_other_gpus_is_no_evidence(tmp_path):
    file = group_log(tmp_path / "a.log", {"server-01": [0, 1]}, {2**30: 200.0}, gpu="NVIDIA A100-SXM4-80GB")
    h100 = load_catalog().gpus["h100-sxm"]
    assert read_group(file).hosts == ("server-01",)
    with pytest.raises(
        SpecError, match="lists NVIDIA A100-SXM4-80GB, and the study's GPUs are h100-sxm: it says"
    ):
        read_group(file, gpu=h100)
    refused = CliRunner().invoke(app, ["diagnose", "rail-240", "--log", str(file)])
    assert refused.exit_code == 2
    assert "a.log:7: the log lists" in refused.output.replace("\n", " ")
