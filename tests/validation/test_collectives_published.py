"""Published plateaus and curves beside predictions; bands stated per source, misses in docs/collectives.md.

Figures: NVIDIA GTC slides (in stas00/ml-engineering, network/images), dgxc-benchmarking, aws-samples,
NVIDIA's SuperPOD NVLSTree chart, nccl-tests issues; all in measure/data/collectives.yaml by these ids.
"""

import importlib
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from collectives_machines import machine, world
from railwright.collectives import NcclSettings, predict, sweep
from railwright.collectives.family import families
from railwright.measure.machines import published_machine
from railwright.measure.published.collectives import collective_rows
from railwright.measure.table import Row
from railwright.shipped import read_data
from railwright.traffic.demand import Communicator

TOOLS = Path(__file__).parents[2] / "tools"


def busbw(servers: int, op: str, size: float = 2.0**34, **how: object) -> float:
    """GB/s of all GPUs."""
    on = machine(servers, **how)
    return predict(on, op, size, world(on)).busbw / 1e9


PLATEAUS = [
    # source, servers, how, op, published GB/s, band; 10 % unless a reason is given
    ("ar-peak-gtc: DGX A100", 1, {"server": "dgx-a100", "switch": "qm8700"}, "all_reduce", 232, 0.05),
    ("ar-peak-gtc: DGX H100 NVLS", 1, {}, "all_reduce", 480, 0.05),
    ("ar-peak-gtc: DGX H100 ring", 1, {"nccl": NcclSettings(algorithm="ring")}, "all_reduce", 370, 0.05),
    ("collectives-h200x8-16g-stas", 1, {"server": "dgx-h200"}, "all_gather", 361.4, 0.05),
    ("ar-peak-gtc: DGX B200 NVLS", 1, {"server": "dgx-b200"}, "all_reduce", 850, 0.08),
    ("ar-peak-gtc: DGX B200 ring", 1, {"server": "dgx-b200", "nccl": NcclSettings(algorithm="ring")},
     "all_reduce", 700, 0.05),
    ("ar-peak-gtc: A100 multi-node", 16, {"server": "dgx-a100", "switch": "qm8700"}, "all_reduce", 192, 0.12),
    # 9 % under: NCCL's model picks the ring at 16 GiB, and our ramp of long rings is too large there
    ("ar-peak-gtc: H100 multi-node", 16, {}, "all_reduce", 375, 0.10),
    ("ar-peak-gtc: H100 SHARP", 16, {"nccl": NcclSettings(sharp=True)}, "all_reduce", 480, 0.08),
    ("ar-h100-2n-nebius", 2, {}, "all_reduce", 467.5, 0.05),
    ("ar-b200-2n-lambda (2 GiB row)", 2, {"server": "dgx-b200"}, "all_reduce", 696, 0.10),
    ("a2a-peak-gtc: DGX A100", 1, {"server": "dgx-a100", "switch": "qm8700"}, "all_to_all", 210, 0.15),
    ("alltoall-h100x8-simumax", 1, {}, "all_to_all", 345.9, 0.10),
    ("a2a-peak-gtc: H100 multi-node", 30, {}, "all_to_all", 48, 0.05),
    ("a2a-peak-gtc: A100 multi-node", 30, {"server": "dgx-a100", "switch": "qm8700"}, "all_to_all", 24, 0.05),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "servers", "how", "op", "published", "band"), PLATEAUS, ids=[p[0] for p in PLATEAUS]
)
def test_plateaus(source: str, servers: int, how: dict, op: str, published: float, band: float) -> None:
    assert busbw(servers, op, **how) == pytest.approx(published, rel=band)


@pytest.mark.parametrize(
    ("nics", "algorithm", "published"),
    [
        # nccl-tests issues 175 and 119 (24 ranks; 152 says 89.65); NCCL issue 812 sees the tree ahead
        (4, "ring", (86, 96.45)),
        (8, "tree", None),
    ],
)
def test_two_servers_of_a100_with_800_gigabits_take_the_algorithm_their_nics_allow(
    nics: int, algorithm: str, published: tuple[float, float] | None
) -> None:
    on = published_machine("A100", 16, 100.0, nics=nics)
    found = predict(on, "all_reduce", 2.0**31, world(on))
    assert found.algorithm == algorithm
    if published:
        assert published[0] * 0.95 < found.busbw / 1e9 < published[1] * 1.02


def test_a_ring_of_bare_servers_pays_next_to_nothing_beyond_the_wire() -> None:
    """nccl-tests issue 119, 24 A100 on three servers, without any fitted constant: 2 % off in the median."""
    record = next(r for r in read_data("measure", "collectives.yaml")["records"] if r["id"].endswith("-119"))
    on, off, protocols = published_machine("A100", 24, 100.0, nics=4), [], {}
    for size, microseconds in record["points"]:
        found = predict(on, "all_reduce", float(size), world(on))
        terms = {t.name: t.seconds for t in found.terms}
        off.append((terms["steps"] + terms["bandwidth"]) / (microseconds * 1e-6) - 1)
        protocols[size] = found.protocol
    assert abs(median(off)) < 0.03
    assert max(map(abs, off)) < 0.12  # between NCCL's change of protocol and ours
    # its busbw jumps from 85 to 94 GB/s between 84.9 and 86.0 MB: LL128, then Simple
    assert {p for s, p in protocols.items() if s < 81e6} == {"ll128"}
    assert {p for s, p in protocols.items() if s > 85.5e6} == {"simple"}


