"""Within a memory, and of equal times, the search finds what trying every layout of a space finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.errors import PlanError
from railwright.search import Space, search
from railwright.search.space.axes import setting_of
from railwright.search.training.branch import GROUP
from railwright.search.training.front import rounded
from railwright.spec.training import Overlap
from search_brute_force import Exact, best_of, can_hold, every_layout
from training_cases import DENSE, MOE, job, machine


def test_of_short_memory_some_layers_computed_again_make_the_best_of() -> None:
    """The fastest layout that fits computes some layers again where none of them is too large and all of them
    too slow; memory of every number of layers is bounded, exact and replayed."""
    axes = {"tensor": (1,), "pipeline": (2,), "zero": (1,), "micro_batch": (2,), "virtual_pipeline": (1,)}
    fixed = {
        "recompute": ("none", "full"),
        "overlap_dp": (True,),
        "overlap_pp": (True,),
        "schedule": ("auto",),
    }
    space = Space({**axes, **fixed, "recompute_layers": (None, 1, 2, 3)})
    base, one = job(batch=32, sequence=4096), machine(1)
    every = sorted(every_layout(base, DENSE, one, space), key=lambda layout: layout.time)
    assert len(every) == 5
    chosen = set()
    for just in every:
        # a sixth more for the holes between tensors
        short = replace(one, gpu=replace(one.gpu, hbm_bytes=1.17 * just.memory))
        fit = [it for it in every if it.memory <= 1.17 * just.memory and can_hold(it.job, DENSE, short)]
        best = search(base, DENSE, short, space, top=1, steps=0).best[0]
        assert best.time == pytest.approx(best_of(fit).time, rel=1e-9)
        chosen.add(best.setting["recompute_layers"] if best.setting["recompute"] == "full" else 0)
    assert len(chosen) > 1


def test_brute_force_of_the_leanest_groups() -> None:
    """Within a memory that only larger groups of ranks fit in."""
    space = Space({"tensor": (1,), "pipeline": (1,), "zero": (3,), "shard": (2, 4, 8, None),
                   "reshard": (True, False), "micro_batch": (1, 2)})  # fmt: skip
    base, one = job(batch=32), machine(2)
    exact = sorted(every_layout(base, DENSE, one, space), key=lambda found: found.memory)
    found = search(base, DENSE, one, space, top=1, steps=0, objective="memory").best[0]
    assert found.memory == exact[0].memory
    for limit in (exact[len(exact) // 4].memory, exact[len(exact) // 2].memory):
        # a fifth more for the holes between tensors
        short = replace(one, gpu=replace(one.gpu, hbm_bytes=1.2 * limit))
        fit = [it for it in exact if it.memory <= 1.2 * limit and can_hold(it.job, DENSE, short)]
        best = search(base, DENSE, short, space, top=1, steps=0).best[0]
        assert best.time == pytest.approx(best_of(fit).time, rel=1e-9)


SHORT = Space({"tensor": (1, 2), "pipeline": (1, 2), "zero": (0, 1), "recompute": ("none",),
               "offload": ((), ("optimizer",)), "overlap_dp": (True,), "overlap_tp": (False,),
               "overlap_pp": (True,), "schedule": ("auto",)})  # fmt: skip


def test_brute_force_where_memory_is_short() -> None:
    """GPUs that hold just the tensors of a layout that no other beats in time and memory: the best is the
    fastest with whose holes PyTorch's allocator has room too; the one that has none is told."""
    base, one = job(batch=32, sequence=4096), machine(1)
    roomy = sorted(every_layout(base, DENSE, one, SHORT), key=lambda layout: (layout.time, layout.memory))
    front = [a for n, a in enumerate(roomy) if all(a.memory < b.memory for b in roomy[:n])]
    left_out = refused = 0
    for just in front[::2]:
        short = replace(one, gpu=replace(one.gpu, hbm_bytes=just.memory + 1))
        held = [a for a in roomy if a.memory <= just.memory and can_hold(a.job, DENSE, short)]
        if not held:
            refused += 1
            for objective in ("time", "memory"):
                with pytest.raises(PlanError, match="PyTorch's allocator has no room for the holes between"):
                    search(base, DENSE, short, SHORT, objective=objective)  # type: ignore[arg-type]
            continue
        best, result = best_of(held), search(base, DENSE, short, SHORT, top=3, steps=2)
        found = result.best[0]
        assert (found.time, found.memory) == pytest.approx((best.time, best.memory), rel=1e-9)
        assert all(can_hold(told.job, DENSE, short) for told in result.ranked)
        assert not any(can_hold(told.job, DENSE, short) for told in result.overfull)
        if not can_hold(just.job, DENSE, short):
            left_out += 1
            assert result.overfull[0].time == pytest.approx(just.time, rel=1e-9)
    assert left_out > 1
    assert refused


