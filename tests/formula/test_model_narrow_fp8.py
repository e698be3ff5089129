"""Attention in fp8 with one scale per tensor: kernels beside NVIDIA's measurements, casts, what is kept, sent
and refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import find, load_catalog
from railwright.catalog.parts import LIKE_BLACKWELL
from railwright.compute import kernel_time, profile_of
from railwright.compute.profile import interpolated
from railwright.errors import PlanError
from railwright.model import Cut, layer_activations, layer_operators, load_model
from railwright.model.operators.kernels import attention_pair
from railwright.model.operators.narrow import NARROW, OUTPUT_IN_16_BITS, Scaling, beside_narrow
from railwright.model.shape.architecture import Operator, Transformer
from railwright.spec.lora import Lora
from railwright.spec.training import Layout, TrainingJob
from railwright.training import simulate
from railwright.training.layers.operators import operators_of
from railwright.training.memory.activations import layer_kept, layer_kept_parts
from railwright.training.software.host import launch_times
from railwright.training.software.narrow import check_attention, scaling_of
from training_cases import DENSE, changed, job, machine

GPUS = load_catalog().gpus
LLAMA = load_model("llama3-8b")

MEASURED = [
    # GPU, (query heads, key heads, query width, value width), sequences, tokens, forward, backward [TFLOP/s]
    ("gb200", (64, 8, 128, 128), 2, 4096, 1805, 1178),
    ("gb200", (64, 8, 128, 128), 2, 8192, 2047, 1454),
    ("gb200", (128, 128, 192, 128), 2, 8192, 2397, 1959),
    ("gb300", (64, 8, 128, 128), 2, 4096, 2532, 1396),
    ("gb300", (64, 8, 128, 128), 2, 8192, 2897, 1781),
    ("gb300", (128, 128, 192, 128), 2, 8192, 3128, 2310),
    ("h200-sxm", (64, 8, 128, 128), 1, 2048, 698, 393),
    ("h200-sxm", (64, 8, 128, 128), 1, 4096, 854, 471),
    ("h200-sxm", (64, 8, 128, 128), 1, 8192, 964, 430),
    ("h200-sxm", (64, 8, 128, 128), 1, 16384, 1010, 374),
    ("h200-sxm", (64, 8, 128, 128), 1, 32768, 1042, 370),
]
"""NVIDIA/cudnn-frontend at 3929da2, benchmark/sdpa_benchmark_training/results (llama3.1, dsv3), fp8, top_left
(causal), bwd not deterministic: cuDNN 9.22 on Blackwell, 9.19 on H200."""


def named(operators: tuple[Operator, ...]) -> dict[str, Operator]:
    return {op.name: op for op in operators}


def asked(**what: object) -> TrainingJob:
    one = job(dtype="fp8", gpus=8).model_copy(update={"dtype_also": ("attention",), "amax_over": "tensor"})
    return one.model_copy(update=what)


@pytest.mark.parametrize(("name", "heads", "sequences", "tokens", "forward", "backward"), MEASURED)
def test_kernels_meet_the_published_benchmark(
    name: str, heads: tuple[int, int, int, int], sequences: int, tokens: int, forward: float, backward: float
) -> None:
    q, kv, wide, value = heads
    rows, flops = sequences * tokens, sequences * float(tokens) ** 2 * q * (wide + value)
    shape = {"heads": q, "query_dim": wide, "value_dim": value, "kv_heads": kv}
    whole = attention_pair(rows, tokens, **shape, flops=flops, dtype="fp8", written=1.0)
    _, block, _ = beside_narrow([whole], rows, "delayed", **shape)
    gpu = find(GPUS, name)
    assert kernel_time(block.forward, gpu) == pytest.approx(flops / forward * 1e-12, rel=0.04)
    core = [op for op in block.backward_input if op.name.startswith("core attention")]
    done = (3 * wide + 2 * value) / (wide + value) * flops
    assert sum(kernel_time(op, gpu) for op in core) == pytest.approx(done / backward * 1e-12, rel=0.07)


def test_a_causal_backward_pass_on_hopper_is_slower_than_in_16_bits_from_8k_tokens_on() -> None:
    """NVIDIA's own: 541 TFLOP/s in 16 bits at 8k, 430 in fp8; at 2k 370 and 393."""
    gpu = find(GPUS, "h200-sxm")

    def backward(tokens: int, dtype: str) -> float:
        shape = {"heads": 64, "query_dim": 128, "value_dim": 128, "kv_heads": 8}
        flops = float(tokens) ** 2 * 64 * 256
        block = attention_pair(tokens, tokens, **shape, flops=flops, dtype=dtype)
        if dtype == "fp8":
            block = beside_narrow([block], tokens, "delayed", **shape)[1]
        return sum(kernel_time(op, gpu) for op in block.backward_input if op.name.startswith("core"))

    assert backward(2048, "fp8") < 1.05 * backward(2048, "bf16")
    assert backward(8192, "fp8") > 1.1 * backward(8192, "bf16")


