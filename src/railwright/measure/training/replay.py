"""Published training steps replayed: same model, GPUs and layout; our step time beside theirs."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.measure.machines import Unsupported
from railwright.measure.table import Row, Skipped
from railwright.measure.training.jobs import DTYPES, job_of, machine_for
from railwright.measure.training.mlperf import configuration_of
from railwright.measure.training.models import architecture_of, architectures
from railwright.measure.training.reasons import reason_of
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import kind_of
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.checks.plan import check
from railwright.training.layout.sizes import Sizes
from railwright.training.memory.cached import cached
from railwright.training.memory.peak import SYSTEM, peak_memory, system_bytes
from railwright.training.software.constants import width_of
from railwright.training.software.eras import Pace, pace_keys, waiting
from railwright.units import GIB

READ_GB = 1000 * 2.0**20
"""What bigscience calls a GB of a GPU's memory. [byte]

It read nvidia-smi (train/tr11-176B-ml/chronicles-prequel.md, "was quickly getting the memory snapshot with"),
which prints MiB, and wrote thousands of them: 80 GB of one A100, of which PyTorch sees 79.1 to 79.3 GiB (its
errors: OOTDiffusion issue 235, SVD_Xtend issue 39) and drivers of 2022 print 81,251 MiB."""


def records() -> Iterator[dict[str, str]]:
    """The carried rows (tools/carry_training.py), and those of tables that we read ourselves, as text.

    The latter (`training_read.csv`, quality R) are in no bar of issue 6, which counts the former's.
    """
    data = resources.files("railwright.measure").joinpath("data")
    for name in ("training.csv", "training_read.csv"):
        yield from csv.DictReader(data.joinpath(name).read_text(encoding="utf-8").splitlines())


def record_rows(part: int = 0, parts: int = 1) -> Iterator[Row | Skipped]:
    """Every record predicted, or left out with the reason; of so many parts in a row only one."""
    every = list(records())
    for record in every[len(every) * part // parts : len(every) * (part + 1) // parts]:
        family = f"training {family_of(record)}"
        try:
            yield record_row(record, family)
        except (Unsupported, PlanError) as no:
            yield Skipped(family, record["id"], _grouped(str(no), ANY))


def memory_rows() -> Iterator[Row | Skipped]:
    """Peak memory of every record that states it: tensors allocated, or all that is resident on the GPU."""
    for record in records():
        if not (record["allocated_gib"] or record["resident_gb"]):
            continue
        try:
            yield _memory(record)
        except (Unsupported, PlanError) as no:
            family = "memory allocated" if record["allocated_gib"] else "memory resident"
            yield Skipped(family, record["id"], _grouped(str(no), record["id"]))


def family_of(record: Mapping[str, str]) -> str:
    """'dense H100 bf16': the GPU generation, dtype and kind of model that share kernels and constants."""
    arch = architectures().get(record["model"])
    kind = "dense" if arch is None else kind_of(arch)
    said = configuration_of(record).get("dtype", record["dtype"])
    dtype = DTYPES.get(said, said)
    return f"{kind} {record['gpu'].removesuffix('-40')} {width_of(dtype)}"


def record_row(record: Mapping[str, str], family: str) -> Row:
    """One record predicted, also with factors its family had no say in. Raises Unsupported or PlanError."""
    job, gpus, machine = job_of(record), int(record["gpus"]), machine_for(record)
    same = job.model_copy(update={"name": ANY}), architecture_of(record), machine
    seconds, tokens, launches = _simulated(*same)
    what = (
        f"{gpus} GPUs, TP{record['tp'] or 1} PP{record['pp'] or 1} EP{record['ep'] or 1} {record['software']}"
    )
    if record["step_time_s"]:
        measured = float(record["step_time_s"])
    else:
        measured = tokens / (float(record["tokens_s_gpu"]) * gpus)
    pace = (
        fitted_families()
        .get(record["family"], {})
        .get(f"{job.software} | {pace_keys(machine.gpu, job.dtype)[0]}")
    )
    left_out = seconds if pace is None else _simulated(*same, waiting(Pace(**pace), gpus))[0]
    return Row(
        family,
        record["id"],
        what,
        seconds,
        measured,
        "s/step",
        record["source"],
        reason_of(record, seconds / measured - 1),
        left_out=left_out,
        launches=launches,
    )


ANY = "record"
"""Name of a job that several records ran: releases often differ in nothing that is modelled."""


@lru_cache(maxsize=2048)
def _simulated(
    job: TrainingJob, arch: Transformer, machine: Machine, pace: Pace | None = None
) -> tuple[float, int, float]:
    """Step time [s] and tokens of a step, and the share in which its GPU waits for launches."""
    step = simulate(job, arch, machine, pace=pace, must_fit=False, most_events=0)
    return step.step_time, step.tokens, step.launch_share


@lru_cache(maxsize=1)
def fitted_families() -> dict[str, dict[str, dict[str, Any]]]:
    """Family -> era and GPU -> factors fitted without it (tools/fit_training.py); no fit has seen others."""
    text = resources.files("railwright.measure").joinpath("data/training_left_out.json")
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(text.read_text(encoding="utf-8"))
    return found


def _memory(record: Mapping[str, str]) -> Row:
    """One record's peak memory. Raises Unsupported or PlanError."""
    job, arch = job_of(record), architecture_of(record)
    machine = machine_for(record)
    check(job, arch, machine.network.fabric)
    memory = peak_memory(job, arch, machine.network.fabric, machine.gpu.hbm_bytes)
    what = f"TP{record['tp'] or 1} PP{record['pp'] or 1} microbatch {record['mbs']}, {record['software']}"
    if record["allocated_gib"]:
        predicted, measured = memory.total - memory.parts[SYSTEM], float(record["allocated_gib"])
        family = "memory allocated"
    else:
        predicted, measured = resident(job, arch, machine), float(record["resident_gb"]) * READ_GB / GIB
        family = "memory resident"
    return Row(family, record["id"], what, predicted / GIB, measured, "GiB", record["source"])


def resident(job: TrainingJob, arch: Transformer, machine: Machine) -> float:
    """What nvidia-smi shows of the fullest GPU of the first and last stage while the second step's passes
    run: when and where bigscience read it (train/tr11-176B-ml/chronicles-prequel.md, "max memory used by the
    first (last) nodes").  Its NICs reach no GPU: no /GDRDMA in the log that `MEASURED_NICS` names. [byte]"""
    fabric = machine.network.fabric
    system = system_bytes(job, Sizes.of(job, fabric), staged=fabric.gpus_per_server)
    room = machine.gpu.hbm_bytes - system
    ends = {0, job.layout.pipeline - 1}
    held = [cached(job, arch, fabric, stage, room) for stage in ends]
    return system + max(one.second for one in held if one is not None)


def _grouped(reason: str, record: str) -> str:
    """The reason without the record's name and figures, so that equal reasons are counted together."""
    text = reason.removeprefix(f"{record}: ").split(";")[0].split("\n")[0]
    if "GiB" in text:
        return "does not fit the GPU's memory by our model"
    return re.sub(r"\d+(\.\d+)?", "#", text.split(" (")[0])