def test_all_that_would_be_listed_if_it_could_be_held_is_told() -> None:
    """A ring and gathered keys hold the same, so one replay says no to both: each is a row of its own."""
    arch, base = replace(DENSE, layers=2), job(gpus=4, batch=4, sequence=16384)
    one, axes = machine(1), {"tensor": (1, 2), "pipeline": (1,), "zero": (0, 1, 3), "micro_batch": (1, 2)}
    fixed = {"overlap_tp": (False,), "overlap_dp": (True,), "sequence_parallel": (True,)}
    space = Space({**axes, **fixed, "recompute": ("none", "selective")})
    roomy = sorted(
        every_layout(base, arch, one, space), key=lambda layout: (rounded(layout.time), layout.memory)
    )
    limits = sorted({layout.memory for layout in roomy})
    told = 0
    for limit in limits[len(limits) // 5 :: len(limits) // 5]:
        short = replace(one, gpu=replace(one.gpu, hbm_bytes=1.02 * limit))
        rows: dict[tuple[object, ...], Exact] = {}
        for layout in roomy:
            if layout.memory <= 1.02 * limit:
                setting = setting_of(layout.job)
                rows.setdefault(tuple(setting[axis] for axis in GROUP), layout)
        full = [layout for layout in rows.values() if not can_hold(layout.job, arch, short)]
        result = search(base, arch, short, space, top=100, steps=0)
        assert [one.time for one in result.overfull] == pytest.approx([one.time for one in full], rel=1e-9)
        told += len(full)
    assert told


def test_of_equal_times_the_leanest_is_the_best() -> None:
    """Where launches bind, gathering parameters again takes no time, and keeping them takes memory."""
    own = job(batch=32, sequence=4096, zero=3)
    axes = {"tensor": (1, 2), "pipeline": (1,), "recompute": ("none",), "micro_batch": (1,), "zero": (3,),
            "reshard": (True, False)}  # fmt: skip
    found = every_layout(own, DENSE, machine(1), Space(axes))
    fastest = min(layout.time for layout in found)
    tied = {layout.memory for layout in found if layout.time <= fastest * (1 + 1e-9)}
    assert len(tied) > 1
    result = search(own, DENSE, machine(1), Space(axes), top=3, steps=2)
    assert result.best[0].memory == min(tied)
    assert result.front[0].setting == result.best[0].setting


@pytest.mark.parametrize("hidden", [True, False])
def test_of_equal_times_and_memory_the_nearest_to_the_own_layout_is_the_best(hidden: bool) -> None:
    """Where parameters are gathered when they are needed, this job's step is as long whether gathers are to
    hide or not: what the user wrote stays."""
    own = job(batch=32, sequence=4096, zero=3, overlap=Overlap(dp=hidden))
    axes = {"tensor": (1,), "pipeline": (1,), "context": (1,), "recompute": ("none",), "micro_batch": (1,)}
    space = Space({**axes, "zero": (3,), "overlap_dp": (True, False)})
    both = every_layout(own, DENSE, machine(1), space)
    assert len(both) == 2
    assert both[0].time == pytest.approx(both[1].time, rel=1e-12)
    assert both[0].memory == both[1].memory
    best = search(own, DENSE, machine(1), space, top=1, steps=0).best[0]
    assert best.setting["overlap_dp"] is hidden


def test_the_leanest_layout_is_the_leanest_of_all() -> None:
    """Layouts with the same bound of memory may need more or less than each other."""
    axes = {"tensor": (1, 2), "pipeline": (2, 4), "recompute": ("selective",), "schedule": ("auto", "zb-h1")}
    # what else is hidden takes no memory
    hidden = {"overlap_ep": (True, False), "overlap_tp": (False,), "overlap_pp": (True,)}
    space = Space({**axes, **hidden, "zero": (1, 2, 3), "micro_batch": (1,), "expert": (2, 8)})
    one = machine(1)
    found = search(job(batch=16), MOE, one, space, top=1, steps=0, objective="memory").best[0]
    exact = every_layout(job(batch=16), MOE, one, space)
    least = min(one.memory for one in exact)
    assert found.memory == least
    assert found.time == pytest.approx(min(one.time for one in exact if one.memory == least), rel=1e-9)
