"""How long one prediction of a 10,000-GPU training step takes, first and after warm-up.

Run: .venv/bin/python benchmarks/training_step_speed.py
Prints wall and CPU milliseconds of the first call (which asks the network for every collective), and the
median of five later ones, for one job each of what large machines run.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from railwright.measure.machines import published_machine
from railwright.model import load_model
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training import simulate

GPT_175B = Transformer(
    "gpt-175b", 96, 12288, 51200, 96, 96, 128, 49152, gated=False, position_embeddings=2048
)
CASES: list[tuple[str, Transformer, dict[str, Any]]] = [
    ("175B, TP 8 PP 8", GPT_175B, {"tensor": 8, "pipeline": 8}),
    ("175B, TP 8 PP 8, 2 chunks", GPT_175B, {"tensor": 8, "pipeline": 8, "virtual_pipeline": 2}),
    ("175B, TP 8 PP 8 CP 2", GPT_175B, {"tensor": 8, "pipeline": 8, "context": 2}),
    ("DeepSeek-V3, TP 2 PP 16 EP 64", load_model("deepseek-v3"), {"tensor": 2, "pipeline": 16, "expert": 64}),
    (
        "DeepSeek-V3, PP 16 EP 64, DualPipe",
        load_model("deepseek-v3"),
        {"pipeline": 16, "expert": 64, "schedule": "dualpipe"},
    ),
    (
        "DeepSeek-V3, PP 4 x 4 EP 64, in pairs",
        load_model("deepseek-v3"),
        {"pipeline": 4, "virtual_pipeline": 4, "expert": 64},
    ),
    ("175B, FSDP in groups of 512", GPT_175B, {"zero": 3, "shard": 512}),
]


def main() -> None:
    machine = published_machine("H100", 10240, None)
    print(f"{'job':38} {'first ms':>10} {'(CPU)':>8} {'later ms':>10} {'(CPU)':>8}")
    for name, arch, layout in CASES:
        job = _job(arch, layout)
        first = _timed(job, arch, machine)
        later = [_timed(job, arch, machine) for _ in range(5)]
        wall, cpu = (statistics.median(one[i] for one in later) for i in (0, 1))
        print(f"{name:38} {first[0]:10.0f} {first[1]:8.0f} {wall:10.1f} {cpu:8.1f}")


def _job(arch: Transformer, layout: dict[str, Any]) -> TrainingJob:
    cut = Layout(sequence_parallel=True, recompute="full", **layout)
    data = 10240 // (cut.tensor * cut.context * cut.pipeline)
    return TrainingJob(
        name="speed",
        model=arch.name,
        gpus=10240,
        sequence=2048 if not arch.is_moe else 4096,
        global_batch=data * (32 if cut.pipeline > 1 else 4),
        tokens=1e9,
        layout=cut,
        overlap=Overlap(ep=arch.is_moe),
    )


def _timed(job: TrainingJob, arch: Transformer, machine: Any) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    simulate(job, arch, machine, must_fit=False)
    return 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu)


if __name__ == "__main__":
    main()
