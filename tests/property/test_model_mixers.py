"""Laws of linear mixers that hold for every way of cutting them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.model import (
    Cut,
    Transformer,
    count_parameters,
    flops_per_token,
    head_operators,
    layer_activations,
    layer_operators,
    layer_parameters,
)
from railwright.model.shape.architecture import LinearMixer
from railwright.model.shape.mixers import state_flops
from railwright.model.shape.pattern import PARTS, layer_kinds, num_layers
from railwright.model.tensors.layer import layer_tensors
from railwright.training.layers.costs import costs
from training_cases import BLOCKS, DELTA, KIMI, LIGHTNING, MIXED

POWERS = (1, 2, 4, 8)


@st.composite
def hybrids(draw: st.DrawFn) -> Transformer:
    """Every kind of layer, with mixers of every kind whose heads divide by 8."""
    arch = draw(st.sampled_from([BLOCKS, DELTA, MIXED]))
    keys = draw(st.sampled_from((8, 16)))
    mixer = LinearMixer(
        draw(st.sampled_from(("mamba2", "gated_deltanet"))),
        heads=keys * draw(st.sampled_from((1, 2))),
        value_dim=draw(st.sampled_from((16, 64))),
        key_heads=keys,
        key_dim=draw(st.sampled_from((32, 128))),
        conv=4,
        conv_bias=draw(st.booleans()),
        chunk=draw(st.sampled_from((64, 128))),
    )
    return replace(arch, linear=mixer, kv_heads=8, experts=arch.experts and 16)


def products(operators: object, scans: bool) -> float:
    """FLOPs of products of libraries, or of kernels that work in chunks."""
    return sum(op.flops for op in operators if (op.kind == "scan") == scans and op.kind != "memory")  # type: ignore[attr-defined]


@settings(max_examples=40)
@given(hybrids(), st.sampled_from(POWERS), st.sampled_from((1, 4)))
def test_products_of_all_gpus_add_up_to_the_closed_form(arch: Transformer, tp: int, ep: int) -> None:
    """The products beside states are flops_per_token less what it counts for states."""
    sequence = rows = 512
    head = head_operators(replace(arch, vocab=32768), rows)
    forward = products(head.forward, False)
    for layer in layer_kinds(arch):
        ops = layer_operators(arch, layer, rows, sequence, Cut(tp=tp, sequence_parallel=True, ep=ep))
        forward += tp * products(ops.forward, False)
    assert arch.linear is not None
    states = state_flops(arch.linear) * num_layers(arch, mixer="linear")
    closed = flops_per_token(replace(arch, vocab=32768), sequence, "causal").forward - states
    assert forward == pytest.approx(rows * closed, rel=1e-9)


@pytest.mark.parametrize("arch", [KIMI, LIGHTNING])
def test_products_of_linear_attention_are_the_closed_form(arch: Transformer) -> None:
    test_products_of_all_gpus_add_up_to_the_closed_form.hypothesis.inner_test(arch, 1, 1)  # type: ignore[attr-defined]
    test_layers_of_one_gpu_add_up_to_the_model.hypothesis.inner_test(arch, 1)  # type: ignore[attr-defined]
    test_every_gradient_belongs_to_a_forward_kernel.hypothesis.inner_test(arch, 3)  # type: ignore[attr-defined]
    for dtype in ("bf16", "fp8"):
        test_what_is_kept_is_what_the_tensors_keep.hypothesis.inner_test(arch, 1, False, dtype)  # type: ignore[attr-defined]


@settings(max_examples=40)
@given(hybrids(), st.sampled_from(POWERS))
def test_states_cost_the_same_however_heads_are_cut(arch: Transformer, tp: int) -> None:
    one, cut = (layer_operators(arch, "linear", 512, 512, Cut(tp=t)) for t in (1, tp))
    for part in ("forward", "backward_input"):
        whole, parts = products(getattr(one, part), True), products(getattr(cut, part), True)
        assert tp * parts == pytest.approx(whole, rel=1e-9)
    # and the bytes: nothing of a state is replicated
    moved = [sum(op.bytes for op in ops.forward if op.kind == "scan") for ops in (one, cut)]
    assert tp * moved[1] == pytest.approx(moved[0], rel=1e-9)


@settings(max_examples=40)
@given(hybrids(), st.sampled_from(POWERS))
def test_layers_of_one_gpu_add_up_to_the_model(arch: Transformer, tp: int) -> None:
    count = count_parameters(arch)
    whole = sum(layer_parameters(arch, layer).total for layer in layer_kinds(arch))
    assert whole + count.embedding + count.head + arch.hidden == count.total
    for layer in dict.fromkeys(layer_kinds(arch)):
        one, cut = (layer_parameters(arch, layer, Cut(tp=t)) for t in (1, tp))
        assert one.dense / tp <= cut.dense * (1 + 1e-12) <= one.dense * (1 + 1e-9)


@settings(max_examples=40)
@given(hybrids(), st.sampled_from((1, 2, 4)), st.booleans(), st.sampled_from(("bf16", "fp8")))
def test_what_is_kept_is_what_the_tensors_keep(arch: Transformer, tp: int, spread: bool, dtype: str) -> None:
    """Every kept tensor is one that some operator of the layer keeps, and the other way round."""
    for layer in dict.fromkeys(layer_kinds(arch)):
        kept = layer_activations(arch, layer, 512, 512, Cut(tp=tp, sequence_parallel=spread), dtype=dtype)
        tensors = layer_tensors(arch, layer, 512, 512, kept, Cut(tp=tp, sequence_parallel=spread))
        named = {tensors.groups.get(t, t) for op in tensors.operators for t in op.keeps}
        assert set(kept) == named, layer


@given(hybrids(), st.sampled_from((1, 3)))
def test_every_gradient_belongs_to_a_forward_kernel(arch: Transformer, sequences: int) -> None:
    for layer in dict.fromkeys(layer_kinds(arch)):
        ops = layer_operators(arch, layer, 256 * sequences, 256)
        found = costs(ops, lambda op: op.flops + op.bytes)
        total = sum(c.forward + c.input + c.weight for c in found)
        every = (*ops.forward, *ops.backward_input, *ops.backward_weight)
        assert total == pytest.approx(sum(op.flops + op.bytes for op in every))
        assert bool(PARTS[layer].mixer == "linear") == any(op.kind == "scan" for op in ops.forward)
