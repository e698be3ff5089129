"""Linear mixers by hand: parameters, FLOPs, bytes and what is kept of one layer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import load_catalog
from railwright.compute import kernel_time
from railwright.model import (
    Cut,
    count_parameters,
    layer_activations,
    layer_operators,
    layer_parameters,
    load_model,
)
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.mixers import projected
from railwright.training.software.host import launch_times
from training_cases import KIMI

NEMOTRON, QWEN = load_model("nemotron-h-56b"), load_model("qwen3-next-80b")


def named(operators: tuple[Operator, ...]) -> dict[str, Operator]:
    return {op.name: op for op in operators}


def test_parameters_of_a_mamba_layer() -> None:
    """z and x of 256 x 64, B and C of 8 x 256 each, a step per head: 37,120 columns of 8,192; the product
    behind; a convolution of 4 with biases over x, B, C; A, D and the step's bias; gains."""
    h, inner, states, heads = 8192, 16384, 8 * 256, 256
    columns = 2 * inner + 2 * states + heads
    assert projected(NEMOTRON.linear) == columns == 37_120  # type: ignore[arg-type]
    own = h * columns + inner * h + 5 * (inner + 2 * states) + 3 * heads + inner
    assert count_parameters(NEMOTRON).linear == own
    # eight tensor ranks cut all of it but the norm of the layer
    assert layer_parameters(NEMOTRON, "linear", Cut(tp=8)).dense == own / 8 + h


def test_parameters_of_a_gated_delta_net() -> None:
    """Qwen3-Next: 32 heads of values, 16 of keys, all 128 wide; one norm's gains for all heads."""
    h, values, keys = 2048, 4096, 2048
    own = h * (2 * values + 2 * keys + 64) + values * h + 4 * (values + 2 * keys) + 2 * 32 + 128
    assert count_parameters(QWEN).linear == own


def test_flops_of_mambas_chunks() -> None:
    """Per token and head of 64, states of 256, chunks of 128: 2*64*256 for what a chunk adds, the same for C
    times the state, 2*64*128/2 inside the chunk; and 2*128*256 for B times C of a group of 32 heads."""
    rows = 8192
    ops = named(layer_operators(NEMOTRON, "linear", rows, rows).forward)
    assert ops["mixer chunk states"].flops == rows * 256 * 2 * 64 * 256
    assert ops["mixer chunk scan"].flops == rows * 256 * (2 * 64 * 256 + 2 * 64 * 64)
    assert ops["mixer chunk products"].flops == rows * 8 * 2 * 128 * 256
    # new states in fp32, one of 64 x 256 for every head and chunk, beside x and B in 16 bits and two fp32 per
    # head
    states = rows / 128 * 256 * 64 * 256
    read = rows * (2 * (16384 + 2048) + 8 * 256)
    assert ops["mixer chunk states"].bytes == read + 4 * states
    assert ops["mixer state passing"].bytes == 6 * states


def test_the_backward_pass_of_mamba_computes_states_and_squares_again() -> None:
    ops = layer_operators(NEMOTRON, "linear", 8192, 8192)
    again = [op.name for op in ops.backward_input if op.name.endswith(", again")]
    assert again == [
        "mixer chunk products, again",
        "mixer state passing, again",
        "mixer chunk states, again",
        "mixer decays, again",
        "mixer convolution, again",
    ]
    forward = sum(op.flops for op in ops.forward if op.kind == "scan")
    back = sum(op.flops for op in ops.backward_input if op.kind == "scan")
    # five products with states against two, three inside chunks against one, and B C three times
    assert back / forward == pytest.approx(2.6, abs=0.2)


def test_states_of_a_delta_net_pass_from_chunk_to_chunk() -> None:
    """2,048 tokens in chunks of 64 are 32 rounds of one product per head and sequence."""
    ops = named(layer_operators(QWEN, "linear moe", 3 * 2048, 2048).forward)
    passing = ops["mixer state passing"]
    assert (passing.steps, passing.batch) == (32, 3 * 32)
    assert passing.flops == 3 * 2048 * 32 * 2 * (2 * 128 * 128)
    gpu = load_catalog().gpus["h100-sxm"]
    # four heads of one sequence are too few blocks for a GPU, and the rounds are as many as for all heads
    one, cut = (
        named(layer_operators(QWEN, "linear moe", 8192, 8192, Cut(tp=tp)).forward)["mixer state passing"]
        for tp in (1, 8)
    )
    assert cut.steps == one.steps == 128
    assert kernel_time(cut, gpu) > 1.5 * kernel_time(one, gpu) / 8


