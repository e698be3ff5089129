"""Laws of kernel times over the operators of a layer."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright import catalog
from railwright.compute import kernel_time, kernel_times
from railwright.model import Cut, layer_operators, load_model

GPUS = catalog.load_catalog().gpus
NAMES = sorted(name for name, gpu in GPUS.items() if gpu.peak_flops.get("bf16"))
MODELS = [("mixtral-8x7b", "moe"), ("llama-3-8b", "dense"), ("deepseek-v3", "moe"), ("gpt-oss-20b", "moe")]


def all_operators(name, layer, rows, **cut):
    ops = layer_operators(load_model(name), layer, rows, 1024, Cut(**cut))
    return [*ops.forward, *ops.backward_input, *ops.backward_weight]


@settings(max_examples=50)
@given(st.sampled_from(MODELS), st.sampled_from(NAMES), st.integers(1, 16), st.integers(0, 16))
def test_more_rows_never_run_faster(model, gpu, few, more):
    little, much = (all_operators(*model, 1024 * n) for n in (few, few + more))
    for one, two in zip(little, much, strict=True):
        assert kernel_time(two, GPUS[gpu]) >= kernel_time(one, GPUS[gpu])


@settings(max_examples=50)
@given(st.sampled_from(MODELS), st.sampled_from(NAMES), st.sampled_from((1, 2, 4)))
def test_more_tensor_parallelism_never_runs_slower_and_never_beats_a_perfect_split(model, gpu, tp):
    one, two = (
        kernel_times(all_operators(*model, 4096, tp=t, sequence_parallel=True), GPUS[gpu])
        for t in (tp, 2 * tp)
    )
    assert one / 2 <= two <= one


@settings(max_examples=50)
@given(st.sampled_from(MODELS), st.sampled_from(NAMES), st.floats(1.0, 4.0))
def test_a_faster_gpu_is_never_slower(model, gpu, factor):
    slow = GPUS[gpu]
    peaks = {dtype: factor * peak for dtype, peak in slow.peak_flops.items()}
    fast = replace(slow, peak_flops=peaks, hbm_bandwidth=factor * slow.hbm_bandwidth)
    for op in all_operators(*model, 2048):
        assert kernel_time(op, fast) <= kernel_time(op, slow)


FASTER = {"rtx-5090": 240e12 / 209.5e12}
"""What was measured over the peak, where a card's clock is above the one that its peak counts: 240 TFLOP/s
of bf16 (zzc0721/torch-performance-test-data, in compute/data/gemm.yaml)."""


@pytest.mark.parametrize("gpu", NAMES)
def test_no_kernel_beats_the_roofline(gpu):
    part, clock = GPUS[gpu], FASTER.get(gpu, 1.0)
    for model in MODELS:
        for op in all_operators(*model, 2048):
            compute = op.flops / (clock * part.peak_flops[op.dtype])
            assert kernel_time(op, part) > max(compute, op.bytes / part.hbm_bandwidth)
