"""OpenSM's own tables, computed on a simulated subnet, run our network engine: they hold, and are as even.

Debian: opensm, ibsim-utils (with libumad2sim0).
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from export_fabrics import SHIPPED, built, small_parts
from railwright.errors import RailwrightError
from railwright.fabric import apply_faults
from railwright.fabric.graph import Fabric
from railwright.measure.opensm import ENGINES, missing, route
from railwright.measure.routing import examine
from railwright.network.routing.tables_check import check_tables
from railwright.spec.study import Fault

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not installed: {', '.join(missing())}")

TINY = small_parts(8)
DESIGNS = {
    "fat tree, 2 tiers": (lambda: built(8, "fat-tree", "small", "tiny", TINY), TINY),
    "fat tree, 3 tiers": (lambda: built(16, "fat-tree", "small", "tiny", TINY), TINY),
    "rails, 2 tiers": (lambda: built(8, "rail-optimised", "small", "tiny", TINY), TINY),
    "rails, 240 H100": (lambda: built(30, "rail-optimised"), SHIPPED),
    "two planes": (lambda: built(8, "dual-plane"), SHIPPED),
}


def simulators() -> set[str]:
    """Processes of this test that run ibsim or opensm."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = status.read_text().partition(" (")
        except OSError:
            continue
        name, _, fields = rest.rpartition(") ")
        if name in ("ibsim", "opensm") and int(fields.split()[1]) == os.getpid():
            found.add(pid)
    return found


@pytest.mark.parametrize("design", DESIGNS)
def test_ftree_holds_and_is_as_even_and_as_fast_as_our_static_tables(design: str) -> None:
    make, catalog = DESIGNS[design]
    fabric = make()
    routed = route(fabric, catalog, "ftree")
    assert set(routed.engines) == {"ftree"}
    assert routed.notes == ()
    report = examine(fabric, routed.tables)
    assert report.check.valid
    assert (report.check.longer, report.check.turns, report.check.waits_in_circle) == (0, 0, False)
    for tier in report.tiers:
        assert tier.most - tier.least <= 1
        assert tier.most <= tier.own_most
    for case in report.cases:
        if case.traffic.startswith("all-to-all"):
            ours, theirs, ideal = (case.busbw[name] for name in ("static", "tables", "adaptive"))
            assert None not in (ours, theirs, ideal)
            assert theirs == pytest.approx(ours, rel=0.05)
            assert theirs <= ideal * (1 + 1e-9)
    assert simulators() == set()


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_delivers_without_detours_on_a_tree(engine: str) -> None:
    fabric = built(16, "fat-tree", "small", "tiny", TINY)
    routed = route(fabric, TINY, engine)
    assert routed.engines == (engine,)
    check = check_tables(fabric, routed.tables).check
    assert (check.valid, check.longer, check.turns, check.waits_in_circle) == (True, 0, 0, False)


def test_rails_that_never_meet_have_a_subnet_manager_each() -> None:
    fabric = built(4, "rail-only", "small", "tiny", TINY)
    routed = route(fabric, TINY, "updn")
    assert routed.engines == ("updn",) * 4
    report = examine(fabric, routed.tables)
    assert report.check.hops == {1: 16}
    by_name = {case.traffic: case for case in report.cases}
    assert by_name["all-to-all, PXN"].busbw["tables"] == by_name["all-to-all, PXN"].busbw["adaptive"]
    assert by_name["all-to-all, no PXN"].busbw["tables"] is None
    assert "rail-only" in by_name["all-to-all, no PXN"].why


def test_ftree_that_refuses_says_why_and_what_routed_instead() -> None:
    fabric = built(13, "fat-tree", "small", "tiny", TINY)
    routed = route(fabric, TINY, "ftree")
    assert routed.engines == ("minhop",)
    assert any("fell back to minhop: Different number of downward port groups" in n for n in routed.notes)


def test_one_that_takes_too_long_is_stopped_and_leaves_nothing_behind() -> None:
    with pytest.raises(RailwrightError, match="was not done within 0 s and was stopped"):
        route(built(8, "fat-tree", "small", "tiny", TINY), TINY, "ftree", limit=0.01)
    assert simulators() == set()


def test_after_a_fault_opensm_routes_around_the_dead_cable() -> None:
    whole: Fabric = built(8, "rail-optimised", "small", "tiny", TINY)
    broken = apply_faults(whole, (Fault(element="leaf-03 port 5"),))
    routed = route(broken, TINY, "updn")
    assert check_tables(broken, routed.tables).check.valid
    dead = np.flatnonzero((broken.capacity == 0) & (whole.capacity > 0))
    assert len(dead) == 2
    assert not np.isin(routed.tables.out, dead).any()
