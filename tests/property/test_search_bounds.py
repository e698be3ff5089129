"""The screening never loses the optimum: bounds never exceed the exact figures."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from railwright.search import Space
from railwright.search.footprint import held_first
from railwright.search.pricing import PASSING
from railwright.search.screen import unit_counts
from railwright.search.space import Block
from railwright.spec.lora import Lora
from railwright.spec.training import Overlap
from railwright.training import schedule
from railwright.training.held import held_sets
from railwright.training.quick import KINDS
from railwright.training.route import Route, Shape
from search_cases import (
    AGAIN,
    ALTERNATING,
    CHOOSING,
    DELAYED,
    GATED,
    HEADED,
    LATENT,
    PACKED,
    SHARING,
    TORCHAO,
    WINDOWED,
    drawn,
)
from training_cases import BLOCKS, DELTA, DENSE, KIMI, LATENTS, LIGHTNING, MIXED, MOE, changed, job

CASES = {
    "dense": (DENSE, job(batch=32), {}),
    "all axes": (
        DENSE,
        job(batch=32),
        {"zero": (0, 1, 2, 3), "offload": ((), ("activations",), ("optimizer",))},
    ),
    "under DeepSpeed": (
        DENSE,
        job(batch=32).model_copy(update={"software": "megatron-2021"}),
        {"pipeline": (1, 2, 4), "zero": (0, 1), "tensor": (1, 2)},
    ),
    "under DeepSpeed, gradients in 16 bits": (
        DENSE,
        job(batch=32, dtype="fp16").model_copy(update={"software": "megatron-2021"}),
        {"pipeline": (1, 2, 4), "zero": (0, 1), "tensor": (1, 2)},
    ),
    "schedules": (DENSE, job(batch=32), {"schedule": ("zb-h1", "dualpipe", "gpipe"), "pipeline": (2, 4)}),
    "folded": (DENSE, job(batch=32), {"schedule": ("zb-v", "dualpipe-v"), "pipeline": (2, 4)}),
    "split, with virtual stages": (
        DENSE,
        job(batch=32),
        {"schedule": ("zb-h1",), "pipeline": (2, 4), "virtual_pipeline": (2, 4), "zero": (0, 1, 2)},
    ),
    "experts folded": (MOE, job(batch=64), {"schedule": ("zb-v", "dualpipe-v"), "pipeline": (2, 4)}),
    "alternating experts folded": (
        ALTERNATING,
        job(batch=64),
        {"schedule": ("zb-v", "dualpipe-v"), "pipeline": (2,), "recompute": ("none", "selective", "full")},
    ),
    "context": (DENSE, job(batch=16, sequence=8192), {"context": (2, 4)}),
    "packed": (DENSE, PACKED, {"context": (1, 2), "context_kind": ("ring", "all-to-all")}),
    "torchao, scale per tensor": (DENSE, TORCHAO, {"zero": (1, 3)}),
    "weights on the host": (
        DENSE,
        TORCHAO,
        {"zero": (0, 3), "offload": ((), ("weights",), ("optimizer",)), "pipeline": (1, 2)},
    ),
    "torchao, scale per row": (MOE, TORCHAO.model_copy(update={"dtype": "fp8_rowwise"}), {"zero": (1, 3)}),
    "sharded in groups": (DENSE, job(batch=32, zero=3, shard=4), {}),
    "groups as axes": (
        DENSE,
        job(batch=32),
        {"shard": (None, 2, 4, 8), "reshard": (True, False), "reduce_each": (True, False), "zero": (2, 3)},
    ),
    "groups under FSDP2": (
        DENSE,
        changed(job(batch=32, sequence=4096), software="fsdp-2025"),
        {"shard": (None, 2, 8), "reshard": (True, False), "reduce_each": (False,), "zero": (3,)},
    ),
    "experts, parameters kept": (
        MOE,
        job(batch=32),
        {"reshard": (False, True), "reduce_each": (False, True), "zero": (2, 3), "pipeline": (1, 2, 4)},
    ),
    "experts": (MOE, job(batch=32), {}),
    "states in groups": (
        DENSE,
        job(batch=32),
        {"shard": (None, 2, 4), "zero": (1, 2), "pipeline": (1, 2, 4), "virtual_pipeline": (1, 2)},
    ),
    "experts in groups": (
        MOE,
        job(batch=64),
        {"shard": (4, 8), "zero": (1, 2, 3), "pipeline": (1, 2), "expert": (1, 2, 4)},
    ),
    "experts, sharded": (MOE, job(batch=32, imbalance=1.2), {"zero": (2, 3)}),
    "experts of fixed capacity": (MOE, job(batch=32).model_copy(update={"expert_capacity": 1.0}), {}),
    "behind shared experts": (
        ALTERNATING,
        job(batch=32, overlap=Overlap(shared=True)).model_copy(
            update={"unfused": ("rotary", "router", "loss", "norm", "activation")}
        ),
        {"tensor": (1, 2), "expert": (1, 2, 8), "schedule": ("auto", "dualpipe")},
    ),
    "experts both ways": (MOE, job(batch=64), {"schedule": ("dualpipe",), "pipeline": (2, 4)}),
    "alternating experts both ways": (
        ALTERNATING,
        job(batch=64),
        {"schedule": ("dualpipe",), "pipeline": (2, 4), "recompute": ("none", "selective", "full")},
    ),
    "experts of fixed capacity both ways": (
        MOE,
        job(batch=64).model_copy(update={"expert_capacity": 1.0}),
        {"schedule": ("dualpipe",), "pipeline": (2, 4)},
    ),
    "experts paired": (
        MOE,
        job(batch=64),
        {"expert": (2, 4, 8), "pipeline": (1, 2), "virtual_pipeline": (1, 2, 4), "zero": (0, 1, 2, 3)},
    ),
    "alternating experts paired": (
        ALTERNATING,
        job(batch=64),
        {"expert": (2, 8), "pipeline": (1, 2), "virtual_pipeline": (1, 3), "overlap_ep": (True,)},
    ),
    "experts of fixed capacity paired": (
        MOE,
        job(batch=64).model_copy(update={"expert_capacity": 1.0}),
        {"expert": (2, 8), "pipeline": (1, 4), "virtual_pipeline": (1, 2), "overlap_ep": (True,)},
    ),
    "alternating experts": (ALTERNATING, job(batch=32), {"pipeline": (1, 2, 4), "zero": (1, 3)}),
    "parts computed again": (ALTERNATING, AGAIN, {"expert": (1, 2, 8), "recompute": ("none", "selective")}),
    "parts computed again both ways": (
        ALTERNATING,
        AGAIN,
        {"schedule": ("dualpipe", "zb-v"), "pipeline": (2,), "recompute": ("selective",)},
    ),
    "some layers computed again": (
        DENSE,
        job(batch=32),
        {"recompute_layers": (None, 1, 2, 3), "pipeline": (1, 2, 4), "zero": (0, 1, 3), "tensor": (1, 2)},
    ),
    "some layers computed again, split": (
        DENSE,
        job(batch=32),
        {
            "recompute_layers": (1, 3),
            "schedule": ("zb-h1", "zb-v", "gpipe"),
            "pipeline": (2,),
            "zero": (0, 1),
        },
    ),
    "some layers of alternating experts computed again": (
        ALTERNATING,
        job(batch=32),
        {"recompute_layers": (1, 2, 3), "pipeline": (1, 2), "zero": (1, 3), "virtual_pipeline": (1, 3)},
    ),
    "some layers of experts computed again both ways": (
        MOE,
        job(batch=64),
        {"recompute_layers": (1, 2), "schedule": ("dualpipe", "dualpipe-v"), "pipeline": (2,)},
    ),
    "some layers of alternating experts computed again in pairs": (
        ALTERNATING,
        job(batch=64),
        {
            "recompute_layers": (1, 2),
            "pipeline": (1, 2),
            "virtual_pipeline": (1, 3),
            "overlap_ep": (True,),
            "expert": (2, 8),
        },
    ),
    "some layers of experts of fixed capacity computed again": (
        MOE,
        job(batch=32).model_copy(update={"expert_capacity": 1.0}),
        {"recompute_layers": (1, 2), "pipeline": (1, 2, 4), "expert": (2, 8)},
    ),
    "some layers with adapters computed again": (
        LATENT,
        job(batch=32).model_copy(update={"lora": Lora(rank=8, targets=("mlp up",))}),
        {"recompute_layers": (1, 2), "tensor": (1, 2), "zero": (0, 3), "schedule": ("auto",)},
    ),
    "blocks side by side": (
        replace(DENSE, parallel_blocks=True, norms_per_layer=1),
        job(batch=32),
        {"schedule": ("auto", "zb-h1"), "tensor": (2, 4)},
    ),
    "latent attention": (
        LATENT,
        job(batch=32, recompute="selective", recompute_modules=("mla_up_proj",)),
        {"schedule": ("auto", "zb-h1"), "tensor": (2, 4), "recompute": ("none", "selective")},
    ),
    "chosen keys": (
        CHOOSING,
        job(batch=32, recompute="selective"),
        {
            "schedule": ("auto", "zb-h1"),
            "tensor": (1, 2, 4),
            "context": (1, 2),
            "context_kind": ("all-gather",),
            "recompute": ("none", "selective", "full"),
        },
    ),
    "keys that other layers chose": (
        SHARING,
        job(batch=32),
        {"pipeline": (1, 2), "tensor": (1, 2, 4), "recompute": ("none", "selective", "full")},
    ),
    "heads of windowed layers": (
        HEADED,
        job(batch=32),
        {"pipeline": (1, 2, 3), "tensor": (1, 2, 4), "recompute": ("none", "selective", "full")},
    ),
    "gates, and layers of no pattern": (
        GATED,
        job(batch=32),
        {"pipeline": (1, 2, 3), "virtual_pipeline": (1, 2), "recompute": ("none", "selective", "full")},
    ),
    "latent experts": (
        LATENTS,
        job(batch=32, dtype="fp8"),
        {"expert": (1, 2, 8), "tensor": (1, 2), "recompute": ("none", "selective")},
    ),
    "layers of one block": (
        BLOCKS,
        job(batch=32),
        {"pipeline": (1, 2, 3), "virtual_pipeline": (1, 2), "recompute": ("none", "selective", "full")},
    ),
    "layers of one block over context ranks": (
        BLOCKS,
        job(batch=32, sequence=4096),
        {"context": (1, 2, 4), "tensor": (1, 2), "context_kind": ("ring", "all-to-all")},
    ),
    "delta nets": (
        DELTA,
        job(batch=32, sequence=2048),
        {"expert": (1, 2, 8), "tensor": (1, 2), "zero": (0, 1, 2, 3), "context": (1, 2)},
    ),
    "Kimi delta attention": (
        KIMI,
        job(batch=32),
        {"tensor": (1,), "expert": (1, 2, 8), "pipeline": (1, 2, 4)},
    ),
    "lightning attention": (LIGHTNING, job(batch=32), {"tensor": (1,), "pipeline": (1, 2), "zero": (1, 3)}),
    "every kind of layer, both ways": (
        MIXED,
        job(batch=64),
        {"schedule": ("dualpipe", "zb-v"), "pipeline": (2,), "recompute": ("none", "selective", "full")},
    ),
    "every kind of layer, paired": (
        MIXED,
        job(batch=64),
        {"expert": (2, 8), "pipeline": (1, 2), "virtual_pipeline": (1, 2), "overlap_ep": (True,)},
    ),
    "windows": (WINDOWED, job(batch=32), {"recompute": ("none", "selective")}),
    "adapters": (
        DENSE,
        job(batch=32).model_copy(update={"lora": Lora(rank=8, targets=("mlp up",))}),
        {"tensor": (1, 2), "zero": (0, 1, 2, 3), "offload": ((), ("optimizer",))},
    ),
    "adapters of some layers": (
        ALTERNATING,
        job(batch=32, recompute_modules=("shared_experts",)).model_copy(
            update={"lora": Lora(rank=8, targets=("mlp down",)), "expert_capacity": 1.0}
        ),
        {"tensor": (1,), "expert": (1, 8), "zero": (1, 2), "offload": ((), ("optimizer",))},
    ),
    "maxima agreed on": (DENSE, DELAYED, {"zero": (1, 3), "virtual_pipeline": (1, 2)}),
}


LAST = replace(DENSE, mtp_layers=2)
"""The last of its stages has most parameters."""

SLOW = {
    "gradients reduced in every microbatch": (
        LAST,
        job(batch=64, sequence=256),
        {"pipeline": (2, 4), "zero": (2, 3), "tensor": (1,), "micro_batch": (1,), "overlap_dp": (True,)},
    ),
    "gradients behind sends": (
        LAST,
        job(batch=16, sequence=4096),
        {
            "pipeline": (2,),
            "zero": (0,),
            "tensor": (1,),
            "schedule": ("auto", "gpipe"),
            "overlap_pp": (False,),
        },
    ),
    "parameters gathered, nothing hidden": (
        DENSE,
        job(batch=32, zero=3),
        {"zero": (3,), "overlap_dp": (False,), "offload": ((), ("activations",)), "pipeline": (4,)},
    ),
    "experts' parameters gathered, nothing hidden": (
        MOE,
        job(batch=32, zero=3),
        {"zero": (3,), "overlap_dp": (False,), "offload": ((), ("activations",)), "pipeline": (1, 2)},
    ),
}
"""On servers without NVLink, where data-parallel communication takes longer than what it hides behind."""


@pytest.mark.parametrize("case", [*CASES, *SLOW])
def test_no_bound_exceeds_the_exact_figure(case: str) -> None:
    """On random layouts of every family: time and memory bounds, and the closer bound of one layout."""
    arch, base, axes = (CASES | SLOW)[case]
    server = "server-8x-a100-pcie" if case in SLOW else "dgx-h100"
    screen, layouts = drawn(arch, base, Space(axes), random.Random(case), 24, server)
    for block, index, step in layouts:
        x, rest = _class(block, index)
        asked = np.arange(prod(block.shape[: len(PASSING)])) == x
        bounds = [
            screen.compute(block, asked)[x],
            screen.passes(block, asked)[x, *rest],
            screen.priced(block, asked)[x, *rest],
        ]
        assert max(bounds) <= step.step_time, (block.at(index), bounds, step.step_time)
        assert screen.closer(block, index) <= step.step_time, block.at(index)
        memory = np.broadcast_to(screen.memory(block), block.shape)[index]
        assert memory <= step.memory.total, (block.at(index), memory, step.memory.total)
    assert len(layouts) >= 8


def test_a_last_stage_that_ends_last_does_not_wait_for_the_first_ones_gradients() -> None:
    """ZB-H1 on two stages, the second with an extra layer and a shorter reduction: to its end the bound had
    added the first one's reduction."""
    base = job(
        batch=64, tensor=4, pipeline=2, expert=2, micro_batch=16, sequence_parallel=True, schedule="zb-h1",
        recompute="selective", zero=0, overlap=Overlap(dp=False, pp=False, ep=True),
    )  # fmt: skip
    axes = {name: (getattr(base.layout, name),) for name in ("tensor", "pipeline", "expert", "schedule")}
    screen, layouts = drawn(ALTERNATING, base, Space({**axes, "overlap_dp": (False,)}), random.Random(3), 60)
    assert len(layouts) >= 30
    for block, index, step in layouts:
        assert screen.closer(block, index) <= step.step_time, block.at(index)


