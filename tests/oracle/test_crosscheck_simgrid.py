"""SimGrid, an independent fluid simulator, gives every flow the finish time that ours gives it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from network_fabrics import links_of, make, with_capacity
from railwright.catalog import load_catalog
from railwright.crosscheck import Problem, make_problem, simgrid
from railwright.fabric.graph import Role
from railwright.network import Network
from railwright.network.routing.solution import RoutingName

FOUND = simgrid.find()
pytestmark = pytest.mark.skipif(not FOUND, reason=f"no Python here has SimGrid; {simgrid.HOW}")


def problem(family: str, routing: RoutingName, pattern: str, slow: bool = False) -> Problem:
    """Eight servers of two GPUs below four leaves, 50 GB/s."""
    fabric = make(8, 2, family, servers_per_group=2, spines=3, nic=50e9, lane=450e9, uplink=50e9)
    if slow:
        up = links_of(fabric, Role.LEAF_SPINE)
        fabric = with_capacity(fabric, {up[0]: 0.25, up[5]: 0.5})
    return make_problem("oracle", Network(fabric, routing, seed=7), load_catalog(), pattern, 16, 1e7)


def finish(asked: Problem, folder: Path) -> np.ndarray:
    for name, content in simgrid.write(asked).items():
        (folder / name).write_text(str(content))
    simgrid.solve(asked, FOUND[0], folder, limit=60)
    return np.array([float(line) for line in (folder / "times.txt").read_text().split()])


@pytest.mark.parametrize("family", ["fat-tree", "rail-optimised"])
@pytest.mark.parametrize("routing", ["ecmp", "static"])
@pytest.mark.parametrize("pattern", ["all-to-all", "pxn", "ring", "send-recv"])
def test_single_paths_finish_at_the_same_moment(
    family: str, routing: RoutingName, pattern: str, tmp_path: Path
) -> None:
    asked = problem(family, routing, pattern)
    np.testing.assert_allclose(finish(asked, tmp_path), asked.answer[0].finish, rtol=1e-9)


def test_slow_links_that_finish_flows_one_by_one(tmp_path: Path) -> None:
    asked = problem("fat-tree", "ecmp", "all-to-all", slow=True)
    assert len(np.unique(np.round(asked.answer[0].finish, 12))) > 5
    np.testing.assert_allclose(finish(asked, tmp_path), asked.answer[0].finish, rtol=1e-9)


def test_a_spread_is_a_flow_per_path_and_bound_by_the_same_links(tmp_path: Path) -> None:
    """On a symmetrical fabric the paths of a spread are alike, and both programs say the same."""
    asked = problem("fat-tree", "adaptive", "all-to-all")
    assert len(asked.ways) > len(asked.traffic)
    assert finish(asked, tmp_path).max() == pytest.approx(asked.answer[0].time, rel=1e-5)
