"""A search on a network that does not connect all GPUs: rail-only, with PXN off."""

from __future__ import annotations

from itertools import product

import pytest

from railwright.catalog import load_catalog
from railwright.collectives import Machine, NcclSettings
from railwright.errors import PlanError
from railwright.model import load_model
from railwright.search import Space, search
from railwright.search.space.axes import apply
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from training_cases import MOE, job

AXES: dict[str, tuple[object, ...]] = {
    "tensor": (1, 2, 4, 8),
    "pipeline": (1, 2),
    "expert": (1, 8),
    "expert_tensor": (None, 1),
    "context": (1,),
    "virtual_pipeline": (1,),
    "schedule": ("auto",),
    "placement": ("packed",),
    "micro_batch": (1,),
    "sequence_parallel": (False,),
    "recompute": ("none",),
    "zero": (1,),
    "overlap_tp": (False,),
    "overlap_ep": (False,),
    "overlap_cp": (True,),
    "overlap_dp": (True,),
    "overlap_pp": (True,),
}


def rail_only(pxn: bool, servers: int = 2) -> Machine:
    compute = ComputeNetwork(family="rail-only", switch="qm9700")
    cluster = Cluster(servers=servers, server="dgx-h100", compute=compute)
    return Machine.of(cluster, load_catalog(), NcclSettings(pxn=pxn))


def brute(own: TrainingJob, where: Machine, space: dict[str, tuple[object, ...]]) -> tuple[float, int, int]:
    """The shortest step of a space, how many can run, and how many the network keeps from it."""
    times, apart = [], 0
    for values in product(*space.values()):
        try:
            step = simulate(apply(own, dict(zip(space, values, strict=True))), MOE, where, most_events=0)
            times.append(step.step_time)
        except PlanError as no:
            apart += "cannot reach" in str(no)
    return min(times, default=float("inf")), len(times), apart


def test_what_the_network_does_not_connect_is_left_out() -> None:
    where, own = rail_only(pxn=False), job(batch=64, tensor=8)
    best, able, apart = brute(own, where, AXES)
    assert able
    assert apart
    found = search(own, MOE, where, Space(AXES), steps=0)
    assert found.best[0].time == pytest.approx(best, rel=1e-9)
    assert any("cannot reach" in one.example for one in found.refused)


def test_with_pxn_all_are_connected() -> None:
    where, own = rail_only(pxn=True), job(batch=64, tensor=8)
    best, _, apart = brute(own, where, AXES)
    assert not apart
    found = search(own, MOE, where, Space(AXES), steps=0)
    assert found.best[0].time == pytest.approx(best, rel=1e-9)
    assert not any("cannot reach" in one.example for one in found.refused)


@pytest.mark.parametrize("objective", ["time", "memory"])
def test_what_one_exchange_of_gradients_cannot_do_another_may(objective: str) -> None:
    """Rings over three servers of a rail-only fabric leave their rails, where a tree stays on them, and NCCL
    takes trees for all-reduces of one size and not of another."""
    axes = {**AXES, "tensor": (1,), "pipeline": (1,), "expert": (1,), "expert_tensor": (None,)}
    axes |= {"zero": (1, 0, 2), "overlap_dp": (True, False)}
    where, own = rail_only(pxn=False, servers=3), job(batch=96)
    best, able, apart = brute(own, where, axes)
    assert (able, apart) == (1, 5)
    found = search(own, MOE, where, Space(axes), steps=0, objective=objective)  # type: ignore[arg-type]
    assert found.best[0].time == pytest.approx(best, rel=1e-9)
    (refused,) = [one for one in found.refused if "cannot reach" in one.example]
    assert refused.layouts == apart


def test_a_space_of_nothing_else_says_so() -> None:
    axes = {**AXES, "tensor": (4,), "expert": (4,), "expert_tensor": (None,), "pipeline": (1,)}
    where, own = rail_only(pxn=False), job(batch=64, tensor=8)
    assert brute(own, where, axes)[1] == 0
    with pytest.raises(PlanError, match=r"the network cannot carry what some group sends; .*cannot reach"):
        search(own, MOE, where, Space(axes), steps=0)


def test_what_would_fit_is_what_the_network_carries() -> None:
    """Of 24 ranks over three servers rings leave their rails; tensor groups that fill a server leave each
    other rank on a rail of its own."""
    own = job(gpus=24, batch=144, sequence=8192)
    arch = load_model("llama3-8b")
    for pxn, ways in ((True, {"tensor: 2", "zero: 2", "context: 2"}), (False, {"tensor: 8"})):
        where = rail_only(pxn=pxn, servers=3)
        with pytest.raises(PlanError, match=r"what would fit: ") as refused:
            simulate(own, arch, where)
        told = str(refused.value).split("what would fit: ")[1].split("; `railwright")[0]
        found = {way.split(" (")[0] for way in told.split("; ")}
        assert ways <= found if pxn else found == ways


def test_where_nothing_that_fits_is_carried_the_network_is_named() -> None:
    """70B fits 24 GPUs under ZeRO-3 alone, whose gathers over all of them leave their rails."""
    own = job(gpus=24, batch=144, sequence=8192)
    with pytest.raises(PlanError) as refused:
        simulate(own, load_model("llama-3-70b"), rail_only(pxn=False, servers=3))
    text = str(refused.value)
    assert "makes it fit here and is carried by the network; of what would fit, recompute: full with" in text
    assert "cannot reach" in text
    assert "more or larger GPUs" not in text


def test_the_leanest_is_the_leanest_of_those_that_are_connected() -> None:
    """Experts over all 16 GPUs need least, and their all-to-all crosses rails."""
    axes = {**AXES, "tensor": (2,), "expert": (1, 8), "expert_tensor": (None,), "pipeline": (1,)}
    where, own = rail_only(pxn=False), job(batch=64, tensor=8)
    assert brute(own, where, axes)[1:] == (1, 1)
    found = search(own, MOE, where, Space(axes), steps=0, objective="memory")
    assert found.best[0].setting["expert"] == 1
