"""Norms and gated activations one kernel per operation: what they move, launch and keep, what the host pays,
and where they are fused all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model import (
    Cut,
    head_activation_bytes,
    head_operators,
    layer_activations,
    layer_operators,
    load_model,
)
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.pattern import Layer
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.checks.doubts import doubts
from railwright.training.layers.operators import head_of, operators_of
from railwright.training.memory.activations import layer_kept
from railwright.training.memory.cached import cached
from railwright.training.memory.peak import peak_memory
from railwright.training.software.constants import constant
from railwright.training.software.eras import eager_parts
from railwright.training.software.host import launch_times
from training_cases import machine

LLAMA, GPT, QWEN, V3 = (load_model(n) for n in ("llama-3-8b", "gpt-3-175b", "qwen3-30b-a3b", "deepseek-v3"))
ROWS = 4096
BOTH = ("norm", "activation")
JOB = TrainingJob(
    name="x", model="llama-3-8b", gpus=8, sequence=ROWS, global_batch=8, tokens=1e9, software="fsdp-2023"
)


def passes(
    arch: Transformer, name: str, unfused: tuple[str, ...], layer: Layer = "dense"
) -> tuple[Operator, Operator]:
    """A part of a layer, forward and backward."""
    found = layer_operators(arch, layer, ROWS, ROWS, Cut(unfused=unfused))  # type: ignore[arg-type]
    every = {op.name: op for op in (*found.forward, *found.backward_input)}
    return every[name], every[f"{name}, backward"]


def kept(arch: Transformer, layer: Layer, unfused: tuple[str, ...] = BOTH, **how: object) -> dict[str, float]:
    """Bytes per row."""
    return layer_activations(arch, layer, 1, ROWS, Cut(unfused=unfused), **how)  # type: ignore[arg-type]


def test_a_fused_norm_reads_and_writes_hidden_states_once_and_backward_three_times() -> None:
    forward, backward = passes(LLAMA, "mlp norm", ())
    assert (forward.bytes, backward.bytes) == (2 * ROWS * 2 * 4096, 2 * ROWS * 3 * 4096)
    assert (forward.launches, backward.launches) == (1, 1)


@pytest.mark.parametrize("name", ["input norm", "mlp norm"])
def test_an_rms_norm_of_eager_pytorch_moves_hidden_states_18_and_46_times_in_8_and_16_kernels(
    name: str,
) -> None:
    # forward: casts 1 + 2 and 2 + 1, square 2 + 2, mean 2, product 2 + 2, gains 1 + 1
    assert (1 + 2) + (2 + 1) + (2 + 2) + 2 + (2 + 2) + (1 + 1) == 18
    # backward: the norm's factor 1 + 1, gains 1 + 1 + 1 and their sum 1, casts 1 + 2 and 2 + 1, the product's
    # gradients 2 + 2 + 2 and 2 + 2, a sum 2, the mean's spread 2, the square's 4 + 4 + 6, the sum of both 6
    assert (1 + 1) + 3 + 1 + 3 + 3 + 6 + 4 + 2 + 2 + (4 + 4 + 6) + 6 == 46
    forward, backward = passes(LLAMA, name, ("norm",))
    assert (forward.bytes, backward.bytes) == (2 * ROWS * 18 * 4096, 2 * ROWS * 46 * 4096)
    assert (forward.launches, backward.launches) == (8, 16)


def test_norms_of_queries_and_keys_are_two_and_of_latents_one_each() -> None:
    forward, backward = passes(QWEN, "query/key norm", ("norm",), "moe")
    assert (forward.launches, backward.launches) == (2 * 8, 2 * 16)
    assert forward.bytes == 2 * ROWS * 18 * (32 + 4) * 128
    for name, width in (("query norm", 1536), ("key/value norm", 512)):
        forward, backward = passes(V3, name, ("norm",))
        assert (forward.launches, backward.launches) == (8, 16)
        assert backward.bytes == 2 * ROWS * 46 * width


def test_norms_without_gains_lack_their_product_and_its_gradients() -> None:
    forward, backward = passes(replace(LLAMA, norm_gain=False), "mlp norm", ("norm",))
    assert (forward.launches, backward.launches) == (7, 13)
    assert (forward.bytes, backward.bytes) == (2 * ROWS * 16 * 4096, 2 * ROWS * 40 * 4096)


def test_the_final_norm_counts_as_well() -> None:
    fused, split = (head_operators(LLAMA, ROWS, unfused=u) for u in ((), ("norm",)))
    assert [op.launches for op in (fused.forward[0], split.forward[0])] == [1, 8]
    assert split.backward_input[-1].launches == 16
    assert fused.forward[1:] == split.forward[1:]


@pytest.mark.parametrize(
    ("arch", "layer", "name", "elements"),
    [
        (LLAMA, "dense", "mlp activation", 14336),
        (QWEN, "moe", "experts activation", 8 * 768),
        (V3, "moe", "shared expert activation", 2048),
    ],
)
def test_a_gated_activation_is_silu_and_a_product_forward_and_three_gradients_backward(
    arch: Transformer, layer: Layer, name: str, elements: int
) -> None:
    forward, backward = passes(arch, name, ("activation",), layer)
    assert (forward.launches, backward.launches) == (2, 3)
    # silu 1 + 1, product 2 + 1; each gradient 2 + 1
    assert forward.bytes == 2 * ROWS * 5 * elements
    assert backward.bytes == 2 * ROWS * 9 * elements
    fused, back = passes(arch, name, (), layer)
    assert (fused.launches, back.launches) == (1, 1)
    assert (fused.bytes, back.bytes) == (2 * ROWS * 3 * elements, 2 * ROWS * 5 * elements)


def test_what_is_not_fused_changes_nothing_else() -> None:
    plain, eager = (layer_operators(V3, "moe", ROWS, ROWS, Cut(unfused=u)) for u in ((), BOTH))  # type: ignore[arg-type]
    changed = {a.name for a, b in zip(plain.forward, eager.forward, strict=True) if a != b}
    assert changed == {
        "input norm",
        "query norm",
        "key/value norm",
        "mlp norm",
        "experts activation",
        "shared expert activation",
    }
    assert plain.backward_weight == eager.backward_weight


def test_layer_norms_and_activations_without_gates_are_one_kernel_anyway() -> None:
    assert GPT.norm_bias
    assert not GPT.gated
    for unfused in ((), BOTH):
        assert layer_operators(GPT, "dense", ROWS, ROWS, Cut(unfused=unfused)) == layer_operators(  # type: ignore[arg-type]
            GPT, "dense", ROWS, ROWS
        )
        assert kept(GPT, "dense", unfused) == kept(GPT, "dense", ())
        assert head_operators(GPT, ROWS, unfused=unfused) == head_operators(GPT, ROWS)  # type: ignore[arg-type]


def test_a_norm_keeps_its_input_in_32_bits_and_the_normalised_one_instead_of_it_in_16() -> None:
    fused, split = kept(LLAMA, "dense", ()), kept(LLAMA, "dense", ("norm",))
    for name in ("attention norm", "mlp norm"):
        assert fused[f"{name} input"] == 2 * 4096
        assert f"{name} input" not in split
        assert split[f"{name} in 32 bits"] == 4 * 4096
        assert split[f"{name}, normalised"] == 2 * 4096
    assert sum(split.values()) - sum(fused.values()) == 2 * 4 * 4096
    bare = replace(LLAMA, norm_gain=False)
    assert sum(kept(bare, "dense", ("norm",)).values()) - sum(fused.values()) == 2 * 2 * 4096


def test_norms_of_queries_keys_and_latents_keep_as_much() -> None:
    norms = [sum(kept(QWEN, "moe", u).values()) for u in ((), ("norm",))]
    assert norms[1] - norms[0] == 4 * (2 * 2048 + (32 + 4) * 128)
    norms = [sum(kept(V3, "dense", u).values()) for u in ((), ("norm",))]
    assert norms[1] - norms[0] == 4 * (2 * 7168 + 1536 + 512)


def test_an_activation_keeps_the_activated_gates_too() -> None:
    split = kept(V3, "moe", ("activation",))
    assert sum(split.values()) - sum(kept(V3, "moe", ()).values()) == 2 * (8 * 2048 + 2048)
    assert split["expert activated"] == 2 * 8 * 2048
    assert split["shared activated"] == 2 * 2048


@pytest.mark.parametrize(
    ("arch", "layer", "modules", "gone"),
    [
        (LLAMA, "dense", ("mlp",), {"mlp norm in 32 bits", "mlp norm, normalised", "mlp activated"}),
        (V3, "moe", ("moe_act",), {"expert activated"}),
        (V3, "moe", ("moe",), {"expert activated", "shared activated"}),
        (V3, "moe", ("layernorm",), {"attention norm in 32 bits", "mlp norm, normalised"}),
    ],
)
def test_what_is_computed_again_is_not_kept_but_a_norms_input_is(
    arch: Transformer, layer: Layer, modules: tuple[str, ...], gone: set[str]
) -> None:
    again = kept(arch, layer, recompute="selective", modules=modules)
    assert gone <= set(kept(arch, layer))
    assert not gone & set(again)
    assert ("mlp norm input" in again) == ("mlp norm in 32 bits" not in again)


def test_the_head_keeps_its_norms_as_layers_do() -> None:
    split, fused = (head_activation_bytes(LLAMA, 1, unfused=u) for u in (("norm",), ()))
    assert split - fused == 4 * 4096


def test_frozen_gains_keep_nothing_of_what_they_multiply() -> None:
    adapted = JOB.model_validate(JOB.model_dump() | {"lora": {"rank": 8}, "unfused": ("norm",)})
    fused = adapted.model_copy(update={"unfused": ()})
    more = layer_kept(adapted, LLAMA, "dense") - layer_kept(fused, LLAMA, "dense")
    assert more == ROWS * 2 * 2 * 4096


def test_the_host_pays_one_operation_for_each_kernel_and_its_factor_for_the_first() -> None:
    operation = constant("host_operation_seconds")
    fused, norms, every = (
        launch_times(layer_operators(LLAMA, "dense", ROWS, ROWS, Cut(unfused=u)), machine().gpu, factor=6.0)  # type: ignore[arg-type]
        for u in ((), ("norm",), BOTH)
    )
    assert norms.forward - fused.forward == pytest.approx(2 * 7 * operation)
    assert norms.backward - fused.backward == pytest.approx(2 * 15 * operation)
    assert every.forward - norms.forward == pytest.approx(1 * operation)
    assert every.backward - norms.backward == pytest.approx(2 * operation)


@pytest.mark.parametrize("software", ["fsdp-2024", "fsdp-2025", "xla-2024", "xla-2025"])
def test_compilers_fuse_them_whatever_a_job_says(software: str) -> None:
    asked = JOB.model_copy(update={"software": software, "unfused": ("rotary", *BOTH)})
    plain = asked.model_copy(update={"unfused": ("rotary",)})
    gpu = machine().gpu
    assert eager_parts(asked) == ("rotary",)
    assert operators_of(asked, LLAMA, "dense", gpu) == operators_of(plain, LLAMA, "dense", gpu)
    assert head_of(asked, LLAMA, gpu) == head_of(plain, LLAMA, gpu)
    assert layer_kept(asked, LLAMA, "dense") == layer_kept(plain, LLAMA, "dense")
    assert [w for w in doubts(asked, LLAMA, 1) if w not in doubts(plain, LLAMA, 1)] == [
        f"unfused {part} does nothing with software {software}, whose layers are compiled." for part in BOTH
    ]


def test_where_nothing_compiles_them_they_run_so() -> None:
    asked = JOB.model_copy(update={"unfused": BOTH})
    assert eager_parts(asked) == BOTH
    assert not [w for w in doubts(asked, LLAMA, 1) if "unfused" in w]
    launches = {op.name: op.launches for op in operators_of(asked, LLAMA, "dense", machine().gpu).forward}
    assert (launches["mlp norm"], launches["mlp activation"]) == (8, 2)
    assert head_of(asked, LLAMA, machine().gpu).forward[0].launches == 8


@pytest.mark.parametrize("zero", [1, 3])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_step_is_longer_and_its_memory_fuller_also_on_the_allocator(zero: int, recompute: str) -> None:
    layout = {"zero": zero, "recompute": recompute}
    plain = JOB.model_validate(JOB.model_dump() | {"layout": layout, "micro_batch": 1})
    cluster, steps, peaks, held = machine(1), [], [], []
    for unfused in ((), ("activation",), ("norm",), BOTH):
        job = plain.model_copy(update={"unfused": unfused})
        steps.append(simulate(job, LLAMA, cluster, must_fit=False, most_events=0).step_time)
        memory = peak_memory(job, LLAMA, cluster.network.fabric, 0.0)
        peaks.append(sum(memory.parts.values()))
        replayed = cached(job, LLAMA, cluster.network.fabric, 0)
        assert replayed
        held.append(replayed.allocated)
    assert peaks == sorted(peaks)
    # the allocator hands out blocks of up to 2 MiB more than is asked for
    assert all(one >= held[0] - 2**21 for one in held)
    assert steps[0] < steps[1] < steps[2] < steps[3]
    if recompute == "none":
        # 32 layers: four bytes an element of two norms, two of an activation; the final norm
        assert peaks[3] - peaks[0] == pytest.approx(
            ROWS * (32 * (2 * 4 * 4096 + 2 * 14336) + 4 * 4096), rel=0.02
        )
