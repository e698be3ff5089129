"""What the allocator holds for a job: its tensors are those that `memory.peak` adds up, and none leaks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import sqrt
from statistics import NormalDist

import pytest

from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer
from railwright.spec.lora import Lora, LoraTarget
from railwright.spec.training import Overlap, RecomputeModule
from railwright.training.checks.plan import check
from railwright.training.layers.stages import stage_shapes
from railwright.training.layout.schedule import order_name, route_of, schedule
from railwright.training.memory.activations import layer_kept
from railwright.training.memory.allocator import Requests, play
from railwright.training.memory.cached import _plans, cached
from railwright.training.memory.kernel_allocator import MIB
from railwright.training.memory.peak import SYSTEM, peak_memory
from railwright.training.memory.replay import Replay
from railwright.training.memory.replay_deepspeed import DeepSpeedReplay
from railwright.training.memory.tape import forward
from training_cases import DENSE, MOE, job, machine, wide

FABRIC = machine(4).network.fabric
CAPACITY = 80e9


LAYOUTS: list[tuple[Transformer, dict[str, object]]] = [
    (DENSE, {}),
    (DENSE, {"zero": 1}),
    (DENSE, {"zero": 3}),
    (DENSE, {"tensor": 4, "sequence_parallel": True}),
    (DENSE, {"tensor": 4, "zero": 1, "recompute": "full"}),
    (DENSE, {"pipeline": 4, "zero": 1}),
    (DENSE, {"pipeline": 4, "virtual_pipeline": 2}),
    (DENSE, {"pipeline": 4, "schedule": "zb-h1"}),
    (DENSE, {"pipeline": 4, "schedule": "zb-v"}),
    (DENSE, {"pipeline": 4, "schedule": "gpipe"}),
    (DENSE, {"pipeline": 4, "schedule": "gpipe", "recompute": "full"}),
    (DENSE, {"schedule": "gpipe", "recompute": "full"}),
    (DENSE, {"context": 2, "context_kind": "all-to-all"}),
    (DENSE, {"recompute": "selective", "recompute_modules": ("mlp",)}),
    (MOE, {"expert": 8, "zero": 1}),
    (MOE, {"expert": 4, "pipeline": 2, "recompute": "selective", "recompute_modules": ("moe_act",)}),
]
CASES = [(era, *one) for one in LAYOUTS for era in ("megatron-2025", "megatron-2022", "fsdp-2024")]
CASES += [
    ("megatron-2025", MOE, {"pipeline": 4, "schedule": name, "expert": 4})
    for name in ("dualpipe", "dualpipe-v")
]
CASES += [
    ("megatron-2025-unfused", arch, {"recompute": again, "pipeline": 2, **some})
    for arch, some in ((DENSE, {}), (MOE, {"expert": 8}))
    for again in ("none", "full")
]
CASES += [
    ("megatron-2025", DENSE, {"recompute": again, "pipeline": stages, "offload": ("activations",), **some})
    for again in ("none", "full")
    for stages in (1, 4)
    for some in ({}, {"offload_layers": 3})
]
# a forward and a backward pass together, each with a layer on its way
CASES += [
    (
        "megatron-2025",
        MOE,
        {"pipeline": 2, "schedule": "dualpipe-v", "expert": 4, "offload": ("activations",)},
    )
]


@pytest.mark.parametrize(
    ("software", "arch", "layout"),
    CASES,
    ids=lambda value: value.name if isinstance(value, Transformer) else str(value),
)
def test_tensors_at_their_most_are_what_memory_adds_up(
    software: str, arch: Transformer, layout: dict[str, object]
) -> None:
    """Two countings that share sizes only: sums of parts at four moments, and every tensor in its order."""
    wanted = wide(**layout).model_copy(update={"software": software})
    total = peak_memory(wanted, arch, FABRIC, CAPACITY)
    for stage in total.stages:
        found = cached(wanted, arch, FABRIC, stage.stage)
        assert found is not None
        assert found.allocated == pytest.approx(stage.total - stage.parts[SYSTEM], rel=0.02)
        assert found.allocated <= found.reserved <= 2 * found.allocated


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "mxfp8", "fp8_block", "nvfp4"])
@pytest.mark.parametrize(
    "modules", [(), ("core_attn",), ("mlp",), ("ops",), ("moe_act",), ("layernorm", "moe")]
)
def test_a_layer_holds_between_its_passes_what_is_added_up(
    modules: tuple[RecomputeModule, ...], dtype: str
) -> None:
    """By operators, attention's output is among it without the copy that the projection reads."""
    kinds: list[tuple[Transformer, Layer]] = [(DENSE, "dense"), (MOE, "moe")]
    for arch, kind in kinds if "ops" not in modules else kinds[:1]:
        wanted = wide(
            recompute="selective" if modules else "none", recompute_modules=modules or ("core_attn",)
        )
        wanted = wanted.model_copy(update={"dtype": dtype})
        asked = Requests()
        entry = asked.take(2 * 2 * 4096 * arch.hidden)
        done, _ = forward(asked, _plans(wanted, arch, kind)[0], entry)
        held = sum(asked.sizes[tensor] for tensor in done.held.values())
        assert held == pytest.approx(layer_kept(wanted, arch, kind), rel=0.01)


