"""Kernels that run inside others cost nothing and keep their place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import find, load_catalog
from railwright.compute import profile_of
from railwright.measure.training.jobs import job_of, machine_for
from railwright.measure.training.models import architecture_of
from railwright.measure.training.replay import records
from railwright.model import Cut, count_parameters, layer_operators
from railwright.training import simulate
from railwright.training.layers.fused import DISPATCH, EXPERTS, inside, summing_biases, summing_gradients
from railwright.training.layers.operators import embedding_of
from railwright.training.software.eras import Pace, eras
from training_cases import DENSE, MOE, job, machine, priced

GPUS = load_catalog().gpus
RECORD = next(
    r for r in records() if r["model"] == "gpt-oss-120b" and r["software"] == "Megatron-Bridge 26.06.01"
)
GPT_OSS = architecture_of(RECORD)
PLAIN = layer_operators(DENSE, "dense", 4096, 1024)


def test_only_the_named_operators_become_free() -> None:
    layer = layer_operators(MOE, "moe", 4096, 1024, Cut(ep=8), dtype="fp8")
    fused = inside(layer, DISPATCH | EXPERTS)
    for before, after in zip(layer.forward, fused.forward, strict=True):
        assert before.name == after.name
        assert before.flops == after.flops
        if before.name in DISPATCH | EXPERTS:
            assert (after.bytes, after.launches) == (0.0, 0)
        else:
            assert after == before
    assert {op.name for op in layer.forward} >= {"permute", "unpermute", "experts activation"}


def test_the_fused_mlp_is_of_8_bit_experts_on_blackwell() -> None:
    era = eras()["megatron-2026"]
    blackwell, hopper = find(GPUS, "gb200"), find(GPUS, "h100")
    assert era.fuses_experts(blackwell, "fp8")
    assert not era.fuses_experts(blackwell, "bf16")
    assert not era.fuses_experts(hopper, "fp8")
    assert not eras()["megatron-2025"].fuses_experts(blackwell, "fp8")


@pytest.mark.parametrize(("gpu", "flash", "slower"), [("h100", "flash-2", True), ("a100", "flash-2", False)])
def test_an_era_names_its_attention_kernel(gpu: str, flash: str, slower: bool) -> None:
    usual, named = profile_of(find(GPUS, gpu)), profile_of(find(GPUS, gpu), flash)
    rates = [one.attention["forward"].compute for one in (named, usual)]
    # FlashAttention-2 is the usual kernel of A100; on H100 it does without the asynchronous products
    assert (rates[0] < rates[1]) if slower else (rates[0] == rates[1])


@pytest.mark.parametrize(("spilled", "microseconds"), [(False, 155.632), (True, 1362.768)])
def test_sums_of_biases_take_longer_in_one_kernel_only(spilled: bool, microseconds: float) -> None:
    # cudnn-frontend pull request 322: 138.960 us without them
    layer = layer_operators(GPT_OSS, "moe", 4096, 4096, Cut(ep=16), dtype="fp8")
    timed = summing_biases(lambda op: 138.960, spilled)
    times = {op.name: timed(op) for op in (*layer.forward, *layer.backward_input, *layer.backward_weight)}
    assert times.pop("experts down, input gradient") == pytest.approx(microseconds, rel=1e-3)
    assert set(times.values()) == {138.960}


def test_a_step_is_longer_by_that_kernel_where_experts_have_biases() -> None:
    job = job_of(RECORD)
    assert job.software == "megatron-2026-06-01"
    before = job.model_copy(update={"software": "megatron-2026"})
    machine = machine_for(RECORD)
    plain = replace(GPT_OSS, mlp_bias=False)
    (slow, none), (fast, bare) = (
        [simulate(one, arch, machine, must_fit=False).step_time for arch in (GPT_OSS, plain)]
        for one in (job, before)
    )
    # one product of 36 layers in each of 5 microbatches: more than a tenth of the step, less than half
    assert 1.1 < slow / none < 1.6
    assert 1.0 < fast / bare < 1.05


def test_a_gradient_added_apart_is_read_twice_and_written_once_more() -> None:
    # the product read and wrote 4 bytes of each sum; now it writes 2 of the gradient, and the sum moves 6
    layer = layer_operators(MOE, "moe", 4096, 1024, Cut(ep=2))
    apart = summing_gradients(layer)
    assert (apart.forward, apart.backward_input) == (layer.forward, layer.backward_input)
    products = [op for op in layer.backward_weight if op.kind != "memory"]
    assert {op.kind for op in products} == {"gemm", "grouped_gemm"}
    assert len(apart.backward_weight) == len(layer.backward_weight) + len(products)
    for product in products:
        alone, added = (op for op in apart.backward_weight if op.name == product.name)
        weights = product.m * product.n * product.batch
        assert (alone.bytes, alone.flops) == (product.bytes - 6 * weights, product.flops)
        assert (added.kind, added.bytes) == ("memory", 6 * weights)


def test_a_gpt_layer_adds_twelve_gradients() -> None:
    # weights and biases of four products, and of two norms
    added = [op for op in summing_gradients(PLAIN).backward_weight if op.kind == "memory"]
    assert sum(op.launches for op in added) == 12


def test_every_microbatch_adds_its_gradients() -> None:
    # kernels of memory alone take time: the eras differ by these sums, which know weights only, and by those
    # that Megatron alone sets to zero, once
    zeroed = 4e-12 * count_parameters(DENSE).total

    def longer(micro_batch: int) -> float:
        early, late = (
            simulate(
                job(gpus=1, batch=4, micro_batch=micro_batch).model_copy(update={"software": era}),
                DENSE,
                machine(1),
                predict=priced(50e9),
                kernel=lambda op: 1e-12 * op.bytes if op.kind == "memory" else 0.0,
                pace=Pace(host=0.0),
            ).step_time
            for era in ("megatron-2021", "megatron-2022")
        )
        return early - late + zeroed

    assert longer(4) > 0
    assert longer(1) == pytest.approx(4 * longer(4), rel=1e-6)


@pytest.mark.parametrize(
    ("software", "dtype", "gradients", "moved"),
    [
        ("megatron-2025", "bf16", None, 2 + 4 + 4),
        ("megatron-2025", "bf16", "bf16", 2 + 2 + 2),
        ("megatron-2021", "fp16", None, 2 + 2 + 2),
        ("fsdp-2025", "bf16", None, 0),
        ("xla-2025", "bf16", None, 0),
    ],
)
def test_the_gradient_of_an_embedding_is_added_where_no_product_does(
    software: str, dtype: str, gradients: str | None, moved: int
) -> None:
    # Megatron-LM: main_grad.add_(param.grad), into fp32 or 16 bits; FSDP reduces every one as it is
    wanted = job(dtype=dtype).model_copy(update={"software": software, "gradient_dtype": gradients})
    _, *added = embedding_of(wanted, DENSE).backward_weight
    assert [op.bytes for op in added] == ([moved * DENSE.vocab * DENSE.hidden] if moved else [])