def test_what_a_mamba_layer_keeps() -> None:
    """Its norm's input and output, the projected row, the scan's output, the input of the product behind."""
    kept = layer_activations(NEMOTRON, "linear", 1024, 8192, Cut(tp=8, sequence_parallel=True))
    assert {name: size / 1024 for name, size in kept.items()} == {
        "mixer norm input": 2 * 8192 / 8,
        "mixer norm output": 2 * 8192 / 8,
        "mixer projected": 2 * 37_120 / 8,
        "mixer scanned": 2 * 16384 / 8,
        "mixer output": 2 * 16384 / 8,
    }
    narrow = layer_activations(NEMOTRON, "linear", 1024, 8192, Cut(tp=8, sequence_parallel=True), dtype="fp8")
    assert narrow["mixer output"] == kept["mixer output"] / 2
    assert narrow["mixer projected"] == kept["mixer projected"]


def test_selective_recomputation_leaves_mixers_alone() -> None:
    """Megatron-LM recomputes `core_attn` of attention only."""
    for modules in (("core_attn",), ("core_attn", "layernorm", "mlp", "moe")):
        ops = layer_operators(NEMOTRON, "linear", 1024, 1024, modules=modules)
        assert ops.recomputed == ()
        plain, again = (
            layer_activations(NEMOTRON, "linear", 1024, 1024, recompute=how, modules=modules)
            for how in ("none", "selective")
        )
        assert plain == again


def test_a_layer_of_one_block_is_half_of_one_of_two() -> None:
    """Operators and parameters of attention and of an MLP alone add up to those of a layer of both."""
    plain = replace(NEMOTRON, pattern=(), linear=None)
    both, attention, mlp = (
        layer_operators(a, k, 1024, 1024)  # type: ignore[arg-type]
        for a, k in ((plain, "dense"), (NEMOTRON, "attention"), (NEMOTRON, "mlp"))
    )
    assert attention.forward + mlp.forward == both.forward
    assert mlp.backward_input + attention.backward_input == both.backward_input
    one, two, three = (
        layer_parameters(a, k).total  # type: ignore[arg-type]
        for a, k in ((NEMOTRON, "attention"), (NEMOTRON, "mlp"), (plain, "dense"))
    )
    assert one + two == three


@pytest.mark.parametrize(
    ("arch", "forward", "backward"),
    [(NEMOTRON, (7, 6), (31, 15)), (QWEN, (16, 7), (22, 9)), (KIMI, (10, 8), (17, 12))],
    ids=["mamba2", "gated delta net", "KDA"],
)
def test_kernels_of_a_scan_are_launched_one_by_one(
    arch: Transformer, forward: tuple[int, int], backward: tuple[int, int]
) -> None:
    """Launches between a mixer's two products, and how many of them Triton's autotuner makes: of mamba_ssm
    2.2.4 as many as a run of its function makes with a driver that does nothing."""
    ends = ("mixer norm", "mixer projection", "mixer output", "mixer residual", "mixer gates")
    ops = layer_operators(arch, "linear" if arch is NEMOTRON else "linear moe", 1024, 1024)
    for found, counts in ((ops.forward, forward), (ops.backward_input, backward)):
        inner = [op for op in found if op.name.startswith("mixer") and not op.name.startswith(ends)]
        assert (sum(op.launches for op in inner), sum(op.tuned for op in inner)) == counts


def test_triton_s_kernels_take_what_their_autotuner_takes_whatever_the_software() -> None:
    """An era's factor stands for Python around a call; these are launched inside one."""
    gpu = load_catalog().gpus["h100-sxm"]
    ops = layer_operators(NEMOTRON, "linear", 1024, 1024)
    # norm, residual and convolution 13.5 us each, two modules 36 us each; six kernels 46.5 us each
    for factor in (1.0, 5.0):
        whole = launch_times(ops, gpu, factor).forward
        assert whole == pytest.approx(factor * (3 * 13.5e-6 + 2 * 36e-6) + 6 * 46.5e-6, rel=1e-9)
    compiled = launch_times(ops, gpu, launcher="inductor").forward
    assert compiled == pytest.approx(24e-6 + 5 * 9e-6 + 6 * 46.5e-6, rel=1e-9)