@pytest.mark.parametrize("targets", [("qkv",), ("attention output",), ("mlp up", "mlp down")])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(("arch", "near"), [(DENSE, 0.002), (MOE, 0.03)])
def test_inputs_of_frozen_products_are_neither_kept_nor_computed_again(
    targets: tuple[LoraTarget, ...], recompute: str, arch: Transformer, near: float
) -> None:
    # without a weight gradient nothing frees the second product's input beside the gradients around it
    wanted = wide(pipeline=2, recompute=recompute, expert=4 if arch.is_moe else 1)
    for dtype, rank, times in (("bf16", 8, 1), ("mxfp8", 8, 1), ("bf16", 512, 2)):
        one = wanted.model_copy(update={"lora": Lora(rank=rank, targets=targets), "dtype": dtype})
        total = peak_memory(one, arch, FABRIC, CAPACITY).stages[0]
        found = cached(one, arch, FABRIC, 0)
        assert found is not None
        assert found.allocated == pytest.approx(total.total - total.parts[SYSTEM], rel=times * near)


def test_frozen_weights_have_no_copy() -> None:
    """Only weights that train lie in a distributed optimizer's buffer."""
    wanted = wide(zero=1).model_copy(update={"lora": Lora(rank=8)})
    total = peak_memory(wanted, DENSE, FABRIC, CAPACITY)
    found = cached(wanted, DENSE, FABRIC, 0)
    assert found is not None
    assert found.allocated == pytest.approx(total.total - total.parts[SYSTEM], rel=0.03)
    replay = Replay(
        wanted,
        DENSE,
        stage_shapes(DENSE, wanted.layout, wanted.lora)[0],
        32,
        False,
        {("dense", True): _plans(wanted, DENSE, "dense")},
        Requests(),
    )
    replay.start()
    weights = replay.states["weights"]
    assert weights < play(replay.memory).most_allocated < 1.2 * weights


@pytest.mark.parametrize(
    ("dtype", "bytes_each"),
    # 16 bits twice; a cast and its transpose with the former again; two copies that stay; 16 bits alone twice
    [("bf16", 2 + 2), ("fp8", 2 + 1), ("mxfp8", 2 * (1 + 1 / 32)), ("fp8_block", 2 + 2), ("nvfp4", 2 + 2)],
)
def test_casts_of_weights_are_not_there_when_these_move_into_their_buffer(
    dtype: str, bytes_each: float
) -> None:
    """Weights, their buffer and gradients in fp32 are all there is at once before the first pass."""
    arch = replace(DENSE, vocab=64)
    wanted = wide(zero=1).model_copy(update={"dtype": dtype})
    shape = stage_shapes(arch, wanted.layout)[0]
    plans = {("dense", True): _plans(wanted, arch, "dense")}
    replay = Replay(wanted, arch, shape, 32, False, plans, Requests())
    start: list[int] = []
    grown = partial(play, expandable=True)
    replay.always = lambda: start.append(grown(replay.memory).most_allocated)  # type: ignore[method-assign]
    replay.start()
    each = max(bytes_each + 4, replay.states["weights"] / shape.dense_total + 4 + 4 / 32)
    assert start == [pytest.approx(each * shape.dense_total, rel=0.02)]
    held = sum(size for name, size in replay.states.items() if name in ("weights", "gradients"))
    assert grown(replay.memory).end.allocated == pytest.approx(held + 4 * shape.dense_total / 32, rel=0.02)


