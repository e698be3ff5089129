"""Kernel times of a whole step beside measured steps of one 8-GPU server.

No constant was fitted to these.  What is missing from the sum (communication, input, launch gaps) makes it
fall short, so the band is one-sided around a share of the measured step; where the share exceeds 1 the
kernel constants are too slow, and the row says so.
"""

from dataclasses import replace

import pytest

from railwright import catalog
from railwright.compute import kernel_times
from railwright.model import (
    Cut,
    Transformer,
    count_parameters,
    head_operators,
    layer_operators,
    load_model,
    optimizer_operators,
)

GPUS = catalog.load_catalog().gpus
LLAMA = load_model("llama-3-8b")


def mpt(layers, hidden, heads):
    return Transformer(
        "mpt",
        layers,
        hidden,
        50368,
        heads,
        heads,
        hidden // heads,
        4 * hidden,
        gated=False,
        tied_embeddings=True,
    )


def compute_time(arch, gpu, rows, sequence, microbatches, dtype="bf16", repeats=0, tp=1):
    """All kernels of one step of one GPU under data parallelism over 8 with sharded optimiser states. [s]"""
    layer = layer_operators(arch, "dense", rows, sequence, Cut(tp, sequence_parallel=tp > 1), dtype=dtype)
    head = head_operators(arch, rows, tp=tp, sequence_parallel=tp > 1)
    layers = kernel_times([*layer.forward, *layer.backward_input, *layer.backward_weight], gpu)
    layers += repeats * kernel_times(layer.forward, gpu)
    ends = kernel_times([*head.forward, *head.backward_input, *head.backward_weight], gpu)
    update = kernel_times(optimizer_operators(count_parameters(arch).total / 8), gpu)
    return microbatches * (arch.layers * layers + ends) + update


# record of the shared training set (dgxc-benchmarking READMEs; llm-foundry benchmarking README), model, GPU,
# rows on a GPU, sequence, microbatches, dtype, forward repeats, measured step [s], kernels/measured found
STEPS = [
    # context parallel 2: half of each 8,192-token sequence on a GPU
    ("dgxc-v25-04-llama3-8b-h100-8-bf16", LLAMA, "h100-sxm", 4096, 8192, 32, "bf16", 0, 12.27, 0.872),
    ("dgxc-v25-04-llama3-8b-h100-8-fp8", LLAMA, "h100-sxm", 4096, 8192, 32, "fp8", 0, 9.33, 0.845),
    (
        "llmfoundry-096-7b-s2048-a100",
        mpt(32, 4096, 32),
        "a100-sxm-80",
        12288,
        2048,
        2,
        "bf16",
        0,
        5.2954,
        0.863,
    ),
    (
        "llmfoundry-103-3b-s2048-a100",
        mpt(32, 2560, 20),
        "a100-sxm-80",
        20480,
        2048,
        2,
        "bf16",
        0,
        3.7887,
        0.858,
    ),
    (
        "llmfoundry-119-760m-s2048-a100",
        mpt(24, 1536, 12),
        "a100-sxm-80",
        49152,
        2048,
        2,
        "bf16",
        0,
        3.0309,
        0.830,
    ),
    # 65,536 rows at once with full recompute
    (
        "llmfoundry-097-7b-s1024-a100",
        mpt(32, 4096, 32),
        "a100-sxm-80",
        65536,
        1024,
        2,
        "bf16",
        1,
        30.0831,
        1.037,
    ),
    # eager FSDP of 2023 with its Triton attention on H100: much time is not in today's kernels
    (
        "llmfoundry-040-7b-s1024-h100",
        mpt(32, 4096, 32),
        "h100-sxm",
        65536,
        1024,
        2,
        "bf16",
        1,
        12.8464,
        0.820,
    ),
]


SUSTAINS_MORE = {"llmfoundry-097-7b-s1024-a100"}
"""Steps on A100 that sustain more than those of the op table: 0.79 of the peak there, 0.85 and 0.94 in two
tables of others.  A part cannot exceed the whole: it is 0.97 of it with 0.85."""


@pytest.mark.parametrize("step", STEPS, ids=[s[0] for s in STEPS])
def test_kernels_of_a_step_beside_the_measured_step(step):
    name, arch, gpu, rows, sequence, microbatches, dtype, repeats, measured, found = step
    share = compute_time(arch, GPUS[gpu], rows, sequence, microbatches, dtype, repeats) / measured
    assert share == pytest.approx(found, abs=0.01)
    assert 0.78 < share < (1.04 if name in SUSTAINS_MORE else 1.0)


# SimuMax docs/b200/b200_release_v1.2 (12 layers of Llama-3-70B, bf16, microbatch 1); MLPerf training v5.1 log
# files (llama31_8b, 16 sequences of 8,192 on 8 GPUs, fp8 or fp4): tp, microbatches, measured step [s], found
LLAMA_70B_12 = replace(load_model("llama-3-70b"), layers=12)
MISSED = [
    (LLAMA_70B_12, "b200-sxm", 4096, "bf16", 2, 4, 0.7255, 0.590),
    (LLAMA_70B_12, "b200-sxm", 4096, "bf16", 2, 32, 5.3765, 0.625),
    (LLAMA_70B_12, "b200-sxm", 4096, "bf16", 4, 4, 0.4098, 0.539),
    (LLAMA_70B_12, "b200-sxm", 4096, "bf16", 4, 32, 2.9646, 0.573),
    (LLAMA_70B_12, "b200-sxm", 4096, "bf16", 8, 32, 2.0737, 0.419),
    (load_model("llama-3.1-8b"), "b200-sxm", 8192, "fp8", 1, 2, 0.45066, 1.002),
    (load_model("llama-3.1-8b"), "b300-sxm", 8192, "fp8", 1, 2, 0.40599, 1.067),
    (load_model("llama-3.1-8b"), "b300-sxm", 8192, "fp8", 1, 2, 0.55024, 0.788),
]


@pytest.mark.parametrize("step", MISSED)
def test_the_misses_are_as_large_as_the_page_says(step):
    arch, gpu, sequence, dtype, tp, microbatches, measured, found = step
    share = compute_time(arch, GPUS[gpu], sequence, sequence, microbatches, dtype, tp=tp) / measured
    assert share == pytest.approx(found, abs=0.01)
