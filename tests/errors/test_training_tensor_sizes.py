"""What a refusal of tensor parallelism offers instead: sizes that no other check refuses."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.checks.plan import refusals
from training_cases import DENSE, MOE, changed, job, machine, refusal

SCOUT = replace(MOE, heads=40, kv_heads=8, head_dim=128, ffn=8192, expert_ffn=8192)
"""Llama 4 Scout's widths: 40 heads, of which 5, 10 and 40 parts are no server's, nor key-value heads'."""


@pytest.mark.parametrize(
    ("asked", "arch", "offered"),
    [
        (job(gpus=32, tensor=16), SCOUT, (1, 2, 4, 8)),
        (job(gpus=32, tensor=10), SCOUT, (1, 2, 4, 8)),
        (job(gpus=32, tensor=5, expert=8), SCOUT, (1, 2, 4)),
        (job(gpus=32, tensor=5, pipeline=8), SCOUT, (1, 2, 4)),
        (job(gpus=32, tensor=3), replace(DENSE, heads=12, kv_heads=12, ffn=3072), (1, 2, 4)),
        (job(gpus=32, tensor=8, expert_tensor=3), SCOUT, (1, 2, 4, 8, 16, 32)),
    ],
    ids=["heads", "servers", "experts", "stages", "a model of twelve heads", "cuts of experts"],
)
def test_what_a_refusal_offers_is_refused_by_no_other_check(
    asked: TrainingJob, arch: Transformer, offered: tuple[int, ...]
) -> None:
    text = refusal(asked, arch)
    listed = re.search(r"; ([\d, ]+) work\.$", text)
    assert listed is not None, text
    assert tuple(map(int, listed[1].split(", "))) == offered
    field = "expert_tensor" if asked.layout.expert_tensor else "tensor"
    fabric = machine(4).network.fabric
    for size in range(1, 73):
        other = changed(asked, layout=asked.layout.model_copy(update={field: size}))
        assert (refusals(other, arch, fabric) == ()) == (size in offered), size