AWAY = {"offload": ("optimizer",)}
FEW = {"zero": 1, "recompute": "full"}
"""States of 32 ranks and next to no activations: a job is fullest before its first step."""
LARGE = {"layers": 16, "hidden": 4096, "ffn": 16384, "vocab": 64}
LARGE_DENSE, LARGE_MOE = replace(DENSE, **LARGE), replace(MOE, expert_ffn=8192, **LARGE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "arch", "layout", "each"),
    [
        # bytes per parameter: made, in the buffer, gradient
        ("bf16", LARGE_DENSE, {}, 2 + 2 + 4),
        # one chunk after the other: only the last one's weights are there twice beside all gradients
        ("bf16", LARGE_DENSE, {"pipeline": 2, "virtual_pipeline": 2, **AWAY}, 2 + 4 + 2 / 2),
        # a cast and its transpose; the buffer has the former again
        ("fp8", LARGE_DENSE, {}, 2 + 1 + 4),
        # experts have a buffer of their own, where they are cut otherwise than the rest
        ("bf16", LARGE_MOE, {"tensor": 2, "expert_tensor": 2}, 2 + 2 + 4),
    ],
)
def test_weights_that_move_are_there_twice_beside_their_gradients(
    dtype: str, arch: Transformer, layout: dict[str, object], each: float
) -> None:
    wanted = job(gpus=32, sequence=256, batch=128, **{**FEW, **layout}).model_copy(update={"dtype": dtype})
    stage = peak_memory(wanted, arch, FABRIC, CAPACITY).stages[0]
    held = stage_shapes(arch, wanted.layout)[0]
    assert stage.moment == "the start"
    tensors = stage.total - stage.parts[SYSTEM]
    assert tensors == pytest.approx(each * (held.dense_total + held.expert_total), rel=0.02)
    found = cached(wanted, arch, FABRIC, 0)
    assert found is not None
    assert found.allocated == pytest.approx(tensors, rel=0.02)


def test_experts_move_behind_the_rest() -> None:
    wanted = job(gpus=32, sequence=256, batch=128, expert=4, **FEW)
    stage = peak_memory(wanted, LARGE_MOE, FABRIC, CAPACITY).stages[0]
    held = stage_shapes(LARGE_MOE, wanted.layout)[0]
    assert stage.moment == "the start"
    tensors = stage.total - stage.parts[SYSTEM]
    assert tensors == pytest.approx(6 * (held.dense_total + held.expert_total) + 2 * held.expert_total)
    found = cached(wanted, LARGE_MOE, FABRIC, 0)
    assert found is not None
    assert found.allocated == pytest.approx(tensors, rel=0.02)


@pytest.mark.parametrize(
    ("software", "layout"),
    [
        ("megatron-2022", {}),
        ("megatron-2025", {"zero": 0}),
        ("megatron-2025", {"zero": 2}),
        ("fsdp-2024", {}),
    ],
)
def test_other_software_moves_no_weights(software: str, layout: dict[str, object]) -> None:
    """Megatron-LM of 2022 gathers weights in the buffer of their gradients."""
    wanted = job(gpus=32, sequence=256, batch=128, **{**FEW, **layout}).model_copy(
        update={"software": software}
    )
    stage = peak_memory(wanted, LARGE_DENSE, FABRIC, CAPACITY).stages[0]
    assert stage.moment != "the start"
    found = cached(wanted, LARGE_DENSE, FABRIC, 0)
    assert found is not None
    assert found.allocated == pytest.approx(stage.total - stage.parts[SYSTEM], rel=0.03)


@pytest.mark.parametrize("unfused", [(), ("norm",)])
def test_an_mlp_that_is_a_layer_keeps_its_input_once(unfused: tuple[str, ...]) -> None:
    """Where a norm runs operation by operation too, and its copies are made again."""
    arch = replace(DENSE, pattern=("attention", "mlp") * 4)
    wanted = wide(recompute="selective", recompute_modules=("mlp",))
    wanted = wanted.model_copy(update={"unfused": unfused})
    total = peak_memory(wanted, arch, FABRIC, CAPACITY)
    found = cached(wanted, arch, FABRIC, 0)
    assert found is not None
    assert found.allocated == pytest.approx(total.total - total.parts[SYSTEM], rel=0.02)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("pipeline", [1, 4])
@pytest.mark.parametrize("software", ["megatron-2025", "megatron-2021"])
def test_a_step_leaves_nothing_behind_but_the_optimizers_moments(
    software: str, pipeline: int, dtype: str
) -> None:
    wanted = wide(pipeline=pipeline, tensor=2, zero=1).model_copy(
        update={"software": software, "dtype": dtype}
    )
    layout = wanted.layout
    order = schedule(pipeline, route_of(layout).chunks, 12, order_name(wanted))[0]
    shape = stage_shapes(DENSE, layout)[0]
    kind: Layer = "dense"
    replay = (DeepSpeedReplay if software == "megatron-2021" else Replay)(
        wanted, DENSE, shape, 4, False, {(kind, True): _plans(wanted, DENSE, kind)}, Requests()
    )
    replay.start()
    for step in range(3):
        for unit in order:
            replay.run(unit)
        assert not replay.flights
        replay.update(step)
        replay.memory.mark()
    *held, _ = (moment.allocated for moment in play(replay.memory).moments)
    # a block keeps up to 1 MiB that it is not worth splitting off
    assert held == pytest.approx([held[0]] * 3, abs=len(replay.weights) * MIB)


