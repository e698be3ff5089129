"""Jobs and models whose layouts are searched, and random layouts of a space with their steps."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.search import Space
from railwright.search.bounds.blocks import blocks
from railwright.search.bounds.footprint import Footprint
from railwright.search.bounds.pricing import Pricer
from railwright.search.bounds.screen import Screen
from railwright.search.space.axes import Block, apply
from railwright.search.training.frameworks import FRAMEWORKS
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.lanes.result import StepResult
from training_cases import DENSE, MOE, job, machine

STUDY = """\
railwright: 1
name: small
cluster:
  servers: 2
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700}
jobs:
  - {name: tune, model: llama-3-8b, sequence: 4096, global_batch: 32, tokens: 1e9, layout: {tensor: 8}}
"""
"""One job of a small cluster, as a file."""

PACKED = job(batch=16, sequence=8192).model_copy(update={"sample_length": 512})
TORCHAO = job(batch=32, dtype="fp8").model_copy(update={"software": "fsdp-2024"})
DELAYED = job(batch=32, dtype="fp8").model_copy(update={"amax_over": "stage"})
"""Every pass ends with all ranks of its stage, so jobs that differ in data parallelism share no pass."""

ALTERNATING = replace(
    MOE, layers=6, dense_layers=1, expert_every=2, shared_experts=1, shared_ffn=1024, mtp_layers=1
)
"""d e d e d e and an extra layer: stages of one, two and four hold different mixes."""

AGAIN = job(batch=32, recompute="selective", recompute_modules=("mlp", "moe"))

LATENT = replace(
    ALTERNATING, attention="mla", kv_heads=16, q_lora=384, kv_lora=128, rope_dim=32, v_head_dim=64
)

GATED = replace(
    ALTERNATING, attention_gate="element", expert_layers=(1, 2, 4), sliding_window=512, whole_layers=(0, 3, 5)
)
"""Layers with experts and without windows where no two numbers say it: d e e d e d and an extra one."""

HEADED = replace(
    GATED,
    window_heads=24,
    window_kv_heads=8,
    v_head_dim=32,
    mtp_dense=True,
    pattern=("dense", "windowed moe", "windowed moe", "dense", "windowed moe", "dense"),
    expert_layers=(),
)
"""GATED with heads of their own in the windowed layers."""

LATENT_EXPERTS = replace(MOE, attention="mla", q_lora=256, kv_lora=128, rope_dim=32, v_head_dim=64)
"""Latent attention in layers that are all alike, with neither shared experts nor extra layers."""

HYBRID = replace(MOE, pattern=("attention", "experts") * (MOE.layers // 2))
"""Each block a layer of its own, as Megatron-LM's HybridModel has them."""

CHOOSING = replace(LATENT, index_topk=512, index_heads=8, index_dim=64)
SHARING = replace(
    CHOOSING,
    mtp_layers=0,
    pattern=("dense", "sharing moe", "sharing dense", "moe", "dense", "sharing moe"),
)

WINDOWED = replace(DENSE, sliding_window=256, full_every=3, window_chunked=True)


def drawn(
    arch: Transformer,
    base: TrainingJob,
    space: Space,
    rng: random.Random,
    draws: int,
    server: str = "dgx-h100",
) -> tuple[Screen, list[tuple[Block, tuple[int, ...], StepResult]]]:
    """Random layouts of a space on two servers that can run, and their steps: in pairs of the same block, of
    which a screen bounds all layouts at once."""
    one = machine(2, server=server)
    found, _ = blocks(space, base, arch, one.network.fabric)
    pricer, layouts = Pricer(base, arch, one), []
    chosen = [rng.choice(found) for _ in range(-(-draws // 2))]
    for block in (block for block in chosen for _ in range(2)):
        index = tuple(rng.randrange(n) for n in block.shape)
        try:
            step = simulate(apply(base, block.at(index)), arch, one, kernel=pricer.kernel, most_events=0)
        except PlanError:
            continue
        layouts.append((block, index, step))
    return Screen(pricer, Footprint(base, arch, one.network.fabric)), layouts


def lacks(name: str, arch: Transformer, data: int = 8, **fields: Any) -> str:
    """What of a layout, which torchtitan shards as FSDP2 does unless `fields` say how."""
    layout = {"batch": 64, **fields}
    if name == "torchtitan":
        layout = {"zero": 3, "reduce_each": layout.get("pipeline", 1) == 1, **layout}
    return "; ".join(FRAMEWORKS[name].lacks(job(**layout), arch, data))