def test_a_tied_embedding_does_not_wait_for_the_stages_between() -> None:
    """ZB-H1 with virtual stages, a first stage of little but the embedding: one in the middle ends last, and
    the bound had added the all-reduce of the first and the last to its end."""
    axes = {"tensor": (2,), "pipeline": (4,), "virtual_pipeline": (2,), "schedule": ("zb-h1",)}
    more = {"recompute": ("none",), "overlap_dp": (True, False)}
    screen, layouts = drawn(LATENT, job(batch=32), Space({**axes, **more}), random.Random(5), 30)
    assert len(layouts) >= 20
    for block, index, step in layouts:
        assert screen.closer(block, index) <= step.step_time, block.at(index)


@pytest.mark.parametrize("schedules", [("auto",), ("zb-h1",), ("zb-v",), ("dualpipe",), ("dualpipe-v",)])
def test_bounds_are_close_where_launches_bind(schedules: tuple[str, ...]) -> None:
    """Else a search simulates thousands: bounds of layouts with dropless experts of small kernels, by the
    share of the exact time, priced by class and each by its own passes."""
    space = Space({"schedule": schedules, "pipeline": (2, 4)})
    screen, layouts = drawn(MOE, job(batch=64), space, random.Random(7), 20)
    priced, closer = [], []
    for block, index, step in layouts:
        x, rest = _class(block, index)
        asked = np.arange(prod(block.shape[: len(PASSING)])) == x
        priced.append(screen.priced(block, asked)[x, *rest] / step.step_time)
        closer.append(screen.closer(block, index) / step.step_time)
    assert len(layouts) >= 10
    assert np.mean(priced) >= 0.95
    assert np.mean(closer) >= 0.98


