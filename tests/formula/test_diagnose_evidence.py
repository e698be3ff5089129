"""Readers of evidence: counters, links, kernel logs, step times, pairs, logs of groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diagnose_cases import DATA, SAMPLES, STATIC, machine, needs_samples
from railwright.asbuilt import fabric_names, infer, to_fabric
from railwright.asbuilt.read import read
from railwright.catalog import load_catalog
from railwright.diagnose import diagnose, elements_of
from railwright.diagnose.constants import xids
from railwright.diagnose.elements import device_called
from railwright.diagnose.read.counters import counter_evidence, difference, read_counters
from railwright.diagnose.read.dmesg import dmesg_evidence, read_dmesg
from railwright.diagnose.read.grouplogs import GroupRate, group_evidence
from railwright.diagnose.read.links import link_evidence
from railwright.diagnose.read.pairs import gpu_called, pair_evidence, read_pairs
from railwright.diagnose.read.steps import read_steps, step_evidence
from railwright.export import render
from railwright.fabric import Kind, build
from railwright.spec.study import Cluster, ComputeNetwork

QUERY = """\
Errors for 0x1 "leaf-01"
   GUID 0x1 port ALL: [SymbolErrorCounter == 40] [PortXmitWait == 9000000]
   GUID 0x1 port 33: [SymbolErrorCounter == 40]
   GUID 0x1 port 34: [PortXmitWait == 9000000]

## Summary: 3 nodes checked, 1 bad nodes found
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_errors_name_the_cable_and_waiting_names_nobody(tmp_path):
    elements = machine()
    now = read_counters(written(tmp_path, "now", QUERY))
    result = diagnose(elements, counter_evidence(elements, now))
    assert [s.kind for s in result.suspects][:1] == ["cable"]
    assert result.suspects[0].element.startswith("leaf-01 port 33 - spine-")
    assert not any("port 34" in s.element for s in result.suspects)
    assert any("leaf-01 port 34" in n and "congestion" in n for n in result.notes)


def test_only_what_was_counted_since_is_evidence(tmp_path):
    elements = machine()
    snapshot = read_counters(written(tmp_path, "now", QUERY))
    assert difference(snapshot, snapshot)["leaf-01", 33] == {"SymbolErrorCounter": 0}
    assert diagnose(elements, counter_evidence(elements, snapshot, snapshot)).suspects == ()
    earlier = read_counters(written(tmp_path, "old", QUERY.replace("== 40", "== 90")))
    # a counter that is lower now was cleared between: it counts from zero
    assert difference(snapshot, earlier)["leaf-01", 33] == {"SymbolErrorCounter": 40}


@needs_samples
def test_the_injected_faults_of_the_simulated_subnet():
    """GROUND_TRUTH.md: two bad cables, one congested port, later one cable unlinked."""
    folder = SAMPLES / "ibsim_rail_8hosts_8rails"
    wiring = read(str(folder / "ibnetdiscover.txt"))
    inferred = infer(wiring)
    elements = elements_of(to_fabric(inferred, load_catalog()), fabric_names(inferred))
    clean, now = (read_counters(folder / f"ibqueryerrors_{n}.txt") for n in ("clean", "faults"))
    for before in (clean, None):
        result = diagnose(elements, counter_evidence(elements, now, before), STATIC)
        assert {s.element for s in result.faults} == {
            "leaf-r3 port 13 - spine2 port 7",
            "host05/mlx5_2 port 1 - leaf-r2 port 6",
        }
        assert not any("leaf-r6" in s.element for s in result.suspects)
        assert any("leaf-r6 port 9" in n and "congestion" in n for n in result.notes)
    assert diagnose(elements, counter_evidence(elements, clean), STATIC).suspects == ()
    for tool in ("iblinkinfo", "ibnetdiscover"):
        down = read(str(folder / f"{tool}_linkdown.txt"))
        result = diagnose(elements, link_evidence(elements, down, read(str(folder / f"{tool}.txt"))))
        assert [s.element for s in result.faults] == ["leaf-r5 port 10 - spine0 port 12"]
    same = diagnose(elements, link_evidence(elements, wiring, wiring))
    assert same.suspects == ()