@pytest.mark.parametrize("layers", [None, 6])
@pytest.mark.parametrize("again", ["none", "full"])
def test_passes_that_take_turns_have_a_layer_each_on_its_way(again: str, layers: int | None) -> None:
    wanted = wide(expert=4, offload=("activations",), offload_layers=layers, recompute=again)
    wanted = wanted.model_copy(update={"overlap": Overlap(ep=True)})
    total = peak_memory(wanted, MOE, FABRIC, CAPACITY)
    found = cached(wanted, MOE, FABRIC, 0)
    assert found is not None
    assert found.allocated == pytest.approx(total.total - total.parts[SYSTEM], rel=0.02)


def test_a_forward_pass_beside_a_backward_one_holds_one_more_layer() -> None:
    wanted = wide(expert=4)
    beside = wanted.model_copy(update={"overlap": Overlap(ep=True)})
    assert order_name(beside) == "paired"
    totals = [peak_memory(one, MOE, FABRIC, CAPACITY) for one in (wanted, beside)]
    for one, total in zip((wanted, beside), totals, strict=True):
        found = cached(one, MOE, FABRIC, 0)
        assert found is not None
        assert found.allocated == pytest.approx(total.total - total.parts[SYSTEM], rel=0.02)
    layer = layer_kept(wanted, MOE, "moe")
    assert 0 <= totals[1].total - totals[0].total <= layer


@pytest.mark.parametrize("hidden", [False, True])
def test_a_wide_embeddings_gradient_comes_beside_what_is_held_then(hidden: bool) -> None:
    arch = replace(MOE, vocab=2_000_000)
    wanted = wide(expert=8, pipeline=2, virtual_pipeline=2)
    wanted = wanted.model_copy(update={"overlap": Overlap(ep=hidden)})
    stage = peak_memory(wanted, arch, FABRIC, CAPACITY).stages[0]
    assert stage.moment == "embedding backward"
    found = cached(wanted, arch, FABRIC, 0)
    assert found is not None
    assert found.allocated == pytest.approx(stage.total - stage.parts[SYSTEM], rel=0.01)


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "mxfp8"])
def test_a_layer_of_narrow_experts_is_fullest_where_rows_are_sorted_again(dtype: str) -> None:
    arch = replace(MOE, expert_ffn=512, vocab=64)
    wanted = wide(tensor=4, expert=4, sequence_parallel=True).model_copy(update={"dtype": dtype})
    stage = peak_memory(wanted, arch, FABRIC, CAPACITY).stages[0]
    assert stage.moment == "a layer backward"
    found = cached(wanted, arch, FABRIC, 0)
    assert found is not None
    assert found.allocated == pytest.approx(stage.total - stage.parts[SYSTEM], rel=0.01)


def test_segments_that_grow_hold_less_in_holes() -> None:
    wanted = wide(zero=1)
    plain = cached(wanted, DENSE, FABRIC, 0, expandable=False)
    growing = cached(wanted, DENSE, FABRIC, 0, expandable=True)
    assert plain is not None
    assert growing is not None
    assert growing.reserved - growing.allocated < plain.reserved - plain.allocated


@pytest.mark.parametrize("inside", [1, 2, 4])
def test_rows_of_experts_vary_as_much_as_those_that_are_routed_to_them(inside: int) -> None:
    # 2 ranks of `inside` tensor ranks each, of which one routes 1/4 of 2 x 4096 tokens to 2 experts: binomial
    wanted = wide(tensor=4, expert=2, expert_tensor=inside, sequence_parallel=True)
    made = [
        sum(op.makes.get("expert input", 0.0) for op in plan.tensors.operators)
        for plan in _plans(wanted, MOE, "moe")
    ]
    rows = 2 * inside * (2 * 4096 / 4) * 2
    most = NormalDist(1.0, sqrt((2 - 1) / rows)).inv_cdf(13 / 14)
    assert max(made) / (sum(made) / len(made)) == pytest.approx(most, rel=1e-9)


@pytest.mark.parametrize("layout", [{"pipeline": 4, "virtual_pipeline": 2}, {"pipeline": 4}])
def test_a_piece_without_layers_frees_its_gradient_once(layout: dict[str, int]) -> None:
    """Six layers over eight pieces, embedding and head on the outer ones; DeepSpeed's engine of 2021."""
    six = replace(DENSE, layers=6)
    one = job(batch=64, **layout).model_copy(update={"software": "megatron-2021"})  # type: ignore[arg-type]
    fabric = machine(4).network.fabric
    check(one, six, fabric)
    stages = peak_memory(one, six, fabric, 80e9).stages
    for stage in stages:
        held = cached(one, six, fabric, stage.stage)
        assert held is not None
        assert held.reserved >= 0.9 * (stage.total - stage.parts[SYSTEM])