@pytest.mark.parametrize(
    ("servers", "published"), [(4, 365.7), (8, 379.2), (32, 378.0), (64, 376.7), (256, 369.8), (1024, 367.2)]
)
def test_nvlstree_keeps_its_plateau_from_32_to_8192_gpus(servers: int, published: float) -> None:
    # NVIDIA's SuperPOD chart, ids ar-h100-nvlstree-*; within 10 %
    forced = NcclSettings(algorithm="nvlstree")
    size = 2.0**32 if servers == 4 else 2.0**34
    assert busbw(servers, "all_reduce", size, nccl=forced) == pytest.approx(published, rel=0.10)


def test_two_nodes_beat_four() -> None:
    # the two-node trap: 467-487 GB/s with two nodes, 366-386 from four on
    assert busbw(2, "all_reduce") > 1.2 * busbw(4, "all_reduce")


@pytest.mark.parametrize("servers", [2, 4, 8, 16])
def test_all_to_all_ceiling_falls_with_the_node_count(servers: int) -> None:
    # nccl-tests issue 130: N/(N-1) x what a NIC carries (48 of 50 GB/s) per GPU
    ceiling = servers / (servers - 1) * 48
    assert 0.9 * ceiling <= busbw(servers, "all_to_all") <= ceiling


def test_all_to_all_of_six_nodes_is_near_its_issue() -> None:
    # nccl-tests issue 267: 48 H100, 1 GiB, 48.5 GB/s on RoCE; not used in any fit
    assert busbw(6, "all_to_all", 2.0**30) == pytest.approx(48.5, rel=0.20)


def test_all_gather_of_256_gpus_is_bound_by_its_ring() -> None:
    # nccl issue 1218: 2 GB all_gather about 200 GB/s in one timed call, where all_reduce has 340
    gather, reduce = (busbw(32, op, 2.0**31) for op in ("all_gather", "all_reduce"))
    assert gather == pytest.approx(200, rel=0.40)
    assert gather < 0.85 * reduce
    assert reduce == pytest.approx(340, rel=0.10)


def test_a_forced_ring_of_two_nodes_ends_at_its_nvlink() -> None:
    # nccl issue 1411: 8 H800, whose NVLink carries less than four NICs of 400 Gb/s; 159.4 GB/s at 256 MiB
    rows = [row for row in collective_rows() if isinstance(row, Row) and row.record == "issue-nccl-1411"]
    assert len(rows) == 8
    assert all(abs(row.error) < 0.16 for row in rows[1:])  # the first is a warm-up: 122 us, 88 in place


def test_one_gpu_a_node_drives_one_nic() -> None:
    # nccl-tests issue 232: 41.3 GB/s at 32 MiB with 4 NICs in the node
    on = machine(2)
    pair = [Communicator(np.array([0, 8], np.int32))]
    answer = predict(on, "all_reduce", 2.0**25, pair)
    assert answer.busbw / 1e9 == pytest.approx(41.3, rel=0.20)
    assert predict(on, "all_reduce", 2.0**34, pair).busbw <= 48e9


def test_pxn_on_rails_helps_small_messages_and_changes_large_ones_little() -> None:
    # Crusoe saw about +50 % for small ones; nccl issue 1697 saw none or less for large ones
    sizes = [2.0**k for k in (10, 14, 18, 22, 26, 30)]
    with_pxn, without = (
        [p.time for p in sweep(on, "all_to_all", sizes, world(on))]
        for on in (machine(30), machine(30, nccl=NcclSettings(pxn=False)))
    )
    gain = [b / a for a, b in zip(with_pxn, without, strict=True)]
    assert all(1.2 < g < 2.5 for g in gain[:4])
    assert all(0.97 < g < 1.03 for g in gain[4:])


def test_every_family_meets_its_stated_error() -> None:
    # median of |predicted/measured - 1|, each curve left out in turn: 15 % on InfiniBand and inside a node.
    # Blackwell's NVLSTree rests on three two-node curves of three different systems: 25 %.
    # Rings of A100 rest on two sites whose launches differ by a factor of two: 20 %.
    # EFA and TCPXO rest on one or two curves each and carry their own, wide bands.
    rows = read_data("collectives", "families.yaml")["families"]
    for name, row in rows.items():
        assert all(low < 1.0 < high for low, high in row["bands"]), name
        if " efa " not in name and row["median_error_left_out"] is not None:
            limit = {"blackwell ib nvlstree": 0.25, "ampere one-node ring": 0.20}.get(name, 0.15)
            assert row["median_error_left_out"] <= limit, name
    assert rows["hopper ib nvlstree"]["median_error_left_out"] <= 0.08
    assert rows["hopper one-node nvls"]["median_error_left_out"] <= 0.05
    assert set(families()) == set(rows)


def test_families_are_what_the_curves_give(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(TOOLS)
    assert importlib.import_module("fit_collectives").main(check=True) == 0, capsys.readouterr().out


def test_no_record_is_dropped_silently() -> None:
    content = read_data("measure", "collectives.yaml")
    ids = [r["id"] for r in content["records"]]
    assert len(ids) == len(set(ids)) == 73
    assert len(content["left_out"]) == 52
    assert all(row["why"] for row in content["left_out"])
    assert all(r["source"] and r["quality"] in "ABC" for r in content["records"])
