"""Attention and head in MXFP8: kernels beside NVIDIA's measurements, what runs and is kept beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import find, load_catalog
from railwright.compute import kernel_time
from railwright.errors import PlanError
from railwright.model import Cut, head_operators, layer_activations, layer_operators, load_model
from railwright.model.operators.kernels import attention_pair
from railwright.model.operators.narrow import BLOCK_COPIES, SUMMED_HEADS, beside_narrow
from railwright.model.shape.architecture import Operator
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.layers.stages import stage_shapes
from railwright.training.memory.activations import stage_activations
from railwright.training.memory.states import WEIGHT_BYTES, state_parts
from training_cases import DENSE, MOE, job, machine

GPUS = load_catalog().gpus
DEEPSEEK = load_model("deepseek-v3")
GPT_OSS = load_model("gpt-oss-120b")

MEASURED = [
    # GPU, (query heads, key heads, query width, value width), tokens, forward ms, backward ms; two sequences
    ("gb200", (64, 8, 128, 128), 4096, 0.326, 1.305),
    ("gb200", (64, 8, 128, 128), 8192, 1.156, 4.272),
    ("gb200", (128, 128, 192, 128), 4096, 0.714, 2.620),
    ("gb200", (128, 128, 192, 128), 8192, 2.478, 9.567),
    ("gb300", (64, 8, 128, 128), 4096, 0.242, 1.203),
    ("gb300", (64, 8, 128, 128), 8192, 0.856, 3.917),
    ("gb300", (128, 128, 192, 128), 4096, 0.546, 2.348),
    ("gb300", (128, 128, 192, 128), 8192, 1.944, 8.030),
]
"""NVIDIA/cudnn-frontend at 3929da2, benchmark/sdpa_benchmark_training/results (llama3.1, dsv3), cuDNN 9.22,
mxfp8, top_left (causal), bwd not deterministic."""


def named(operators: tuple[Operator, ...]) -> dict[str, Operator]:
    return {op.name: op for op in operators}


def asked(*also: str, **what: object) -> TrainingJob:
    return job(dtype="mxfp8", **what).model_copy(update={"dtype_also": also})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "heads", "tokens", "forward", "backward"), MEASURED)
def test_kernels_meet_the_published_benchmark(
    name: str, heads: tuple[int, int, int, int], tokens: int, forward: float, backward: float
) -> None:
    q, kv, wide, value = heads
    flops = 2.0 * tokens * tokens * q * (wide + value)
    shape = {"heads": q, "query_dim": wide, "value_dim": value, "kv_heads": kv}
    whole = attention_pair(2 * tokens, tokens, **shape, flops=flops, dtype="mxfp8")
    (block,) = beside_narrow([whole], 2 * tokens, "mxfp8", **shape)[1:]
    gpu = find(GPUS, name)
    assert kernel_time(block.forward, gpu) == pytest.approx(forward * 1e-3, rel=0.05)
    core = [op for op in block.backward_input if not op.name.startswith("attention casts")]
    assert sum(kernel_time(op, gpu) for op in core) == pytest.approx(backward * 1e-3, rel=0.06)


def test_inputs_are_cast_before_and_the_gradient_of_the_output_after() -> None:
    plain = layer_operators(DEEPSEEK, "moe", 4096, 4096, Cut(ep=64), dtype="mxfp8")
    narrow = layer_operators(DEEPSEEK, "moe", 4096, 4096, Cut(ep=64, narrow="mxfp8"), dtype="mxfp8")
    before, after = named(plain.forward), named(narrow.forward)
    assert set(after) - set(before) == {"attention casts"}
    names = [op.name for op in narrow.forward]
    assert names.index("core attention") == names.index("attention casts") + 1
    inputs = 4096 * 128 * (192 + 192 + 128)
    assert after["attention casts"].bytes == pytest.approx(2 * inputs * (1 + BLOCK_COPIES))
    backwards = [op.name for op in narrow.backward_input]
    assert backwards.index("core attention, backward") == backwards.index("attention casts, backward") + 1
    assert after["core attention"].dtype == "mxfp8"
    assert after["core attention"].flops == before["core attention"].flops
    # latent attention has keys for every head: nothing to sum
    assert "core attention, sum over heads" not in backwards


def test_gradients_of_shared_keys_are_summed() -> None:
    layer = layer_operators(DENSE, "dense", 4096, 1024, Cut(tp=2, narrow="mxfp8"), dtype="mxfp8")
    summed = named(layer.backward_input)["core attention, sum over heads"]
    assert summed.bytes == pytest.approx(4096 * 8 * 2 * 64 * SUMMED_HEADS)


def test_the_backward_pass_computes_all_tiles_of_a_window() -> None:
    def flops(narrow: bool, backward: bool) -> float:
        layer = layer_operators(
            GPT_OSS, "moe", 4096, 4096, Cut(ep=16, narrow="mxfp8" if narrow else ""), dtype="mxfp8"
        )
        found = layer.backward_input if backward else layer.forward
        return sum(op.flops for op in found if op.kind == "attention")

    assert flops(True, False) == flops(False, False)
    full = sum(
        op.flops
        for op in layer_operators(
            replace(GPT_OSS, sliding_window=0), "moe", 4096, 4096, Cut(ep=16)
        ).backward_input
        if op.kind == "attention"
    )
    assert flops(True, True) == pytest.approx(full)
    assert flops(False, True) < 0.6 * full


def test_casts_are_computed_again_with_the_core() -> None:
    layer = layer_operators(
        DENSE, "dense", 4096, 1024, Cut(narrow="mxfp8"), dtype="mxfp8", modules=("core_attn",)
    )
    assert [op.name for op in layer.recomputed] == ["attention casts", "core attention"]


def test_the_head_is_cast_and_multiplied_in_the_narrow_format() -> None:
    plain, narrow = (
        named(head_operators(DENSE, 1024, dtype="mxfp8", narrow=n).forward) for n in (False, True)
    )
    assert (plain["lm head"].dtype, narrow["lm head"].dtype) == ("bf16", "mxfp8")
    assert set(narrow) - set(plain) == {"lm head, cast"}
    backward = named(head_operators(DENSE, 1024, dtype="mxfp8", narrow=True).backward_input)
    assert "lm head, gradient cast" in backward


def test_a_step_is_told_what_is_narrow() -> None:
    where, arch = machine(1, server="dgx-b200"), replace(DENSE, hidden=4096, vocab=128000)
    graphs = {"cuda_graphs": ("step",)}
    plain, narrow = (
        asked(*also, gpus=8, micro_batch=4).model_copy(update=graphs) for also in ((), ("head",))
    )
    assert simulate(narrow, arch, where).step_time < simulate(plain, arch, where).step_time


def test_what_is_kept() -> None:
    def kept(narrow: bool, *modules: str) -> dict[str, float]:
        how = {"recompute": "selective", "modules": modules} if modules else {}
        cut = Cut(ep=64, narrow="mxfp8" if narrow else "")
        return layer_activations(DEEPSEEK, "moe", 4096, 4096, cut, dtype="mxfp8", **how)  # type: ignore[arg-type]

    wide, eight = "query, key, value", "query, key, value in 8 bits"
    assert kept(True)[eight] == pytest.approx(kept(False)[wide] * 33 / 32)
    # the copies in 8 bits are attention's own: computing the 16-bit ones again frees nothing
    assert wide not in kept(False, "mla_up_proj")
    assert kept(True, "mla_up_proj")[eight] == kept(True)[eight]
    # where attention itself runs again, its 16-bit inputs are kept
    assert kept(True, "core_attn")[wide] == kept(False)[wide]
    assert eight not in kept(True, "core_attn")


def test_memory_of_a_narrow_head() -> None:
    plain, narrow = asked(), asked("head")
    (shape,) = stage_shapes(DENSE, narrow.layout)
    more = state_parts(narrow, DENSE, shape, 8)["weights"] - state_parts(plain, DENSE, shape, 8)["weights"]
    assert more == pytest.approx((WEIGHT_BYTES["mxfp8"] - 2) * DENSE.vocab * DENSE.hidden, rel=1e-3)
    heads = [stage_activations(one, DENSE, shape).head_backward["logits"] for one in (plain, narrow)]
    assert heads[1] - heads[0] == pytest.approx(1024 * DENSE.vocab * 2 * 33 / 32)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"dtype": "bf16"}, "which only dtype fp8 and mxfp8 multiply in 8 bits; dtype is bf16"),
        ({"software": "megatron-2022"}, "software megatron-2022 writes scores to memory"),
        ({"sample_length": 256}, "takes no packed samples"),
        ({"sequence": 1000}, "multiple of 128 tokens .* there are 1000"),
    ],
)
def test_refusals_say_what_to_do(what: dict[str, object], message: str) -> None:
    wanted = asked("attention", gpus=8).model_copy(update=what)
    with pytest.raises(PlanError, match=message):
        simulate(wanted, DENSE, machine(1, server="dgx-b200"))


def test_odd_heads_and_unmeasured_gpus_are_refused() -> None:
    odd = replace(DENSE, head_dim=72)
    with pytest.raises(
        PlanError, match=r"heads of a multiple of 32, and dense-8 has 72; leave attention out"
    ):
        simulate(asked("attention", gpus=8), odd, machine(1, server="dgx-b200"))
    narrow = layer_operators(MOE, "moe", 1024, 1024, Cut(narrow="mxfp8"), dtype="mxfp8")
    amd = next(gpu for gpu in GPUS.values() if gpu.generation == "cdna4")
    with pytest.raises(PlanError, match="no measurement of attention in mxfp8; there are some in 16 bits"):
        kernel_time(named(narrow.forward)["core attention"], amd)
