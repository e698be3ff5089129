"""Jobs that people send: when, how long, on how many GPUs; read from accounting files, or drawn."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

from railwright.errors import Mistake, PlanError, RailwrightError, SpecError, nearest


@dataclass(frozen=True)
class Job:
    """One job.

    submit    since the first job of its trace [s]
    duration  it runs, undisturbed [s]
    gpus      it needs, all of them from start to end
    """

    submit: float
    duration: float
    gpus: int


@dataclass(frozen=True)
class Columns:
    """How one kind of file names what a job is; `end` stands for a time, `duration` for seconds."""

    kind: str
    submit: str
    gpus: str
    duration: str = ""
    start: str = ""
    end: str = ""

    def wanted(self) -> tuple[str, ...]:
        return tuple(x for x in (self.submit, self.gpus, self.duration, self.start, self.end) if x)


KNOWN = (
    Columns("Railwright", "submit", "gpus", duration="duration"),
    Columns("Philly, as Sia's simulator keeps it", "timestamp", "num_gpus", duration="duration"),
    Columns("Helios", "submit_time", "gpu_num", duration="duration"),
    Columns("Alibaba openb", "creation_time", "num_gpu", start="scheduled_time", end="deletion_time"),
    Columns("sacct -X -P -o Submit,ElapsedRaw,AllocTRES", "Submit", "AllocTRES", duration="ElapsedRaw"),
)
"""Known headers.  Sources: siasosp23/artifacts traces/philly.csv; S-Lab HeliosData cluster_log.csv;
alibaba/clusterdata cluster-trace-gpu-v2023 openb_pod_list_*.csv; Slurm sacct(1)."""


STEPS = (
    "lines with and without 'billing' stand together, so steps of jobs are among them, which would count "
    "their GPUs again; write the file with sacct -X, or with JobID among its columns"
)
"""A job's own line has billing in its AllocTRES, its batch step's has none (sacct(1))."""


def read_jobs(path: str | Path, most: int | None = None) -> tuple[Job, ...]:
    """The jobs of a file with GPUs and a duration, in order of submission; those without either are left out.

    CSV, or sacct's output with '|', plain or gzipped.  most: take only so many, the first submitted.
    Raises SpecError naming the file and the line for what cannot be read, PlanError where no job is left.
    """
    name = str(path)
    try:
        with (gzip.open if name.endswith(".gz") else open)(path, "rt", encoding="utf-8", newline="") as text:
            found = list(_rows(text, name))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise SpecError([Mistake(name, 0, 0, "", f"cannot be read: {_words(error)}")]) from None
    if not found:
        raise PlanError(f"{name}: no job in it has GPUs and a duration")
    found.sort(key=lambda row: row[0])
    first = found[0][0]
    return tuple(Job(submit - first, length, gpus) for submit, length, gpus in found[:most])


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "it is cut off" if isinstance(error, EOFError) else str(error)


def _rows(text: Iterable[str], name: str) -> Iterator[tuple[float, float, int]]:
    lines = iter(text)
    head = next(lines, "")
    separator = "|" if "|" in head else ","
    titles = [t.strip() for t in next(csv.reader([head], delimiter=separator), [])]
    columns = next((c for c in KNOWN if set(c.wanted()) <= set(titles)), None)
    if columns is None:
        raise SpecError([Mistake(name, 1, 0, "", _unknown(titles))])
    steps = columns.gpus == "AllocTRES" and "JobID" not in titles
    billed: set[bool] = set()
    for number, row in enumerate(csv.reader(lines, delimiter=separator), start=2):
        if not row or (len(row) == 1 and not row[0].strip()):
            continue
        if len(row) < len(titles):
            raise SpecError(
                [Mistake(name, number, 0, "", f"{len(row)} of {len(titles)} fields; the line is cut off")]
            )
        fields = dict(zip(titles, row, strict=False))
        if steps and fields[columns.gpus]:
            billed.add("billing=" in fields[columns.gpus])
            if len(billed) > 1:
                raise SpecError([Mistake(name, number, 0, columns.gpus, STEPS)])
        job = _job(fields, columns, name, number)
        if job:
            yield job


def _unknown(titles: list[str]) -> str:
    ours = KNOWN[0].wanted()
    hint = next((h for t in titles if t not in ours and (h := nearest(t, ours))), "")
    others = "; ".join(f"{c.kind}: {','.join(c.wanted())}" for c in KNOWN[1:])
    return (
        f"the header has no set of columns that is known{hint.rstrip('?')}; write {','.join(ours)} (seconds, "
        f"GPUs, seconds), or one of: {others}"
    )


def _job(row: Mapping[str, str], columns: Columns, name: str, line: int) -> tuple[float, float, int] | None:
    """(submit, duration, GPUs); None for a job without GPUs or that never ran, and for a step of a job."""
    if "." in row.get("JobID", ""):
        return None  # sacct without -X: '123.batch' runs on the GPUs of job 123, which has a line of its own

    def read(field: str, convert: Callable[[str], float]) -> float:
        try:
            return convert(row[field])
        except ValueError:
            raise SpecError([Mistake(name, line, 0, field, f"'{row[field]}' is no number or time")]) from None

    if columns.duration:
        if not row[columns.duration].strip():
            return None
        length = read(columns.duration, float)
    else:
        if not (row[columns.start].strip() and row[columns.end].strip()):
            return None
        length = read(columns.end, _time) - read(columns.start, _time)
    asked = read(columns.gpus, _tres if columns.gpus == "AllocTRES" else float)
    submit = read(columns.submit, _time)
    if not (np.isfinite(length) and np.isfinite(submit)):
        raise SpecError([Mistake(name, line, 0, "", "a time that is not finite")])
    if not asked.is_integer():
        raise SpecError(
            [
                Mistake(
                    name, line, 0, columns.gpus, f"{asked:g} GPUs; jobs share none here, so give whole ones"
                )
            ]
        )
    return (submit, length, int(asked)) if asked > 0 and length > 0 else None


def _time(text: str) -> float:
    """Seconds: a number, or a date and time (without a zone: taken as UTC, so as written)."""
    try:
        return float(text)
    except ValueError:
        read = datetime.fromisoformat(text.strip())
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def _tres(text: str) -> float:
    """GPUs in Slurm's TRES string, 'billing=14,cpu=14,gres/gpu=2,node=1'; 0 without.

    A site that accounts for types alone has only 'gres/gpu:h100=2' (slurm.conf(5), AccountingStorageTRES);
    one that accounts for both has the sum in 'gres/gpu'.
    """
    counts = dict(part.partition("=")[::2] for part in text.split(","))
    if "gres/gpu" in counts:
        return float(counts["gres/gpu"])
    return sum((float(count) for key, count in counts.items() if key.startswith("gres/gpu:")), 0.0)


def drawn(
    sizes: Mapping[int, float], load: float, duration: float, capacity: int, count: int, seed: int = 0
) -> tuple[Job, ...]:
    """Jobs as they might come: Poisson arrivals, exponential durations.

    sizes     GPUs -> share of the jobs
    load      GPU-seconds asked for over those there are
    duration  mean [s]
    capacity  GPUs of the cluster

    Raises RailwrightError for figures that make no sense.
    """
    shares = sizes.values()
    if not sizes or min(sizes) < 1 or not (min(shares) >= 0 and 0 < sum(shares) < math.inf):
        raise RailwrightError("sizes of jobs: give GPUs and shares, like 1:50,8:30,64:20")
    if not (0 < load < math.inf and 0 < duration < math.inf and count > 0):
        raise RailwrightError("load, duration and number of jobs must be above zero, and finite")
    if seed < 0:
        raise RailwrightError(f"the seed is {seed}; give a whole number from 0")
    share = np.array(list(sizes.values()), float) / sum(sizes.values())
    rng = np.random.default_rng(seed)
    gpus = rng.choice(np.array(list(sizes)), count, p=share)
    mean = float(share @ np.array(list(sizes), float))
    gaps = rng.exponential(duration * mean / (load * capacity), count)
    lengths = rng.exponential(duration, count)
    submits = np.cumsum(gaps) - gaps[0]
    assert all(a <= b for a, b in pairwise(submits))
    return tuple(Job(float(s), float(d), int(g)) for s, d, g in zip(submits, lengths, gpus, strict=True))