def test_points_are_met_and_interpolated_over_the_logarithm() -> None:
    points = ((2.0, 1.0), (8.0, 3.0))
    assert [interpolated(points, at) for at in (1, 2, 4, 8, 16)] == [1.0, 1.0, 2.0, 3.0, 3.0]
    row = profile_of(find(GPUS, "h100-sxm")).attention_row("backward_input", "fp8")
    assert row.slowed(8192, masked=True) == pytest.approx(1 / 0.675)
    assert row.slowed(8192, masked=False) == pytest.approx(1 + 122 / 8192)


def layer(scaling: Scaling, **how: object) -> dict[str, Operator]:
    found = layer_operators(LLAMA, "dense", 4096, 4096, Cut(narrow=scaling, **how), dtype="fp8")  # type: ignore[arg-type]
    return named((*found.forward, *found.backward_input))


def test_delayed_scaling_casts_joined_inputs_and_widens_what_kernels_write() -> None:
    """Joined (4 bytes), cast (3); output widened (3); its gradient cast (3); the other gradients joined in 8
    bits (2) and widened (3)."""
    found, q, out = layer("delayed"), 4096 * 128 * (32 + 8 + 8), 4096 * 128 * 32
    assert found["attention casts"].bytes == pytest.approx(7 * q)
    assert found[OUTPUT_IN_16_BITS].bytes == pytest.approx(3 * out)
    backward = layer_operators(LLAMA, "dense", 4096, 4096, Cut(narrow="delayed"), dtype="fp8").backward_input
    casts = [op for op in backward if op.name == "attention casts, backward"]
    assert [op.bytes for op in casts] == pytest.approx([3 * out, 5 * q])
    assert [op.launches for op in casts] == [1, 2]
    assert found["core attention"].dtype == "fp8"
    assert found["core attention"].flops == layer("")["core attention"].flops


def test_current_scaling_looks_for_maxima_and_keeps_16_bits() -> None:
    found, q, out = layer("current"), 4096 * 128 * (32 + 8 + 8), 4096 * 128 * 32
    assert found["attention casts"].bytes == pytest.approx(9 * q)
    assert found["attention casts, backward"].bytes == pytest.approx(5 * out)
    assert OUTPUT_IN_16_BITS not in found


def test_casts_run_again_with_the_core() -> None:
    found = layer_operators(
        LLAMA, "dense", 4096, 4096, Cut(narrow="delayed"), dtype="fp8", modules=("core_attn",)
    )
    assert [op.name for op in found.recomputed] == ["attention casts", "core attention", OUTPUT_IN_16_BITS]


def test_the_host_launches_casts_inside_the_call_of_attention() -> None:
    """Six operations at the source's price, whatever the factor of calls; cuDNN's sum is its own."""
    gpu = find(GPUS, "h100-sxm")

    def host(scaling: Scaling, factor: float) -> float:
        found = layer_operators(LLAMA, "dense", 4096, 4096, Cut(narrow=scaling), dtype="fp8")
        times = launch_times(found, gpu, factor)
        return times.forward + times.backward

    for factor in (1.0, 5.0):
        assert host("delayed", factor) - host("", factor) == pytest.approx(6 * 13.5e-6)


