"""DeepSeek-V3's own run, in no record and no fit: 180,000 H800 hours for a trillion tokens.

DeepSeek-AI, DeepSeek-V3 technical report (arXiv 2412.19437), table 1 and section 3: 2,048 H800, DualPipe over
16 stages, experts over 64 GPUs of 8 servers, a token's on 4 servers at most, ZeRO-1, 15,360 sequences of
4,096 tokens; fp8 with a scale per block, tokens dispatched in fp8, moments in bf16; norms, up-projections of
latent attention and activations computed again.  Their framework is their own (HAI-LLM), no era of ours, and
it gives 20 of 132 multiprocessors to communication.
"""

from __future__ import annotations

from functools import cache

from railwright.measure.machines import published_machine
from railwright.model import load_model
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training import simulate

GPUS, SEQUENCES, TOKENS = 2048, 15360, 4096
PUBLISHED = 180e3
"""GPU hours for 10^12 tokens."""

LAYOUT = Layout(
    pipeline=16,
    expert=64,
    schedule="dualpipe",
    recompute="selective",
    recompute_modules=("layernorm", "mla_up_proj", "moe_act"),
)


@cache
def hours(dtype: str, dispatch: str) -> float:
    """Predicted GPU hours for 10^12 tokens."""
    job = TrainingJob(
        name="deepseek-v3",
        model="deepseek-v3",
        gpus=GPUS,
        sequence=TOKENS,
        global_batch=SEQUENCES,
        tokens=14.8e12,
        dtype=dtype,  # type: ignore[arg-type]
        dispatch_dtype=dispatch,  # type: ignore[arg-type]
        moment_dtype="bf16",
        expert_nodes=4,
        layout=LAYOUT,
        overlap=Overlap(ep=True),
    )
    # their activations are kept in narrower formats than ours: by our model the run would not fit
    step = simulate(
        job, load_model(job.model), published_machine("H800", GPUS, None), must_fit=False, most_events=0
    )
    return GPUS * step.step_time / 3600 * 1e12 / (SEQUENCES * TOKENS)


def test_hours_for_a_trillion_tokens() -> None:
    error = hours("fp8_block", "fp8") / PUBLISHED - 1
    assert -0.15 <= error <= -0.06, error


def test_what_8_bits_save() -> None:
    """The run would have taken a fifth more in 16 bits, and a few percent more with 16 bits on the wire."""
    assert 1.15 <= hours("bf16", "bf16") / hours("fp8_block", "fp8") <= 1.35
    assert 1.0 < hours("fp8_block", "bf16") / hours("fp8_block", "fp8") <= 1.07
