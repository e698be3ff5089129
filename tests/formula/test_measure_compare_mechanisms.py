"""A curve made by the model with one thing wrong is explained by that thing, and a sound one by nothing."""

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from railwright.collectives import bus_factor, sweep
from railwright.measure.compare.comparing import compare
from railwright.measure.compare.suspects import scaled
from railwright.measure.logs.curve import MeasuredCurve, Point
from railwright.measure.study_machine import study_machine
from railwright.network.routing.solution import Network
from railwright.spec import load_study_text, template
from railwright.traffic.demand import Communicator

SIZES = [float(8 << i) for i in range(0, 31, 2)]


@cache
def study():
    return load_study_text(template("rail-240"), "rail-240")


@cache
def sound_machine():
    return study_machine(study())


def measured(op="all_reduce", ranks=64, change=None, latency=1.0, bandwidth=1.0, line=1, shape=lambda s: 1.0):
    """What the machine would measure with a change, a scaled term, and 3 % of noise."""
    machine = change(sound_machine()) if change else sound_machine()
    rng = random.Random(7)
    points = []
    for q in sweep(machine, op, SIZES, (Communicator(np.arange(ranks, dtype=np.int32)),)):
        time = scaled(q, latency, bandwidth) * shape(q.size) * (1 + rng.uniform(-0.03, 0.03))
        algbw = q.size / time
        points.append(Point(q.size, time, algbw, algbw * bus_factor(op, ranks), len(points) + 2))
    return MeasuredCurve(op, ranks, ranks, ranks, "test", tuple(points), False, "made.log", line)


def nccl(**settings):
    return lambda machine: replace(machine, nccl=replace(machine.nccl, **settings))


def test_a_sound_machine_has_no_findings():
    found = compare([measured(), measured("all_to_all", line=9)], study())
    assert found.findings == ()
    assert all(p.inside for c in found.curves for p in c.points)


@pytest.mark.parametrize(
    ("key", "made"),
    [
        ("half", {"bandwidth": 2.0}),
        ("quarter", {"bandwidth": 4.0}),
        ("one-nic", {"bandwidth": 8.0}),
        ("gdr-off", {"latency": 2.0, "bandwidth": 2.0}),
        ("sockets", {"latency": 5.0, "bandwidth": 8.0}),
        ("nic-missing", {"bandwidth": 8 / 7}),
        ("algo-ring", {"change": nccl(algorithm="ring")}),
        ("proto-ll", {"change": nccl(protocol="ll")}),
        ("proto-simple", {"change": nccl(protocol="simple")}),
    ],
)
def test_each_mechanism_fits_its_own_curve_best(key, made):
    curve = compare([measured(**made)], study()).curves[0]
    assert curve.best.key == key
    assert curve.best.misfit < 0.03
    assert curve.findings
    assert curve.best.name in curve.findings[0].evidence
    assert curve.findings[0].next_test == curve.best.next_test


def test_pxn_off_is_told_from_a_slow_network():
    off = measured("all_to_all", 128, nccl(pxn=False))
    assert compare([off], study()).curves[0].best.key in ("pxn-off", "pxn-off+ecmp")
    narrow = measured("all_to_all", 128, bandwidth=2.0)
    assert compare([narrow], study()).curves[0].best.key == "half"


def test_a_slow_all_to_all_beside_a_sound_all_reduce_blames_spines_or_pxn():
    found = compare([measured(), measured("all_to_all", bandwidth=4.0, line=9)], study())
    assert "spines or PXN" in [f.kind for f in found.findings]
    text = next(f.evidence for f in found.findings if f.kind == "spines or PXN")
    assert "NICs, cables and rails are sound" in text
    # Both slow: the network itself, so nothing of the kind is said.
    both = compare([measured(bandwidth=4.0), measured("all_to_all", bandwidth=4.0, line=9)], study())
    assert "spines or PXN" not in [f.kind for f in both.findings]


def test_twice_the_latency_is_small_sizes_only():
    kinds = [f.kind for f in compare([measured(latency=2.0)], study()).findings]
    assert kinds[0] == "small sizes slow"
    assert "plateau low" not in kinds


def test_a_cliff_is_placed_at_its_size():
    cliff = measured(shape=lambda size: 2.5 if size >= 2**25 else 1.0)
    found = [f for f in compare([cliff], study()).findings if f.kind == "cliff"]
    assert len(found) == 1
    assert found[0].found.endswith("at 32 MiB")
    assert "32MiB" in found[0].next_test


def test_faster_than_the_wires_is_not_believed():
    found = compare([measured(shape=lambda size: 0.5)], study()).findings
    assert "faster than possible" in [f.kind for f in found]


def test_one_server_without_nvls():
    curve = compare([measured(ranks=8, change=nccl(algorithm="ring"))], study()).curves[0]
    assert curve.servers == 1
    assert curve.best.key == "algo-ring"


def test_scaling_every_term_scales_the_time():
    q = sweep(sound_machine(), "all_reduce", [2.0**28], (Communicator(np.arange(64, dtype=np.int32)),))[0]
    assert scaled(q, 1.0, 1.0) == pytest.approx(q.time)
    assert scaled(q, 3.0, 3.0) == pytest.approx(3 * q.time)


def test_hash_collisions_count_only_where_flows_cross_the_spines():
    """30 servers share their rails' leaves: with PXN nothing climbs to a spine, without it ECMP collides."""
    machine = sound_machine()
    assert machine.network.routing == "adaptive"
    hashed = Network(machine.network.fabric, "ecmp", machine.network.seed)
    curve = compare([measured("all_to_all", 128)], study()).curves[0]
    keys = [s.key for s in curve.suspects]
    assert "pxn-off+ecmp" in keys
    assert "ecmp" not in keys
    bad = measured("all_to_all", 128, lambda m: replace(nccl(pxn=False)(m), network=hashed))
    fits = {s.key: s.misfit for s in compare([bad], study()).curves[0].suspects}
    assert fits["pxn-off+ecmp"] < 0.03
    assert fits["pxn-off+ecmp"] <= min(fits.values()) + 1e-9


def test_one_slow_size_is_noise_and_no_cliff():
    found = compare([measured(shape=lambda size: 3.0 if size == 2**23 else 1.0)], study()).findings
    assert [f.kind for f in found] == ["uneven sizes"]
    assert found[0].severity == "note"
    assert found[0].found.endswith("at 8 MiB")


def test_a_single_size_names_no_suspect():
    # one point 8/7 slow is met by 'one NIC missing' exactly, and by others; it identifies nothing
    from railwright.measure.compare.findings import FEWEST, _Fit
    from railwright.measure.compare.result import Suspect

    missing = Suspect("nic-missing", "one NIC per server is missing", "", (1.0,), 0.0)
    assert not _Fit(missing, 0.0, None, 0.1, 0.1, 1).named
    assert _Fit(missing, 0.0, None, 0.1, 0.1, FEWEST).named