@pytest.mark.parametrize(
    ("name", "stages", "chunks", "count"),
    [("1f1b", 4, 1, 2), ("1f1b", 4, 1, 16), ("gpipe", 4, 1, 6), ("zb-h1", 4, 1, 12), ("interleaved", 4, 2, 4),
     ("interleaved", 4, 3, 16), ("dualpipe", 4, 2, 16), ("dualpipe", 8, 2, 20), ("zb-h1", 4, 3, 8),
     ("zb-v", 4, 2, 12), ("zb-v", 4, 2, 3), ("zb-v", 8, 2, 10), ("dualpipe-v", 4, 2, 9)],
)  # fmt: skip
def test_passes_held_when_backward_begins(name: str, stages: int, chunks: int, count: int) -> None:
    """The closed form is one of the fullest moments of the schedule itself, or below one."""
    asked = {"1f1b": "auto", "interleaved": "auto"}.get(name, name)
    for stage, order in enumerate(schedule(stages, chunks, count, name)):
        held = held_first(asked, stages, chunks, stage, count)
        moments = held_sets(order, chunks)
        assert any(all(a <= b for a, b in zip(held, m, strict=True)) for m in moments), (stage, held, moments)


def _class(block: Block, index: tuple[int, ...]) -> tuple[int, tuple[int, int, int]]:
    """Which class of a block a layout is in, and where in what a class's bounds are for."""
    x = int(np.ravel_multi_index(index[: len(PASSING)], block.shape[: len(PASSING)]))
    zero, _, overlap_dp, overlap_pp = index[len(PASSING) :]
    return x, (zero, overlap_dp, overlap_pp)


@pytest.mark.parametrize(
    ("name", "chunks", "shape"),
    [("dualpipe", 2, "mirror"), ("dualpipe-v", 2, "fold"), ("zb-v", 2, "fold"), ("zb-h1", 3, "loop")],
)
@pytest.mark.parametrize(("stages", "count"), [(2, 4), (2, 18), (4, 8), (4, 32), (8, 16), (8, 40)])
def test_units_are_counted_without_making_the_schedule(
    name: str, chunks: int, shape: Shape, stages: int, count: int
) -> None:
    found = unit_counts(name, Route(stages, chunks, shape), count)
    for s, order in enumerate(schedule(stages, chunks, count, name)):
        for chunk in range(chunks):
            own = [sum(u.kind == kind and u.chunk == chunk for u in order) for kind in KINDS]
            assert found[s, chunk].tolist() == own