def test_trays_of_a_dumped_rack_are_parts_of_one_server(tmp_path):
    """Two NVL72 by `ibnetdiscover`: a tray's host is its rack, its second adapter one of the rack's 72 NICs,
    and links between all 72 GPUs are those of the rack."""
    catalog = load_catalog()
    compute = ComputeNetwork(family="rack-rails", switch="q3400-ra", nics_per_tray=4)
    drawn = build(Cluster(servers=2, server="gb300-nvl72", compute=compute), catalog)
    file = written(tmp_path, "dump", render(drawn, "ibnetdiscover")["fabric.ibnetdiscover"])
    inferred = infer(read(str(file)))
    fabric = to_fabric(inferred, catalog, "gb300-nvl72")
    elements = elements_of(fabric, fabric_names(inferred, fabric))
    hosts = [f"server-{rack:02d}-tray-{tray:02d}" for rack in (1, 2) for tray in (1, 18)]
    assert [elements.server_of(host) for host in hosts] == [0, 0, 1, 1]
    nic = device_called(elements, "server-02-tray-03/mlx5_1")
    assert nic == fabric.devices(Kind.NIC)[72 + 2 * 4 + 1]
    assert elements.place_of_rank(143)[2] == elements.find("server-02", "node")


@pytest.mark.parametrize("hosts", ["drawn", "dumped"])
def test_a_tray_numbers_its_own_four_gpus(hosts):
    """'HOST/3' of a matrix is the fourth GPU of that tray, not of its rack; a log of two trays is about them.
    Pairs of trays of two racks in nccl-tests, of which those with tray 5 of rack 1 are slow: what is common
    to them is one of its four NICs, not of its rack's 72."""
    catalog = load_catalog()
    compute = ComputeNetwork(family="rack-rails", switch="q3400-ra", nics_per_tray=4)
    drawn = build(Cluster(servers=2, server="gb300-nvl72", compute=compute), catalog)
    names = {f"server-01-tray-{i + 1:02d}": f"r1n{i + 1}" for i in range(18)} if hosts == "dumped" else {}
    elements = elements_of(drawn, names)
    one = [names.get(f"server-01-tray-{i:02d}", f"server-01-tray-{i:02d}") for i in range(1, 19)]
    assert (gpu_called(elements, f"{one[4]}/3"), gpu_called(elements, "server-02-tray-18/0")) == (19, 140)
    assert elements.gpus_of("server-02") == range(72, 144)
    groups = [
        GroupRate(f"{a}-{b}.log", "all_reduce", 8, (one[a], f"server-02-tray-{(a + b) % 18 + 1:02d}"),
                  {2**30: 90e9 * (0.6 if a == 4 else 1.0)})
        for a in range(18) for b in range(2)
    ]  # fmt: skip
    result = diagnose(elements, group_evidence(elements, STATIC, groups), STATIC)
    assert len(result.faults) == 1
    slow = {name.split(" port ")[0] for name, kind, _ in result.faults[0].alternatives if kind != "gpu"}
    assert {name for name in slow if "/nic-" in name} == {f"server-01/nic-{i}" for i in range(16, 20)}


@needs_samples
def test_perfquery_by_lid():
    folder = SAMPLES / "ibsim_rail_8hosts_8rails"
    snapshot = read_counters(folder / "perfquery_leaf-r3_p13.txt")
    assert snapshot.values["lid 6", 13]["SymbolErrorCounter"] == 250
    assert snapshot.values["lid 6", 13]["LinkDownedCounter"] == 3


def test_xids_name_the_gpu_or_the_software(tmp_path):
    log = (
        "[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n"
        "[Sun Feb 23 16:24:19 2025] NVRM: Xid (PCI:0000:1b:00): 43, pid=1, name=python, Ch 8\n"
        "[Sun Feb 23 16:24:19 2025] NVRM: Xid (PCI:0000:1b:00): 63, pid=1, Row Remapper\n"
    )
    lines = read_dmesg(written(tmp_path, "node7.log", log))
    assert [(x.host, x.pci, x.number) for x in lines] == [
        ("node7", "0000:9b:00", 79), ("node7", "0000:1b:00", 43), ("node7", "0000:1b:00", 63),
    ]  # fmt: skip
    elements = elements_of(None)
    result = diagnose(elements, dmesg_evidence(elements, lines))
    assert result.suspects[0].element == "node7/gpu@0000:9b:00"
    assert result.suspects[0].probability > 0.9
    assert all(s.probability < 0.5 for s in result.suspects[1:])  # 43 is the application's as a rule
    assert any("Xid 63" in note for note in result.notes)


