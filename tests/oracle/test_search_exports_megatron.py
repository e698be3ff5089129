"""Exports read by Megatron-LM's own parser, validation and configuration mean the layouts they were made of.

RAILWRIGHT_MEGATRON is a checkout of NVIDIA/Megatron-LM (d98e8a6 is what the exports were written for), and
RAILWRIGHT_TORCH_PYTHON a Python with PyTorch, Triton, einops and packaging; a GPU is not needed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from railwright.model import bundled_models, load_model
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import is_hybrid
from railwright.search.exports.dispatcher import Hosts
from railwright.search.training.export import export
from railwright.search.training.frameworks import FRAMEWORKS
from railwright.search.training.result import Candidate
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.checks.plan import refusals
from railwright.training.layers.stages import layers_per_piece
from training_cases import DENSE, job, machine

CHECKOUT = os.environ.get("RAILWRIGHT_MEGATRON", "")
PYTHON = os.environ.get("RAILWRIGHT_TORCH_PYTHON") or sys.executable
READER = Path(__file__).with_name("megatron_reader.py")

pytestmark = pytest.mark.skipif(
    not Path(CHECKOUT, "megatron", "training", "arguments.py").is_file(),
    reason="RAILWRIGHT_MEGATRON names no checkout of NVIDIA/Megatron-LM",
)


def drawn(seed: int, count: int) -> list[tuple[Transformer, TrainingJob, Hosts]]:
    """Random jobs of bundled models that neither the planner nor Megatron's rules refuse."""
    chance, found = random.Random(seed), []
    models = [load_model(name) for name in bundled_models()]
    # its router's scores are the reader's to add, and Megatron refuses its default for one expert a token
    models = [arch for arch in models if arch.experts_per_token != 1 and not is_hybrid(arch)]
    while len(found) < count:
        arch, servers = chance.choice(models), chance.choice((1, 2, 4))
        layout: dict[str, Any] = {
            "tensor": chance.choice((1, 2, 4, 8)),
            "pipeline": chance.choice((1, 2, 4)),
            "virtual_pipeline": chance.choice((1, 2)),
            "context": chance.choice((1, 1, 2)),
            "context_kind": chance.choice(("ring", "all-gather")),
            "expert": chance.choice((1, 2, 4, 8)) if arch.is_moe else 1,
            "expert_tensor": chance.choice((None, 1)),
            "sequence_parallel": True,
            "zero": chance.choice((0, 1, 2, 3)),
            "recompute": chance.choice(("none", "selective", "full")),
            "recompute_modules": chance.choice((("core_attn",), ("moe_act", "core_attn"), ("layernorm",))),
        }
        one = TrainingJob(
            name="drawn",
            model=arch.name,
            sequence=4096,
            global_batch=64,
            tokens=1e9,
            dtype=chance.choice(("bf16", "fp8", "fp8_block")),
            layout=Layout(**layout),
            overlap=Overlap(dp=chance.random() < 0.7, tp=chance.random() < 0.5, ep=chance.random() < 0.5),
        )
        cluster = machine(servers)
        if refusals(one, arch, cluster.network.fabric):
            continue
        hosts = Hosts.of(one, cluster)
        if not FRAMEWORKS["megatron"].lacks(one, arch, hosts.data):
            found.append((arch, one, hosts))
    return found


def test_megatron_reads_the_layout_that_was_exported() -> None:
    step = simulate(job(), DENSE, machine(2))  # only the head is of the step
    cases = drawn(1, 60)
    given = [
        {
            "text": export(Candidate({}, one, step, 0.0, 0.0), arch, hosts, "megatron"),
            "world": hosts.data * one.layout.tensor * one.layout.pipeline * one.layout.context,
            "capability": 9,
        }
        for arch, one, hosts in cases
    ]
    ran = subprocess.run(
        [PYTHON, READER, CHECKOUT],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    for (arch, one, hosts), read in zip(cases, json.loads(ran.stdout), strict=True):
        layout = one.layout
        pieces = layout.pipeline * layout.virtual_pipeline
        named = ("tensor", "pipeline", "virtual_pipeline", "context", "expert", "recompute")
        assert read == {
            **{name: getattr(layout, name) for name in named},
            "data": hosts.data,
            "sequence_parallel": layout.tensor > 1,
            "layers": list(layers_per_piece(arch.layers, pieces, layout, arch.mtp_layers)),
        }, (arch.name, one)
