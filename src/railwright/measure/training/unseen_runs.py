"""Training runs that other people published, in no record and no fit: what a fit of records is worth there.

data/unseen_runs.yaml says which, where each was read, what is assumed of it, and what was left out.  Their
errors are in the bands beside those of records left out (`bands`).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from inspect import signature
from typing import Any

from railwright.collectives.machine import Machine
from railwright.measure.machines import published_machine
from railwright.measure.table import Row
from railwright.model import load_model
from railwright.model.counts.parameters import count_parameters
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import kind_of
from railwright.shipped import parse, read_data
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.software.constants import family_of
from railwright.training.software.eras import era_of
from railwright.units import DAY

RUNS = "runs "
"""How families of such runs begin."""

OF_MACHINE = tuple(signature(published_machine.__wrapped__).parameters)
"""Fields of a run that are `published_machine`'s."""


@cache
def sources() -> dict[str, Any]:
    """The file: `models` and `groups`, with the runs of those that name a table."""
    found: dict[str, Any] = read_data("measure", "unseen_runs.yaml")
    for told in found["groups"].values():
        if "table" in told:
            told["runs"] = runs_of_table(told["table"])
    return found


def runs_of_table(name: str) -> dict[str, Any]:
    """Runs of a CSV: one a row, whose columns are fields, those of nested maps with a dot.

    An empty cell is a field that the row does not say, and a list is written as in YAML.
    """
    text = files("railwright.measure").joinpath("data", name).read_text(encoding="utf-8")
    return {row.pop("run"): nested(row) for row in csv.DictReader(text.splitlines())}


def nested(row: Mapping[str, str]) -> dict[str, Any]:
    """A row's cells, as maps inside each other: 'layout.tensor' -> layout -> tensor."""
    found: dict[str, Any] = {}
    for column, cell in row.items():
        *above, last = column.split(".")
        inside = found
        for key in above if cell else ():
            inside = inside.setdefault(key, {})
        if cell:
            inside[last] = parse(cell)
    return found


@dataclass(frozen=True)
class Run:
    """One published run: what ran, and the value that was published of it in `unit`.

    steps  in a run of which only the time of all of them is told
    """

    group: str
    name: str
    machine: Machine
    gpus: int
    arch: Transformer
    job: TrainingJob
    unit: str
    value: float
    steps: int = 1

    @property
    def tokens(self) -> int:
        """Of one step."""
        return self.job.global_batch * self.job.sequence

    @property
    def measured(self) -> float:
        """Seconds of one step."""
        return SECONDS[self.unit](self)


def flops(run: Run) -> float:
    """FLOPs of one step as most publications count them.

    6 N a token, and 12 L h s of attention without a causal mask.  Source: Chowdhery et al., PaLM (arXiv
    2204.02311), appendix B.
    """
    arch = run.arch
    attention = 12 * arch.layers * arch.hidden * run.job.sequence
    return run.tokens * (6 * count_parameters(arch).total + attention)


SECONDS: dict[str, Callable[[Run], float]] = {
    "s": lambda run: run.value,
    "days": lambda run: run.value * DAY / run.steps,
    "tokens/s/GPU": lambda run: run.tokens / (run.value * run.gpus),
    "TFLOP/s/GPU": lambda run: flops(run) / (run.value * 1e12 * run.gpus),
    "MFU": lambda run: flops(run) / (run.value * run.machine.gpu.peak_flops["bf16"] * run.gpus),
}
"""Published unit -> seconds of one step."""


@cache
def architecture(name: str) -> Transformer:
    """One of the file's own models, which may be another one but for some fields, or a bundled one."""
    if name not in sources()["models"]:
        return load_model(name)
    shape = dict(sources()["models"][name])
    if "base" in shape:
        return replace(architecture(shape.pop("base")), name=name, **shape)
    heads = shape["heads"]
    return Transformer(name, **({"kv_heads": heads, "head_dim": shape["hidden"] // heads} | shape))


def laid_over(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The second map's values on top of the first one's; maps inside are laid over each other."""
    both = {k: laid_over(under[k], v) for k, v in over.items() if isinstance(under.get(k), Mapping)}
    return {**under, **over, **both}


def run_of(group: str, name: str) -> Run:
    """One run of the file. A field that is neither a machine's nor a job's is an error of the job."""
    told = sources()["groups"][group]
    fields = laid_over(told["shared"], told["runs"][name])
    published = {"value": fields.pop("measured"), "steps": fields.pop("steps", 1)}
    machine = {"nic_gbps": None} | {k: fields.pop(k) for k in OF_MACHINE if k in fields}
    arch, gpus = architecture(fields["model"]), machine["gpus"]
    fields |= {"name": f"{group}-{name}", "gpus": gpus, "tokens": 1e12}
    job = TrainingJob.model_validate_json(json.dumps(fields))
    return Run(
        group=group,
        name=str(name),
        machine=published_machine(**machine),
        gpus=gpus,
        arch=arch,
        job=job,
        unit=told["unit"],
        **published,
    )


@cache
def runs() -> tuple[Run, ...]:
    """Every run of the file."""
    groups = sources()["groups"]
    return tuple(run_of(group, name) for group, told in groups.items() for name in told["runs"])


def groups_of_runs() -> dict[str, str]:
    """Run -> its group: the runs of one group share much of their error, as the records of a family."""
    return {run.job.name: run.group for run in runs()}


def runs_in_ranges() -> frozenset[str]:
    """Runs that count in the ranges of predictions: all but those of a mode that no job can say."""
    groups = sources()["groups"]
    return frozenset(run.job.name for run in runs() if groups[run.group].get("in_ranges", True))


def frameworks_of_runs() -> dict[str, str]:
    """Run -> the framework it ran on (`training.software.eras.Era.framework`)."""
    return {run.job.name: era_of(run.job).framework for run in runs()}


def unseen_rows() -> Iterator[Row]:
    """Every run predicted beside what was measured."""
    for run in runs():
        result = simulate(run.job, run.arch, run.machine, must_fit=False, most_events=0)
        told = sources()["groups"][run.group]
        yield Row(
            RUNS + family_of(kind_of(run.arch), run.machine.gpu.name, run.job.dtype),
            run.job.name,
            f"{told['title']}: {run.name}",
            result.step_time,
            run.measured,
            "s/step",
            told["source"],
            told["known"],
            left_out=result.step_time,
            launches=result.launch_share,
        )