@needs_samples
def test_a_published_kernel_log():
    """Five time-outs of a GPU's system processor (gpud's sample of an XE9680)."""
    lines = read_dmesg(SAMPLES / "samples" / "gpud" / "dmesg-with-xid-119.log")
    assert {(x.pci, x.number) for x in lines} == {("0000:9b:00", 119)}
    assert len(lines) == 5


def test_the_xid_catalogue_is_whole():
    for xid in xids().values():
        assert xid.group in ("hardware", "link", "driver", "software", "information")
        assert xid.meaning
        assert xid.action


def test_the_planted_slow_worker_and_nobody_else():
    """ByteDance's AR trace: worker 0 takes 2.5 x its peers forward, 2.3 x backward; stages differ too."""
    elements = elements_of(None)
    result = diagnose(elements, step_evidence(elements, read_steps(DATA / "worker_times.csv")))
    assert [s.element for s in result.suspects] == ["rank-0"]
    assert result.suspects[0].probability > 0.99
    assert result.suspects[0].left == pytest.approx(0.40, abs=0.06)


def test_an_uneven_stage_is_no_fault_of_a_rank(tmp_path):
    rows = ["rank,stage,seconds"]
    rng = np.random.default_rng(0)
    rows += [f"{r},{r // 4},{(1.6 if r >= 12 else 1.0) * np.exp(rng.normal(0, 0.01))}" for r in range(16)]
    elements = elements_of(None)
    result = diagnose(elements, step_evidence(elements, read_steps(written(tmp_path, "s", "\n".join(rows)))))
    assert result.suspects == ()
    assert any("stage 3" in note and "no rank is at fault" in note for note in result.notes)


def test_a_matrix_of_bench_pairs_finds_the_slow_nic(tmp_path):
    elements = machine(8)
    ranks = range(64)
    head = ["from \\ to (GB/s)", *(f"{r} server-{r // 8 + 1:02d}/{r % 8}" for r in ranks)]
    rows = [",".join(head)]
    rng = np.random.default_rng(0)
    for a in ranks:
        usual = [0 if a == b else 300.0 if a // 8 == b // 8 else 48.0 for b in ranks]
        slow = [0.5 if 19 in (a, b) and a // 8 != b // 8 else 1.0 for b in ranks]
        cells = [f"{u * s * np.exp(rng.normal(0, 0.02)):.3f}" for u, s in zip(usual, slow, strict=True)]
        rows.append(",".join([head[a + 1], *cells]))
    tests = read_pairs(written(tmp_path, "m.csv", "\n".join(rows)))
    result = diagnose(elements, pair_evidence(elements, STATIC, tests, "m.csv"), STATIC)
    assert len(result.faults) == 1
    # NVLink to its neighbours is sound, so that the GPU is cleared: what is left is the NIC and its cable
    assert {kind for _, kind, _ in result.faults[0].alternatives} == {"nic", "cable"}
    assert "server-03/nic-3" in result.faults[0].element
    assert any("is not told from" in sentence for sentence in result.unidentifiable)


def test_logs_of_groups_of_hosts_find_the_slow_server():
    # eight pairs of servers and eight others, crossed: server-05 is in both slow ones
    elements = machine(16)
    pairs = [(i, i + 8) for i in range(8)] + [(i, 8 + (i + 1) % 8) for i in range(8)]
    groups = [
        GroupRate(f"{a}-{b}.log", "all_reduce", 16, (f"server-{a + 1:02d}", f"server-{b + 1:02d}"),
                  {2**30: 470e9 * (0.6 if 4 in (a, b) else 1.0)})
        for a, b in pairs
    ]  # fmt: skip
    result = diagnose(elements, group_evidence(elements, STATIC, groups), STATIC)
    assert len(result.faults) == 1
    assert {name.split("/")[0] for name, _, _ in result.faults[0].alternatives if "leaf" not in name} == {
        "server-05"
    }
