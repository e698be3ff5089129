"""The search finds what trying every layout of a space finds."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.architecture import Transformer
from railwright.search import Space, search
from railwright.search.blocks import blocks
from railwright.search.branch import GROUP
from railwright.search.front import rounded
from railwright.search.space import apply, setting_of
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import peak_memory, simulate
from railwright.training.cached import cached
from railwright.training.memory import SYSTEM
from search_cases import AGAIN, ALTERNATING, DELAYED, TORCHAO, drawn
from training_cases import DENSE, MIXED, MOE, job, machine


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    arch=st.sampled_from([DENSE, MOE]),
    servers=st.sampled_from([1, 2]),
    batch=st.sampled_from([16, 24, 32]),
    tp=st.sampled_from([(1, 2), (2, 4)]),
    overlap=st.sampled_from(
        [("overlap_tp", "overlap_dp"), ("overlap_pp", "overlap_dp"), ("overlap_ep", "zero")]
    ),
)
def test_the_search_finds_what_brute_force_finds(
    arch: Transformer, servers: int, batch: int, tp: tuple[int, ...], overlap: tuple[str, ...]
) -> None:
    axes = {"tensor": tp, "micro_batch": (2,), "placement": ("packed",), "expert_tensor": (None,)}
    fixed = {
        "recompute": ("none",),
        "sequence_parallel": (True,),
        "zero": (1,),
        "overlap_tp": (False,),
        "overlap_ep": (False,),
        "overlap_dp": (True,),
        "overlap_pp": (True,),
        "schedule": ("auto",),
    }
    for axis in overlap:
        fixed[axis] = (0, 1, 3) if axis == "zero" else (True, False)
    space = Space({**axes, **fixed})
    _compare(job(batch=batch), arch, servers, space)


@pytest.mark.parametrize(
    "schedules",
    [("auto", "zb-h1"), ("dualpipe", "gpipe"), ("zb-v", "dualpipe-v"), ("1f1b", "interleaved")],
)
def test_brute_force_over_schedules(schedules: tuple[str, ...]) -> None:
    space = Space(
        {
            "tensor": (1, 2),
            "schedule": schedules,
            "pipeline": (2, 4),
            "virtual_pipeline": (1, 2) if {"auto", "interleaved"} & {*schedules} else (1,),
            "micro_batch": (1, 2),
            "recompute": ("none",),
            "zero": (1,),
            "sequence_parallel": (True,),
            "overlap_pp": (True,),
        }
    )
    _compare(job(batch=32), DENSE, 2, space)


@pytest.mark.parametrize(("leading", "every"), [(1, 2), (0, 3)])
def test_brute_force_where_experts_alternate_with_dense_layers(leading: int, every: int) -> None:
    arch = replace(ALTERNATING, dense_layers=leading, expert_every=every)
    axes = {"tensor": (1, 2), "pipeline": (1, 2, 4), "virtual_pipeline": (1, 2), "expert_tensor": (None,)}
    fixed = {"recompute": ("none",), "sequence_parallel": (True,), "zero": (1,), "overlap_tp": (False,)}
    more = {"expert": (1, 4), "overlap_ep": (False,), "overlap_pp": (True,), "placement": ("packed",)}
    _compare(job(batch=32), arch, 1, Space({**axes, **fixed, **more, "micro_batch": (1, 2)}))


def test_brute_force_where_layers_are_of_every_kind() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "expert": (1, 4), "recompute": ("none", "full")}
    fixed = {"expert_tensor": (None,), "overlap_tp": (False,), "placement": ("packed",), "zero": (0, 1)}
    _compare(job(batch=32), MIXED, 1, Space({**axes, **fixed, "micro_batch": (2,)}))


def test_brute_force_where_parts_are_computed_again() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "expert": (1, 4), "recompute": ("selective",), "zero": (1,)}
    fixed = {
        "expert_tensor": (None,),
        "overlap_tp": (False,),
        "overlap_pp": (True,),
        "placement": ("packed",),
    }
    _compare(AGAIN, ALTERNATING, 1, Space({**axes, **fixed, "micro_batch": (1, 2)}))


@pytest.mark.parametrize("arch", [DENSE, ALTERNATING], ids=["dense", "experts"])
def test_brute_force_over_how_many_layers_are_computed_again(arch: Transformer) -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "recompute": ("none", "full"), "zero": (1,)}
    some = {"recompute_layers": (None, 1, 2, 3), "expert": (1, 4) if arch.is_moe else (1,)}
    fixed = {"expert_tensor": (None,), "overlap_tp": (False,), "overlap_ep": (False,), "overlap_pp": (True,)}
    space = Space({**axes, **some, **fixed, "placement": ("packed",), "micro_batch": (1, 2)})
    _compare(job(batch=32), arch, 1, space)


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
    every = sorted(_brute(base, DENSE, one, space), key=lambda layout: layout.time)
    assert len(every) == 5
    chosen = set()
    for just in every:
        # a sixth more for the holes between tensors
        short = replace(one, gpu=replace(one.gpu, hbm_bytes=1.17 * just.memory))
        fit = [it for it in every if it.memory <= 1.17 * just.memory and _held(it.job, DENSE, short)]
        best = search(base, DENSE, short, space, top=1, steps=0).best[0]
        assert best.time == pytest.approx(_first(fit).time, rel=1e-9)
        chosen.add(best.setting["recompute_layers"] if best.setting["recompute"] == "full" else 0)
    assert len(chosen) > 1


def test_brute_force_where_every_pass_ends_together() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2, 4), "zero": (1, 3), "recompute": ("none",)}
    _compare(DELAYED, DENSE, 2, Space({**axes, "sequence_parallel": (True,), "micro_batch": (1, 2)}))


def test_brute_force_with_casts_and_packed_samples() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "zero": (1, 3), "recompute": ("none", "selective")}
    packed = TORCHAO.model_copy(update={"sample_length": 128})
    _compare(packed, DENSE, 1, Space({**axes, "micro_batch": (1, 2), "sequence_parallel": (True,)}))


def test_brute_force_where_experts_are_cut_more_than_the_rest() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "expert": (1, 2), "expert_tensor": (None, 1, 4)}
    fixed = {"recompute": ("none",), "overlap_tp": (False,), "placement": ("packed",), "zero": (0, 1)}
    _compare(job(batch=32), MOE, 1, Space({**axes, **fixed, "micro_batch": (1,)}))


def test_brute_force_where_tokens_travel_in_8_bits() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "expert": (1, 4), "zero": (1,), "micro_batch": (2,)}
    fixed = {"recompute": ("none", "full"), "overlap_tp": (False,), "placement": ("packed",)}
    one = job(batch=32, dtype="fp8_block").model_copy(update={"dispatch_dtype": "fp8"})
    _compare(one, MOE, 1, Space({**axes, **fixed}))


def test_brute_force_of_whole_matrices() -> None:
    """Muon: data-parallel ranks update matrices of their own, and `zero` 2 and 3 are refused."""
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "expert": (1, 4), "zero": (0, 1, 3), "micro_batch": (1,)}
    fixed = {"recompute": ("none",), "overlap_tp": (False,), "overlap_ep": (False,), "placement": ("packed",)}
    _compare(job(batch=32).model_copy(update={"optimizer": "muon"}), MOE, 1, Space({**axes, **fixed}))


def test_brute_force_where_launches_block() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2, 4), "recompute": ("none", "full"), "micro_batch": (1, 2)}
    off = {f"overlap_{kind}": (False,) for kind in ("dp", "tp", "pp", "ep")}
    base = job(batch=32).model_copy(update={"launch_blocking": True})
    _compare(base, DENSE, 2, Space({**axes, **off, "zero": (1,), "sequence_parallel": (True,)}))


def test_brute_force_where_only_experts_have_copies() -> None:
    """Tensor parallelism over all GPUs, experts uncut: `zero` shares and `overlap.dp` hides theirs."""
    axes = {"tensor": (4, 8), "pipeline": (1, 2), "expert": (1, 2), "recompute": ("none",)}
    fixed = {
        "overlap_ep": (False,),
        "placement": ("packed",),
        "sequence_parallel": (True,),
        "schedule": ("auto",),
    }
    space = Space({**axes, **fixed, "zero": (0, 1, 3), "overlap_dp": (True, False), "micro_batch": (1, 2)})
    _compare(job(batch=16), MOE, 1, space)
    screen, layouts = drawn(MOE, job(batch=16), space, random.Random(1), 30)
    for block, index, step in layouts:
        assert screen.closer(block, index) <= step.step_time, block.at(index)


def test_brute_force_where_a_copy_is_shared_by_few() -> None:
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "recompute": ("none", "full"), "micro_batch": (1, 2)}
    base = job(batch=32, zero=3, shard=4)
    _compare(base, DENSE, 2, Space({**axes, "overlap_dp": (True, False), "sequence_parallel": (True,)}))


@pytest.mark.parametrize("arch", [DENSE, MOE], ids=["dense", "experts"])
def test_brute_force_over_groups_that_share_a_copy(arch: Transformer) -> None:
    """Groups of ranks, parameters kept or dropped, gradients reduced every time or once, in one space."""
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "recompute": ("none",)}
    sharing = {"shard": (None, 2, 4, 8), "reshard": (True, False), "reduce_each": (True, False)}
    more = {
        "zero": (1, 2, 3),
        "expert": (1, 4) if arch is MOE else (1,),
        "placement": ("packed",),
        "micro_batch": (1,),
    }
    _compare(job(batch=32), arch, 2, Space({**axes, **sharing, **more, "overlap_tp": (False,)}))


def test_brute_force_of_what_fsdp_has() -> None:
    """Defaults of FSDP2, on three servers: all ranks or whole servers share, context ranks among them."""
    axes = {"tensor": (1, 2), "pipeline": (1, 2), "recompute": ("none",), "context": (1, 2)}
    space = Space({**axes, "overlap_tp": (False,), "micro_batch": (1,)}, fsdp=True)
    _compare(job(batch=48, sequence=8192), DENSE, 3, space)


def test_brute_force_of_the_leanest_groups() -> None:
    """Within a memory that only larger groups of ranks fit in."""
    space = Space({"tensor": (1,), "pipeline": (1,), "zero": (3,), "shard": (2, 4, 8, None),
                   "reshard": (True, False), "micro_batch": (1, 2)})  # fmt: skip
    base, one = job(batch=32), machine(2)
    exact = sorted(_brute(base, DENSE, one, space), key=lambda found: found.memory)
    found = search(base, DENSE, one, space, top=1, steps=0, objective="memory").best[0]
    assert found.memory == exact[0].memory
    for limit in (exact[len(exact) // 4].memory, exact[len(exact) // 2].memory):
        # a fifth more for the holes between tensors
        short = replace(one, gpu=replace(one.gpu, hbm_bytes=1.2 * limit))
        fit = [it for it in exact if it.memory <= 1.2 * limit and _held(it.job, DENSE, short)]
        best = search(base, DENSE, short, space, top=1, steps=0).best[0]
        assert best.time == pytest.approx(_first(fit).time, rel=1e-9)


def test_brute_force_where_a_stage_sends_one_layer_to_the_host() -> None:
    """Two virtual stages send one each, as many as a whole stage of one: their passes are not the same."""
    axes = {
        "tensor": (1,),
        "pipeline": (2,),
        "virtual_pipeline": (1, 2),
        "schedule": ("auto", "zb-h1", "zb-v"),
    }
    more = {"recompute": ("none",), "zero": (1,), "offload": (("activations",),), "micro_batch": (1, 2)}
    base = job(batch=32, sequence=4096, offload=("activations",), offload_layers=2)
    _compare(base, DENSE, 1, Space({**axes, **more, "overlap_pp": (True,), "overlap_dp": (True,)}))


def test_brute_force_where_copies_to_the_host_shorten_a_step() -> None:
    """Where launches bind, the host runs ahead while a forward pass waits for its copies, and stages of
    different sizes wait less for each other."""
    axes = {"tensor": (1,), "pipeline": (2,), "virtual_pipeline": (1,), "schedule": ("auto", "gpipe")}
    more = {"recompute": ("none",), "zero": (1,), "offload": ((), ("activations",)), "micro_batch": (2,)}
    _compare(job(batch=16), replace(DENSE, layers=5), 1, Space({**axes, **more}))


SHORT = Space({"tensor": (1, 2), "pipeline": (1, 2), "zero": (0, 1), "recompute": ("none",),
               "offload": ((), ("optimizer",)), "overlap_dp": (True,), "overlap_tp": (False,),
               "overlap_pp": (True,), "schedule": ("auto",)})  # fmt: skip


def test_brute_force_where_memory_is_short() -> None:
    """GPUs that hold just the tensors of a layout that no other beats in time and memory: the best is the
    fastest with whose holes PyTorch's allocator has room too; the one that has none is told."""
    base, one = job(batch=32, sequence=4096), machine(1)
    roomy = sorted(_brute(base, DENSE, one, SHORT), key=lambda layout: (layout.time, layout.memory))
    front = [a for n, a in enumerate(roomy) if all(a.memory < b.memory for b in roomy[:n])]
    left_out = refused = 0
    for just in front:
        short = replace(one, gpu=replace(one.gpu, hbm_bytes=just.memory + 1))
        held = [a for a in roomy if a.memory <= just.memory and _held(a.job, DENSE, short)]
        if not held:
            refused += 1
            for objective in ("time", "memory"):
                with pytest.raises(PlanError, match="PyTorch's allocator has no room for the holes between"):
                    search(base, DENSE, short, SHORT, objective=objective)  # type: ignore[arg-type]
            continue
        best, result = _first(held), search(base, DENSE, short, SHORT, top=3, steps=2)
        found = result.best[0]
        assert (found.time, found.memory) == pytest.approx((best.time, best.memory), rel=1e-9)
        assert all(_held(told.job, DENSE, short) for told in result.ranked)
        assert not any(_held(told.job, DENSE, short) for told in result.overfull)
        if not _held(just.job, DENSE, short):
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
    roomy = sorted(_brute(base, arch, one, space), key=lambda layout: (rounded(layout.time), layout.memory))
    limits = sorted({layout.memory for layout in roomy})
    told = 0
    for limit in limits[len(limits) // 4 :: len(limits) // 4]:
        short = replace(one, gpu=replace(one.gpu, hbm_bytes=1.02 * limit))
        rows: dict[tuple[object, ...], Exact] = {}
        for layout in roomy:
            if layout.memory <= 1.02 * limit:
                setting = setting_of(layout.job)
                rows.setdefault(tuple(setting[axis] for axis in GROUP), layout)
        full = [layout for layout in rows.values() if not _held(layout.job, arch, short)]
        result = search(base, arch, short, space, top=100, steps=0)
        assert [one.time for one in result.overfull] == pytest.approx([one.time for one in full], rel=1e-9)
        told += len(full)
    assert told


def test_of_equal_times_the_leanest_is_the_best() -> None:
    """Where launches bind, gathering parameters again takes no time, and keeping them takes memory."""
    own = job(batch=32, sequence=4096, zero=3)
    axes = {"tensor": (1, 2), "pipeline": (1,), "recompute": ("none",), "micro_batch": (1,), "zero": (3,),
            "reshard": (True, False)}  # fmt: skip
    found = _brute(own, DENSE, machine(1), Space(axes))
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
    both = _brute(own, DENSE, machine(1), space)
    assert len(both) == 2
    assert both[0].time == pytest.approx(both[1].time, rel=1e-12)
    assert both[0].memory == both[1].memory
    best = search(own, DENSE, machine(1), space, top=1, steps=0).best[0]
    assert best.setting["overlap_dp"] is hidden


def test_the_leanest_layout_is_the_leanest_of_all() -> None:
    """Layouts with the same bound of memory may need more or less than each other."""
    axes = {"tensor": (1, 2), "pipeline": (2, 4), "recompute": ("selective",), "schedule": ("auto", "zb-h1")}
    space = Space(
        {**axes, "zero": (1, 2, 3), "overlap_ep": (True, False), "micro_batch": (1,), "expert": (2, 8)}
    )
    one = machine(1)
    found = search(job(batch=16), MOE, one, space, top=1, steps=0, objective="memory").best[0]
    exact = _brute(job(batch=16), MOE, one, space)
    least = min(one.memory for one in exact)
    assert found.memory == least
    assert found.time == pytest.approx(min(one.time for one in exact if one.memory == least), rel=1e-9)


@dataclass(frozen=True)
class Exact:
    """A layout as simulated alone."""

    time: float
    memory: float
    job: TrainingJob


def _compare(base: TrainingJob, arch: Transformer, servers: int, space: Space) -> None:
    one = machine(servers)
    result = search(base, arch, one, space, top=3, steps=0)
    exact = _brute(base, arch, one, space)
    best, first = result.best[0], _first(exact)
    assert (best.time, best.memory) == pytest.approx((first.time, first.memory), rel=1e-9)
    assert result.effort.layouts >= len(exact)
    assert all(c.bound <= c.time for c in result.best)


def _first(found: list[Exact]) -> Exact:
    """The fastest, of equal times the leanest."""
    fastest = min(one.time for one in found)
    return min((one for one in found if one.time <= fastest * (1 + 1e-9)), key=lambda one: one.memory)


def _held(one: TrainingJob, arch: Transformer, on: Machine) -> bool:
    """Whether every stage's replay ends within its GPU, with either kind of segments."""
    fabric, capacity = on.network.fabric, on.gpu.hbm_bytes
    room = capacity - peak_memory(one, arch, fabric, capacity).parts[SYSTEM]
    for limit, growing in ((room, False), (np.inf, True)):
        each = [cached(one, arch, fabric, s, limit, growing) for s in range(one.layout.pipeline)]
        if all(stage is not None and stage.reserved <= room for stage in each):
            return True
    return False


def _brute(base: TrainingJob, arch: Transformer, one: Machine, space: Space) -> list[Exact]:
    """Every layout of the space that can run."""
    found, _ = blocks(space, base, arch, one.network.fabric)
    layouts = []
    for block in found:
        for index in np.ndindex(*block.shape):
            wanted = apply(base, block.at(index))
            try:
                step = simulate(wanted, arch, one, most_events=0)
            except PlanError:
                continue
            layouts.append(Exact(step.step_time, step.memory.total, wanted))
    return layouts