def kept(scaling: Scaling, arch: Transformer = LLAMA, dtype: str = "fp8", **how: object) -> dict[str, float]:
    return layer_activations(arch, "dense", 4096, 4096, Cut(narrow=scaling), dtype=dtype, **how)  # type: ignore[arg-type]


def test_what_attention_keeps_in_8_bits() -> None:
    q, out = 4096.0 * 128 * (32 + 8 + 8), 4096.0 * 128 * 32
    wide, delayed, current = kept(""), kept("delayed"), kept("current")
    assert wide["query, key, value"] == 2 * q
    assert delayed["query, key, value in 8 bits"] == current["query, key, value in 8 bits"] == q
    # the projection casts what it reads for itself; attention keeps 16 bits of it, or 8
    assert wide["attention output"] == current["attention output"] == 3 * out
    assert (delayed["attention output in 8 bits"], delayed["output projection input"]) == (out, out)
    assert sum(wide.values()) - sum(delayed.values()) == pytest.approx(q + out)
    assert sum(wide.values()) - sum(current.values()) == pytest.approx(q)
    again = {"recompute": "selective", "modules": ("core_attn",)}
    assert kept("delayed", **again) == kept("", **again)


def test_gates_read_the_output_in_16_bits() -> None:
    arch = replace(LLAMA, attention_gate="element")
    found = kept("delayed", arch)
    assert found["attention output"] == 2 * found["attention output in 8 bits"]
    assert "output projection input" not in found


def test_a_frozen_projection_without_an_adapter_keeps_no_input() -> None:
    with_adapter, without = (
        asked(lora=Lora(rank=8, targets=targets)) for targets in (("attention output",), ("mlp up",))
    )
    first, second = (layer_kept_parts(one, LLAMA, "dense", "none") for one in (with_adapter, without))
    assert first["output projection input"] == 2 * first["attention output in 8 bits"]
    assert "output projection input" not in second
    assert second["attention output in 8 bits"] == first["attention output in 8 bits"]


@pytest.mark.parametrize("kind", ["ring", "all-to-all"])
def test_context_ranks_keep_what_one_rank_does_of_their_tokens(kind: str) -> None:
    """Of heads swapped for tokens no second output is kept: attention's own is the one in 8 bits."""
    one = changed(LLAMA_JOB, layout=Layout(context=2, context_kind=kind))  # type: ignore[arg-type]
    assert layer_kept(one, LLAMA, "dense") == pytest.approx(layer_kept(LLAMA_JOB, LLAMA, "dense") / 2)


LLAMA_JOB = asked(gpus=8)


def test_recipes_decide_the_scaling() -> None:
    assert scaling_of(asked()) == scaling_of(asked(amax_over="stage")) == "delayed"
    assert scaling_of(asked(amax_over="none")) == "current"
    assert scaling_of(asked(dtype="mxfp8")) == "mxfp8"
    assert scaling_of(asked(dtype_also=())) == ""
    assert all(how.dtype == ("mxfp8" if name == "mxfp8" else "fp8") for name, how in NARROW.items())


