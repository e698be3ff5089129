"""Who asks: people, their jobs, and how fast both grow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from railwright.errors import RailwrightError, nearest

Task = Literal["inference", "lora", "finetune", "pretrain"]
TASKS: tuple[Task, ...] = get_args(Task)

HOURS_OF_WEEK = 168.0
LARGEST = 4096
"""GPUs of one job up to which the ladder is meant; beyond, a study of its own is due."""
MOST_LOAD = 16384.0
"""GPUs busy on average up to which it is meant."""


@dataclass(frozen=True)
class Ask:
    """What a group of people wants of GPUs.

    gpu_hours  of one user in a week, on whatever GPU the step has [h]
    job_gpus   GPUs of a usual job
    sequence   tokens of a sequence, or of a request with its answer
    tokens     of one run, None: not said
    growth     of the load in a year, 0.5 for half as much again
    rate       of inference: requests a second at the busiest time, in place of users and GPU-hours [1/s]
    """

    users: int
    gpu_hours: float
    model: str
    task: Task
    job_gpus: int = 1
    sequence: int = 4096
    tokens: float | None = None
    growth: float = 0.0
    rate: float | None = None

    def load(self, pace: float, answer: int) -> float:
        """GPUs busy on average, now.

        pace    tokens of answers of one GPU [1/s];  answer  tokens of one: what a rate of requests needs them
                for; GPU-hours are GPU-hours
        """
        if self.rate is not None:
            return self.rate * answer / pace
        return self.users * self.gpu_hours / HOURS_OF_WEEK


def check(ask: Ask) -> None:
    """Raises RailwrightError naming the option, what it was, and what it may be."""
    if ask.task not in TASKS:
        hint = nearest(str(ask.task), TASKS) or f"; choose one of {', '.join(TASKS)}"
        raise RailwrightError(f"--task: there is no '{ask.task}'{hint}")
    if ask.rate is not None and ask.task != "inference":
        raise RailwrightError(
            f"--rate is of requests, and --task {ask.task} has none; give --users and --gpu-hours"
        )
    people = (("--users", ask.users), ("--gpu-hours", ask.gpu_hours)) if ask.rate is None else ()
    for option, value in (
        *people, ("--rate", ask.rate), ("--job-gpus", ask.job_gpus), ("--sequence", ask.sequence),
        ("--tokens", ask.tokens),
    ):  # fmt: skip
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise RailwrightError(f"{option} is {value:g}; give a number above 0")
    if not (-0.9 <= ask.growth <= 20 and math.isfinite(ask.growth)):
        raise RailwrightError(
            f"--growth is {ask.growth:g}; give the change of a year, from -0.9 to 20, e.g. 0.5 for half more"
        )
    if ask.job_gpus > LARGEST:
        raise RailwrightError(
            f"--job-gpus is {ask.job_gpus:,}; this ladder ends at jobs of {LARGEST:,} GPUs, "
            "write a study for larger ones (railwright init)"
        )
    if ask.rate is None:
        check_load(ask, ask.load(1.0, 1))


def check_load(ask: Ask, load: float) -> None:
    """Raises RailwrightError where so many busy GPUs are beyond this ladder."""
    if load <= MOST_LOAD:
        return
    if ask.rate is None:
        said = f"--users {ask.users:,} with --gpu-hours {ask.gpu_hours:g} keep"
    else:
        said = f"--rate {ask.rate:g} keeps"
    raise RailwrightError(
        f"{said} {load:,.0f} GPUs busy; this ladder ends at {MOST_LOAD:,.0f}, write a study for more "
        "(railwright init)"
    )
