"""The eight steps of Korthikanti et al. 2022 (arXiv 2205.05198), tables 3 and 5: Calculon's own check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from railwright.collectives.machine import Machine
from railwright.measure.machines import published_machine
from railwright.measure.table import Row
from railwright.measure.training.habits import HABITS
from railwright.measure.training.models import gpt
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training import simulate

SOURCE = "arXiv 2205.05198, tables 3 and 5 (175B and 1T: read; 22B and 530B: memory)"


class Published(NamedTuple):
    """One model of the tables, trained with tensor parallelism of 8.

    chunks          virtual stages of each
    micro           sequences of a microbatch
    full, selective  a step with everything computed again, and with sequence parallelism and selective
                    recomputation [s]
    """

    name: str
    layers: int
    hidden: int
    heads: int
    pipeline: int
    chunks: int
    gpus: int
    batch: int
    micro: int
    full: float
    selective: float


STEPS = (
    Published("22B", 48, 6144, 64, 1, 1, 8, 4, 4, 1.42, 1.10),
    Published("175B", 96, 12288, 96, 8, 3, 64, 64, 1, 18.13, 13.75),
    Published("530B", 105, 20480, 128, 35, 3, 280, 280, 1, 49.05, 37.83),
    Published("1T", 128, 25600, 160, 64, 1, 512, 512, 1, 94.42, 71.49),
)


def korthikanti_rows() -> Iterator[Row]:
    """All eight predicted; the fit of their era has seen those of 175B and 1T."""
    for one in STEPS:
        for spread, measured in ((False, one.full), (True, one.selective)):
            job, arch, machine = korthikanti_run(one.name, spread)
            step = simulate(job, arch, machine, must_fit=False, most_events=0)
            what = f"{one.gpus} GPUs, {'selective, SP' if spread else 'all computed again'}"
            yield Row(
                "Korthikanti table 5",
                f"{one.name} {spread}",
                what,
                step.step_time,
                measured,
                "s/step",
                SOURCE,
            )


def korthikanti_run(wanted: str, spread: bool) -> tuple[TrainingJob, Transformer, Machine]:
    """The job, model and machine of one step; `spread`: sequence parallelism and selective recomputation."""
    one = next(step for step in STEPS if step.name == wanted)
    habits = HABITS["korthikanti"]
    arch = gpt(f"megatron-{one.name}", one.layers, one.hidden, one.heads, vocab=51200, positions=2048)
    job = TrainingJob(
        name=one.name,
        model=one.name,
        gpus=one.gpus,
        sequence=2048,
        global_batch=one.batch,
        micro_batch=one.micro,
        tokens=1e9,
        dtype="fp16",
        layout=Layout(
            tensor=8,
            pipeline=one.pipeline,
            virtual_pipeline=one.chunks,
            sequence_parallel=spread,
            recompute="selective" if spread else "full",
        ),
        overlap=Overlap(dp=habits.dp, pp=habits.pp),
        software=habits.era,
    )
    return job, arch, published_machine("A100", one.gpus, 200.0)
