"""vTrain's single-server times: 1,440 steps of GPT models on up to 8 A100, composed from profiles of a layer.

The published rows are called measured, but no machine is that regular: within each of the 32 combinations
of hidden size, tensor parallelism and microbatch they are one layer's time taken microbatches + stages - 1
times, and sums of constants, to 0.07 % in the mean and exactly for tensor parallelism of 8
(tests/validation/test_vtrain_profiles.py).  That is how vTrain itself predicts (src/predictor.py), from a
trace of one layer on one GPU (profiler/cupti.cpp), for which CUPTI runs kernels one at a time (its activity
KERNEL, which cupti_activity.h says serialises them; CONCURRENT_KERNEL does not).  So they tell the times of
kernels and launches, and a gap between kernels that is the profiler's and no step's.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache
from importlib import resources

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.measure.machines import Unsupported, published_machine
from railwright.measure.table import Row, Skipped
from railwright.measure.training.habits import HABITS
from railwright.measure.training.models import gpt
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Layout, Overlap, Software, TrainingJob
from railwright.training import simulate
from railwright.training.software.eras import Pace, eras

EVERY = 10
"""The constants of these rows' era are fitted on every tenth row, from the first (tools/fit_training.py)."""

PACE = "ampere 16-bit"
"""Where the rows' GPUs stand in their era's factors."""

WORDS = 50257
"""GPT-2's vocabulary."""

TRACED: Software = "megatron-2021-traced"
"""The era of the rows, with the profiler's gap between kernels in its pace.  One microbatch leaves its weight
gradients as they are, and nothing adds them up (src/trainer.py: one pass after zero_grad)."""

SOURCE = "vTrain (MICRO 2024), artifact: single-node validation data"


def single_rows() -> Iterator[Row | Skipped]:
    """Every row that no constant was fitted on."""
    for number, record in enumerate(single_records()):
        if number % EVERY == 0:
            continue
        name = f"row {number}"
        try:
            job, arch, machine = single_job(record), single_model(record), single_machine(record)
            predicted = simulate(job, arch, machine, must_fit=False, pace=profiled(), most_events=0).step_time
        except (Unsupported, PlanError) as no:
            yield Skipped("vTrain single server", name, str(no).split(";")[0])
            continue
        what = "hidden {hidden}, {layers} layers, TP{tp} PP{pp} DP{dp} microbatch {mbs}".format(**record)
        measured = float(record["iteration_ms"]) / 1e3
        yield Row("vTrain single server", name, what, predicted, measured, "s/step", SOURCE)


def profiled() -> Pace:
    """The pace of the rows' era: on one GPU, so that none waits for another's."""
    return eras()[TRACED].pace[PACE]


@lru_cache(maxsize=1)
def single_records() -> tuple[dict[str, str], ...]:
    """The carried rows (tools/carry_training.py), as text."""
    text = resources.files("railwright.measure").joinpath("data/vtrain_single.csv")
    return tuple(csv.DictReader(text.read_text(encoding="utf-8").splitlines()))


def single_model(record: dict[str, str]) -> Transformer:
    """GPT with 16 heads, GPT-2's vocabulary and learned positions.

    The profiled head holds 50257 // tp words, without Megatron's padding: with 1 and 2 ranks an odd number
    and a multiple of 8, which is why its time falls to a fifth from one to two.
    Source: vTrain, src/model/gpt_modeling.py, ShardedGptLogit.
    """
    hidden, layers, tp = int(record["hidden"]), int(record["layers"]), int(record["tp"])
    found = gpt(
        f"gpt-{hidden}-{layers}l", layers, hidden, int(record["heads"]), WORDS // tp * tp, positions=1024
    )
    return replace(found, vocab_multiple=1)


def single_job(record: dict[str, str]) -> TrainingJob:
    """One row's job: fp16, nothing overlapped, no recomputation."""
    habits = HABITS["vtrain"]
    return TrainingJob(
        name="vtrain",
        model="gpt",
        gpus=int(record["gpus"]),
        sequence=int(record["seq"]),
        global_batch=int(record["gbs"]),
        micro_batch=int(record["mbs"]),
        tokens=1e9,
        dtype="fp16",
        layout=Layout(tensor=int(record["tp"]), pipeline=int(record["pp"]), zero=0),
        overlap=Overlap(dp=habits.dp, pp=habits.pp),
        software=TRACED,
    )


@cache
def _machine(gpus: int) -> Machine:
    return published_machine("A100", gpus, None)


def single_machine(record: dict[str, str]) -> Machine:
    """Some of the GPUs of one server."""
    return _machine(int(record["gpus"]))
