"""Published peaks of memory, and jobs that ran or ended for lack of it, beside what is predicted of them.

data/published_memory.yaml has the jobs, their sources, and the rules they are read by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from railwright.collectives import Machine
from railwright.measure.machines import published_machine
from railwright.measure.training.unseen_runs import OF_MACHINE, laid_over
from railwright.model import load_model
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.checks.plan import check
from railwright.training.memory.cached import reserved
from railwright.training.memory.peak import SYSTEM, peak_memory
from railwright.units import GIB

FILE = Path(__file__).parent / "data" / "published_memory.yaml"
UNITS = {"GiB": GIB, "GB": 1e9}


@dataclass(frozen=True)
class Case:
    """One job as it was published.

    of         what was read: tensors `allocated`, segments `reserved`, or all that is `used` of a GPU
    measured   [byte]; 0 where only the end is told
    ran        whether it ran, rather than ended for lack of memory
    capacity   of a GPU [byte]
    """

    group: str
    name: str
    framework: str
    of: str
    measured: float
    ran: bool
    capacity: float
    job: TrainingJob
    arch: Transformer
    machine: Machine


@dataclass(frozen=True)
class Predicted:
    """What is predicted of a case. [byte]

    total      what `railwright run` holds against the GPU's memory
    beside     what stands beside what was measured
    fits       whether `railwright run` takes it
    warned     whether it says then that memory in pieces runs out all the same
    """

    total: float
    beside: float
    fits: bool
    warned: bool

    @property
    def answer(self) -> str:
        """`refused`, `warned` or `taken`."""
        return "refused" if not self.fits else "warned" if self.warned else "taken"


@cache
def _file() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


@cache
def _arch(name: str) -> Transformer:
    shapes = _file()["models"]
    if name not in shapes:
        return load_model(name)
    shape = shapes[name]
    heads = shape["heads"]
    return Transformer(name, **({"kv_heads": heads, "head_dim": shape["hidden"] // heads} | shape))


def _nested(path: str, value: object) -> dict[str, Any]:
    first, _, rest = path.partition(".")
    return {first: _nested(rest, value) if rest else value}


@cache
def cases() -> tuple[Case, ...]:
    """All of the file."""
    return tuple(_cases())


def _cases() -> Iterator[Case]:
    groups = _file()["groups"]
    for group, told in groups.items():
        of_group: Mapping[str, Any] = {**groups[told["like"]], **told} if "like" in told else told
        for row in of_group["rows"]:
            fields: dict[str, Any] = dict(of_group["shared"])
            for column, value in zip(of_group["columns"], row, strict=True):
                if column.startswith("lora.") and value is None:
                    continue
                fields = laid_over(fields, _nested(column, value))
            yield _case(group, of_group, fields, row)


def _case(group: str, told: Mapping[str, Any], fields: dict[str, Any], row: list[Any]) -> Case:
    measured, capacity = fields.pop("measured"), fields.pop("capacity", told.get("capacity"))
    machine = published_machine(nic_gbps=None, **{k: fields.pop(k) for k in OF_MACHINE if k in fields})
    arch, gpus = _arch(fields["model"]), len(row) and _gpus(told, row)
    layout = fields["layout"]
    if layout.get("recompute_modules", 0) is None:
        fields["layout"] = {k: v for k, v in layout.items() if k != "recompute_modules"} | {
            "recompute": "none"
        }
    micro = fields.setdefault("micro_batch", 1)
    ranks = gpus // (layout.get("tensor", 1) * layout.get("pipeline", 1) * layout.get("context", 1))
    fields = {"global_batch": micro * ranks, **fields, "name": group, "gpus": gpus, "tokens": 1e9}
    job = TrainingJob.model_validate({k: _tuples(v) for k, v in fields.items()})
    number = isinstance(measured, int | float)
    return Case(
        group,
        f"{group}: " + " ".join(str(v) for v in row),
        told["framework"],
        told["of"],
        measured * UNITS[told["unit"]] if number else 0.0,
        measured != "oom",
        capacity * GIB if capacity else machine.gpu.hbm_bytes,
        job,
        arch,
        machine,
    )


def _gpus(told: Mapping[str, Any], row: list[Any]) -> int:
    columns = told["columns"]
    return int(row[columns.index("gpus")] if "gpus" in columns else told["shared"]["gpus"])


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(value) if isinstance(value, list) else value


@cache
def predicted(index: int) -> Predicted:
    """Of `cases()[index]`; a job that no plan allows raises PlanError."""
    case = cases()[index]
    fabric = case.machine.network.fabric
    check(case.job, case.arch, fabric)
    memory = peak_memory(case.job, case.arch, fabric, case.capacity)
    beside = memory.total - memory.parts[SYSTEM]
    held = reserved(case.job, case.arch, fabric, memory)
    if case.of != "allocated":
        beside = held.reserved if held else beside
        beside += memory.parts[SYSTEM] * (case.of == "used")
    short = held is not None and held.short > 0
    return Predicted(memory.total, beside, memory.total <= case.capacity, short)
