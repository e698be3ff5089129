"""How long an exhaustive search takes: Megatron-1T on 4,096 H100, over a space as large as Calculon's.

Calculon (calculon-ai/calculon, llm-optimal-execution) tries 7,276,848 executions for this model on 4,096
processors with a batch of 4,096; counted with its own generators at commit caa4b11.
It ends with the best layout's steps under other schedules: where split passes gain, where they lose.
With 'experts': mixtures of experts instead, DeepSeek-V3 on 1,024 H100 and Qwen3 235B on 512.
Run: python benchmarks/search.py [top | experts]

Measured: docs/training/search.md.
"""

from __future__ import annotations

import sys
import time

from railwright.catalog import load_catalog
from railwright.collectives import Machine, NcclSettings
from railwright.model import load_model
from railwright.model.shape.architecture import Transformer
from railwright.search import Space, search
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training import simulate

CALCULON = 7_276_848

MODEL = Transformer(
    "megatron-1t", layers=128, hidden=25600, vocab=51200, heads=160, kv_heads=160, head_dim=160, ffn=102400,
    gated=False, source="Calculon, models/megatron-1T.json",
)  # fmt: skip
JOB = TrainingJob(
    name="bar",
    model="megatron-1t",
    sequence=2048,
    global_batch=4096,
    tokens=450e9,
    layout=Layout(tensor=8, pipeline=64, sequence_parallel=True, recompute="full"),
)
SPACE = Space(
    {
        "context": (1, 2),
        "zero": (0, 1),
        "offload": ((), ("optimizer",), ("activations",), ("optimizer", "activations")),
        "placement": ("packed", "spread"),
        "schedule": ("auto", "zb-h1", "zb-v", "gpipe", "dualpipe", "dualpipe-v"),
    }
)

EXPERTS = (
    (
        TrainingJob(
            name="deepseek",
            model="deepseek-v3",
            sequence=4096,
            global_batch=8192,
            tokens=14.8e12,
            dtype="fp8",
        ),
        128,
        Space({"schedule": ("auto", "dualpipe-v"), "tensor": (1, 2, 4)}),
        3,
    ),
    (
        TrainingJob(name="qwen", model="qwen3-235b-a22b", sequence=4096, global_batch=1024, tokens=1e12),
        64,
        Space(),
        10,
    ),
)
"""Jobs of mixtures of experts, their servers, their spaces, and how many layouts are listed."""

SCHEDULES = (("auto", 1), ("auto", 4), ("auto", 16), ("zb-h1", 1), ("zb-h1", 16), ("zb-v", 1))
"""Schedules, each with the virtual stages of a GPU, that `compare` times."""


def compare(machine: Machine) -> None:
    """Print steps of one layout (tensor parallelism of 16, 8 stages) under each of `SCHEDULES`."""
    print("schedule  virtual  step      bubble    tensor parallelism exposed")
    for schedule, virtual in SCHEDULES:
        layout = Layout(
            tensor=16,
            pipeline=8,
            virtual_pipeline=virtual,
            schedule=schedule,
            sequence_parallel=True,
            recompute="none",
        )
        job = JOB.model_copy(
            update={
                "gpus": 4096,
                "micro_batch": 2,
                "layout": layout,
                "overlap": Overlap(tp=True, dp=True, pp=True),
            }
        )
        step = simulate(job, MODEL, machine, must_fit=False, most_events=0)
        exposed = {share.kind: share.exposed for share in step.shares}
        times = f"{step.step_time:6.3f} s  {exposed['bubble']:6.3f} s  {exposed['tp']:6.3f} s"
        print(f"{schedule:<9} {virtual:>7}  {times}")


def experts() -> None:
    """Print what searches of `EXPERTS` take, with three leaner points of the front each."""
    for job, servers, space, top in EXPERTS:
        machine, cpu = machine_of(servers), time.process_time()
        result = search(job, load_model(job.model), machine, space, top=top)
        cpu, effort = time.process_time() - cpu, result.effort
        print(f"{job.model:<16} {8 * servers:>5} H100  {effort.layouts:>10,} layouts  {cpu:5.1f} s of CPU")
        print(f"  {effort.evaluated} timed exactly, best {result.best[0].time:.3f} s")


def machine_of(servers: int) -> Machine:
    """So many DGX H100 on rails."""
    network = ComputeNetwork(family="rail-optimised", switch="qm9700")
    cluster = Cluster(servers=servers, server="dgx-h100", compute=network)
    return Machine.of(cluster, load_catalog(), NcclSettings())


def main() -> None:
    if sys.argv[1:] == ["experts"]:
        experts()
        return
    top = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    machine = machine_of(512)
    wall, cpu = time.perf_counter(), time.process_time()
    result = search(JOB, MODEL, machine, SPACE, top=top, steps=0)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    effort, best = result.effort, result.best[0]
    print(
        f"layouts            {effort.layouts:,} ({effort.layouts / CALCULON:.2f} of Calculon's {CALCULON:,})"
    )
    print(f"within memory      {effort.fitting:,}")
    print(f"classes of passes  {effort.classes:,}; collectives priced {effort.collectives:,}")
    print(f"screening          {effort.screening:.1f} s")
    print(f"timed exactly      {effort.evaluated}, bounded again {effort.refined}")
    print(f"all                {wall:.1f} s of wall, {cpu:.1f} s of CPU; bar: 60 s on 2 cores")
    print(f"per layout         {1e6 * cpu / effort.layouts:.2f} us of CPU; bar: 15 us")
    print(
        f"best               {best.time:.4f} s, bound {best.bound / best.time:.4f} of it; proof "
        f"{result.proof:.4f} s"
    )
    print(f"                   {dict(best.setting)}")
    compare(machine)


if __name__ == "__main__":
    main()