@pytest.mark.parametrize("kind", ["ring", "all-to-all", "all-gather"])
def test_context_ranks_exchange_8_bits(kind: str) -> None:
    layout = Layout(context=2, context_kind=kind)  # type: ignore[arg-type]

    def sent(one: TrainingJob) -> dict[str, float]:
        where = machine(1, server="dgx-b200")
        found = simulate(changed(one, layout=layout, gpus=8), LLAMA, where).collectives
        return {c.purpose: c.prediction.size for c in found if c.purpose.startswith("cp ")}

    plain, narrow = sent(asked(dtype_also=())), sent(asked())
    assert set(plain) == set(narrow)
    for purpose, size in plain.items():
        if purpose == "cp reduce-scatter":  # of gradients in 16 bits
            assert narrow[purpose] == size
        else:
            assert narrow[purpose] == pytest.approx(size / 2)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"dtype": "fp8_block"}, "which only dtype fp8 and mxfp8 multiply in 8 bits; dtype is fp8_block"),
        ({"dtype_also": ("head",)}, "names head, which only dtype mxfp8 multiplies in 8 bits; dtype is fp8"),
        ({"software": "megatron-2022"}, "software megatron-2022 writes scores to memory"),
        (
            {"software": "fsdp-2025"},
            "is Transformer Engine's in Megatron-LM and NeMo, and software is fsdp-2025",
        ),
        ({"sample_length": 256}, "takes no packed samples"),
    ],
)
def test_refusals_of_a_job_say_what_to_do(what: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        simulate(asked(**what), LLAMA, machine(1, server="dgx-b200"))


@pytest.mark.parametrize(
    ("server", "arch", "what", "message"),
    [
        ("dgx-a100", LLAMA, {}, "Hopper and Blackwell, and these are ampere"),
        ("dgx-h100", LLAMA, {"amax_over": "none"}, "current scaling .* set amax_over to stage or tensor"),
        ("dgx-h100", DENSE, {}, "takes heads of 128 and 128 on hopper, and dense-8 has 64 and 64"),
        ("dgx-h100", replace(LLAMA, sliding_window=512), {}, "takes no sliding windows on Hopper"),
        ("dgx-h100", replace(LLAMA, attention_sinks=True), {}, "takes no attention sinks on Hopper"),
        (
            "dgx-h100",
            LLAMA,
            {"layout": Layout(context=2, context_kind="all-gather")},
            "no context_kind all-g",
        ),
        ("dgx-b200", replace(LLAMA, head_dim=256), {}, "at most, multiples of 16 on blackwell, .* has 256"),
        ("dgx-b200", replace(LLAMA, alibi=True), {}, "takes no ALiBi"),
    ],
)
def test_refusals_of_a_gpu(server: str, arch: Transformer, what: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        simulate(asked(**what), arch, machine(1, server=server))


def test_other_gpus_have_no_attention_in_8_bits() -> None:
    for generation in {gpu.generation for gpu in GPUS.values()}:
        if generation == "hopper" or generation in LIKE_BLACKWELL:
            check_attention(asked(), LLAMA, generation)
        else:
            with pytest.raises(
                PlanError, match=f"generation Hopper and Blackwell, and these are {generation}"
            ):
                check_attention(asked(), LLAMA, generation)
    rtx = find(GPUS, "rtx-pro-6000").generation
    with pytest.raises(PlanError, match="generation Blackwell, and these are blackwell-rtx"):
        check_attention(asked(dtype="mxfp8"), LLAMA, rtx)


def test_a_step_on_blackwell_gains_and_one_on_hopper_loses() -> None:
    long = {"sequence": 8192, "global_batch": 8, "cuda_graphs": ("step",)}

    def ratio(server: str) -> float:
        where = machine(1, server=server)
        times = [
            simulate(asked(dtype_also=also, **long), LLAMA, where, must_fit=False).step_time
            for also in ((), ("attention",))
        ]
        return times[1] / times[0]

    assert 0.9 < ratio("dgx-b200") < 1.0 < ratio("dgx-h200") < 1.05


def test_current_scaling_is_warned_of() -> None:
    step = simulate(asked(amax_over="none"), LLAMA, machine(1, server="dgx-b200"), must_fit=False)
    assert any("current scaling takes the rates measured with outputs in 8 bits" in w for w in step.warnings)


def test_kernels_that_are_not_known_or_slower_are_told() -> None:
    def told(server: str, **what: object) -> list[str]:
        step = simulate(asked(**what), LLAMA, machine(1, server=server), must_fit=False)
        return [w for w in step.warnings if "attention in fp8" in w]

    long = {"sequence": 8192}
    assert [w[:30] for w in told("dgx-b200", **long)] == ["no published step in our table"]
    assert len(told("dgx-h200")) == 1
    _, slower = told("dgx-h200", **long)
    assert slower.endswith("leave attention out of dtype_also to save that time.")
    assert told("dgx-h200", dtype_also=(), **long) == []


def test_nothing_is_cast_where_nothing_is_asked() -> None:
    plain = asked(dtype_also=())
    names = {op.name for op in operators_of(plain, LLAMA, "dense", find(GPUS, "b200-sxm")).forward}
    assert not names & {"attention casts", OUTPUT_IN_16_BITS, "mlp activation input"}
