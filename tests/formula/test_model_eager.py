"""Small kernels fused or one by one: what they move, what they launch, what the host pays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model import Cut, head_operators, layer_operators, load_model
from railwright.model.operators.eager import (
    BIASED,
    EAGER_CHOICE,
    FUSED_CHOICE,
    GROUPED,
    LATENT_JOINS,
    TURN_LAUNCHES,
    Rotation,
    turning,
)
from railwright.model.shape.architecture import Operator
from railwright.spec.training import TrainingJob
from railwright.training.layers.operators import operators_of, unfused_of
from railwright.training.software.constants import constant
from railwright.training.software.host import launch_times
from training_cases import machine

V3, V2, LLAMA, QWEN = (
    load_model(name) for name in ("deepseek-v3", "deepseek-v2", "llama-3-8b", "qwen3-30b-a3b")
)
ROWS = 4096
H100 = machine().gpu


def named(operators: tuple[Operator, ...], name: str) -> Operator:
    return next(op for op in operators if op.name == name)


def rotary(model: object, **how: object) -> tuple[Operator, Operator]:
    layer = layer_operators(model, "dense", ROWS, ROWS, Cut(**how))  # type: ignore[arg-type]
    return named(layer.forward, "rotary"), named(layer.backward_input, "rotary, backward")


def test_a_fused_rotation_reads_and_writes_queries_and_keys_once() -> None:
    forward, backward = rotary(LLAMA)
    turned = (32 + 8) * 128
    assert forward.bytes == 2 * ROWS * 2 * turned == backward.bytes
    assert (forward.launches, backward.launches) == (1, 1)


def test_latent_attention_turns_queries_in_place_and_writes_keys_and_values_apart() -> None:
    # 128 heads: 64 turned of a query's 192, keys of 128 and values of 128 out of their joint projection, and
    # the one turned key part written into every head's key
    forward, backward = rotary(V3)
    turned, plain, shared = 128 * 64 + 64, 128 * (128 + 128), 128 * 64
    assert forward.bytes == 2 * ROWS * (turned + plain + turned + plain + shared)
    assert backward.bytes == 2 * ROWS * (2 * turned + 2 * plain + shared)
    assert (forward.launches, backward.launches) == (2, 2)


@pytest.mark.parametrize("rotation", ["megatron", "halves", "complex"])
@pytest.mark.parametrize("model", [LLAMA, V3])
def test_rotation_in_eager_pytorch_moves_more_in_many_kernels(model: object, rotation: Rotation) -> None:
    fused, eager = rotary(model), rotary(model, unfused=("rotary",), rotation=rotation)
    joins, turns = (LATENT_JOINS if model is V3 else (0, 0)), TURN_LAUNCHES[turning(rotation, model is V3)]
    for one, other, turn, join in zip(fused, eager, turns, joins, strict=True):
        assert other.launches == 2 * turn + join
        assert other.bytes > 2 * one.bytes


def test_complex_rotations_copy_keys_and_values_to_all_heads() -> None:
    """8 heads of keys and values for 32 of queries, 128 wide: once read and four times written; backward so
    many gradients are summed up.  They are computed again with what follows them."""
    cut = Cut(unfused=("rotary",), rotation="complex")
    layer = layer_operators(LLAMA, "dense", ROWS, ROWS, cut, modules=("ops",))
    moved = ROWS * 2 * (8 + 32) * 128 * 2
    assert named(layer.forward, "key/value copies").bytes == moved
    assert named(layer.recomputed, "key/value copies").bytes == moved
    assert named(layer.backward_input, "key/value copies, backward").bytes == moved
    for other in (Cut(unfused=("rotary",)), Cut(rotation="complex")):
        plain = layer_operators(LLAMA, "dense", ROWS, ROWS, other)
        assert "key/value copies" not in {op.name for op in plain.forward}


def test_the_choice_of_experts_launches_more_by_groups_and_with_a_bias() -> None:
    counts = {}
    for model in (QWEN, V2, V3):
        for unfused in ((), ("router",)):
            layer = layer_operators(model, "moe", ROWS, ROWS, Cut(unfused=unfused))  # type: ignore[arg-type]
            counts[model.name, unfused] = named(layer.forward, "expert choice").launches
    assert {counts[m.name, ()] for m in (QWEN, V2, V3)} == {FUSED_CHOICE[0]}
    assert counts[QWEN.name, ("router",)] == EAGER_CHOICE[0]
    assert counts[V2.name, ("router",)] == EAGER_CHOICE[0] + GROUPED[0]
    assert counts[V3.name, ("router",)] == EAGER_CHOICE[0] + GROUPED[0] + BIASED[0]


def test_what_is_not_fused_changes_nothing_else() -> None:
    plain, eager = (
        layer_operators(V3, "moe", ROWS, ROWS, Cut(unfused=u)) for u in ((), ("rotary", "router"))
    )
    changed = {a.name for a, b in zip(plain.forward, eager.forward, strict=True) if a != b}
    assert changed == {"rotary", "expert choice"}
    assert plain.backward_weight == eager.backward_weight


def test_passes_over_the_logits() -> None:
    # Transformer Engine reads twice and writes once; Megatron's eager loss casts (1 + 2), takes the maximum
    # (2), subtracts (4), exponentiates (4), sums (2) and divides (4), backward multiplies (4) and casts (3)
    moved = {}
    for loss in ("fused", "eager"):
        head = head_operators(LLAMA, ROWS, loss=loss)  # type: ignore[arg-type]
        there = named(head.forward, "softmax and loss").bytes
        back = named(head.backward_input, "softmax and loss, backward").bytes
        moved[loss] = (there / (2 * ROWS * 128256), back / (2 * ROWS * 128256))
    assert moved == {"fused": (3, 2), "eager": (1 + 2 + 2 + 4 + 4 + 2 + 4, 4 + 3)}


def test_the_host_pays_one_operation_for_each_eager_kernel_and_its_factor_for_the_call() -> None:
    operation = constant("host_operation_seconds")
    fused, eager = (
        launch_times(layer_operators(LLAMA, "dense", ROWS, ROWS, Cut(unfused=u)), H100, factor=6.0)
        for u in ((), ("rotary",))
    )
    assert eager.forward - fused.forward == pytest.approx((2 * TURN_LAUNCHES["megatron"][0] - 1) * operation)
    assert eager.backward - fused.backward == pytest.approx(
        (2 * TURN_LAUNCHES["megatron"][1] - 1) * operation
    )


def test_with_a_capacity_tokens_are_chosen_where_they_would_be_counted() -> None:
    wanted = TrainingJob(
        name="v3", model="deepseek-v3", gpus=64, sequence=ROWS, global_batch=64, tokens=1e9, dtype="bf16"
    )
    dropless, dropping = (
        named(operators_of(wanted.model_copy(update=how), V3, "moe", H100).forward, "expert counts")
        for how in ({}, {"expert_capacity": 1.0})
    )
    assert dropping.launches < dropless.launches
    assert dropping.bytes > dropless.bytes


def test_megatron_turns_yarns_queries_with_kernels_that_are_not_fused() -> None:
    asked = TrainingJob(name="x", model="x", gpus=64, sequence=ROWS, global_batch=64, tokens=1e9)
    scaled = load_model("gpt-oss-120b")
    assert scaled.yarn
    assert not LLAMA.yarn
    assert unfused_of(asked, scaled) == ("rotary",)
    assert unfused_of(asked.model_copy(update={"unfused": ("rotary", "router")}), scaled) == (
        "rotary",
        "router",
    )
    assert unfused_of(asked, LLAMA) == ()
    # latent attention has a kernel for it; torch.compile fuses what it is given
    assert unfused_of(asked, replace(V3, yarn=True)) == ()
    assert unfused_of(asked.model_copy(update={"software": "fsdp-2024"}), scaled) == ()
    eager = named(operators_of(asked, scaled, "moe", H100).forward, "rotary")
    assert (
        eager.launches
        > named(operators_of(asked, replace(scaled, yarn=False), "moe", H100).forward, "rotary").launches
    )


def test_models_without_rotary_positions_have_nothing_to_fuse() -> None:
    bare = replace(LLAMA, position_embeddings=2048)
    names = [op.name for op in layer_operators(bare, "dense", ROWS, ROWS, Cut(unfused=("rotary",))).forward]
    assert "rotary" not in names


@pytest.mark.parametrize("name", ["nemotron-4-15b", "nemotron-h-56b", "nemotron-3-nano-30b-a3b"])
def test_a_squared_relu_is_two_kernels_forward_and_four_backward(name: str) -> None:
    """relu and its square; x, twice x, times the gradient, and ReLU's: 4 and 10 passes over the elements."""
    model = load_model(name)
    assert model.details.activation == "relu2"
    kind = "mlp" if name == "nemotron-h-56b" else "experts" if "nano" in name else "dense"

    def kernels(*unfused: str) -> tuple[Operator, Operator]:
        layer = layer_operators(model, kind, ROWS, ROWS, Cut(unfused=unfused))  # type: ignore[arg-type]
        return tuple(
            next(op for op in operators if "activation" in op.name)
            for operators in (layer.forward, layer.backward_input)
        )  # type: ignore[return-value]

    fused, eager = kernels(), kernels("activation")
    assert [op.launches for op in fused] == [1, 1]
    assert [op.launches for op in eager] == [2, 4]
    assert eager[0].bytes == 2 * fused[0].bytes
    assert eager[1].bytes == pytest.approx(10 / 3 * fused[1].bytes)


def test_a_gelu_without_a_gate_is_one_kernel_anyway() -> None:
    plain = replace(LLAMA, gated=False)
    one, other = (
        layer_operators(plain, "dense", ROWS, ROWS, Cut(unfused=how)) for how in ((), ("activation",))
    )
    assert one == other
