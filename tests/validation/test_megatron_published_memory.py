"""Peaks of tensors that Megatron's own tests and guides state, in no record; nothing was fitted to them.

Megatron-LM (a snapshot of 22 August 2026), tests/functional_tests/test_cases: `mem-max-allocated-bytes` of
the last rank, with all arguments in model_config.yaml.  Megatron-Bridge (same day), skills/nemo-mbridge-perf-
activation-recompute/SKILL.md, 'Matched H100 Evidence: Moonlight 16B', by recipes/moonlight/h100.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import NamedTuple

import pytest

from railwright.measure.machines import published_machine
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Layout, Overlap, RecomputeModule, TrainingJob
from railwright.training.lanes.result import StageMemory
from railwright.training.memory.peak import SYSTEM, peak_memory
from railwright.units import GIB

SEVEN = Transformer(
    name="gpt3-7b",
    layers=32,
    hidden=4096,
    vocab=131_200,
    heads=32,
    kv_heads=8,
    head_dim=128,
    ffn=16384,
    gated=False,
    rotary=False,
    position_embeddings=8192,
    attention_bias=True,
    output_bias=True,
    mlp_bias=True,
    norm_bias=True,
)
"""gpt3_7b_*_memory_speed: 131,073 words, padded to a multiple of 128 per tensor rank."""

MOONLIGHT = Transformer(
    name="moonlight-16b",
    layers=27,
    hidden=2048,
    vocab=163_840,
    heads=16,
    kv_heads=16,
    head_dim=128,
    ffn=11264,
    gated=True,
    attention="mla",
    kv_lora=512,
    rope_dim=64,
    v_head_dim=128,
    experts=64,
    experts_per_token=6,
    expert_ffn=1408,
    shared_experts=2,
    shared_ffn=2816,
    dense_layers=1,
    router_bias=True,
)


def last_stage(
    arch: Transformer, software: str, micro_batch: int, sequence: int, layout: Layout, **fields: object
) -> tuple[StageMemory, float]:
    """Memory of the last of 8 GPUs, and what of it is tensors. [byte]"""
    job = TrainingJob(
        name="published",
        model=arch.name,
        gpus=8,
        sequence=sequence,
        micro_batch=micro_batch,
        tokens=1e9,
        dtype="bf16",
        software=software,  # type: ignore[arg-type]
        layout=layout,
        **fields,  # type: ignore[arg-type]
    )
    machine = published_machine("H100", 8, None)
    found = peak_memory(job, arch, machine.network.fabric, machine.gpu.hbm_bytes).stages[-1]
    return found, found.total - found.parts[SYSTEM]


class Seven(NamedTuple):
    """GiB of the last rank on H100, A100 and GB200, whose containers differ."""

    layout: Layout
    micro_batch: int
    vocab: int
    gib: tuple[float, float, float]


@pytest.mark.parametrize(
    "row",
    [
        Seven(Layout(pipeline=4, virtual_pipeline=8, zero=1), 1, 131_200, (56.551, 56.335, 56.363)),
        Seven(Layout(tensor=4, zero=1), 2, 131_584, (53.219, 54.192, 54.219)),
    ],
    ids=["tp1-pp4", "tp4-pp1"],
)
def test_a_gpt_of_seven_billion_parameters(row: Seven) -> None:
    """Within 2.1 %, with the masks of the dropout that Megatron defaults to (0.1)."""
    arch = replace(SEVEN, vocab=row.vocab)
    more = {"global_batch": 8, "unfused": ("loss",), "hidden_dropout": 0.1, "attention_dropout": 0.1}
    _, tensors = last_stage(arch, "megatron-2025", row.micro_batch, 8192, row.layout, **more)
    for gib in row.gib:
        assert tensors / GIB == pytest.approx(gib, rel=0.021)


MOONLIGHT_PEAKS: dict[tuple[RecomputeModule, ...], float] = {
    (): 36.618,
    ("mla_up_proj",): 35.902,
    ("mla_up_proj", "mlp"): 35.917,
    ("moe_act",): 35.941,
    ("layernorm", "moe_act"): 35.949,
}
"""Modules computed again -> GB (1e9) on 8 H100, TP 2, EP 8, a sequence of 4,096 tokens a microbatch,
gradients and moments in bf16."""


def test_moonlight_with_five_sets_of_modules_computed_again() -> None:
    """3.6 to 5.6 % too low.  What is computed again saves 0.7 GB whatever it is, where we say 0.9 to 1.3:
    below 35.9 GB something else is fullest, which we do not know."""
    errors = []
    for modules, measured in MOONLIGHT_PEAKS.items():
        again = {"recompute": "selective", "recompute_modules": modules} if modules else {}
        layout = Layout(
            tensor=2,
            expert=8,
            expert_tensor=1,
            sequence_parallel=True,
            zero=1,
            **again,  # type: ignore[arg-type]
        )
        _, tensors = last_stage(
            MOONLIGHT,
            "megatron-2026",
            1,
            4096,
            layout,
            global_batch=4,
            gradient_dtype="bf16",
            moment_dtype="bf16",
            overlap=Overlap(shared=True),
        )
        errors.append(tensors / 1e9 / measured - 1)
    assert max(map(abs, errors)) <= 0.06
    assert mean(errors) == pytest.approx(-0.045, abs=0.01)
