"""Fit the factors of the software eras (training/data/eras.yaml) to published training steps.

python tools/fit_training.py [single] [guests]   write eras.yaml and measure/data/training_left_out.json;
                                        with 'single' the constants of single servers are fitted too,
                                        with 'guests' only those of GUESTS are written

Two fits, both robust least squares on the logarithm of predicted over measured step time:
- single servers: the era of vTrain, on every tenth of its 1,440 single-server rows and on nothing else;
  records of bigscience, of Nemotron-H and of vTrain's several servers are never fitted, so their errors are
  left-out errors.
- all other records: a mixed model.  The logarithm of each factor is a sum of effects (all steps, GPU
  generation, GPU and width, attention's kernels, the host's kind of CPU, era, and their combination), each
  drawn towards zero, that is towards isolated kernels, by a prior; a combination without records gets the sum
  of what is known about its parts.  Records weigh 1/sqrt(records of their family), so that a long series of
  one model does not outweigh other models.
Left out: the same fit without one family (model, GPU and publisher) gives the factors that predict it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import cast

import numpy as np
from fit_mixed import GENERATIONS, GUESTS, PARAMETERS, Sample, Values, mixed
from fit_vtrain import single_fit

from railwright.catalog import load_catalog
from railwright.collectives import predict
from railwright.errors import PlanError
from railwright.measure.machines import Unsupported
from railwright.measure.training.jobs import job_of, machine_for
from railwright.measure.training.models import architecture_of
from railwright.measure.training.replay import records
from railwright.measure.training.vtrain import PACE as SINGLE
from railwright.measure.training.vtrain import TRACED
from railwright.spec.training import Software
from railwright.training.checks.plan import check
from railwright.training.layers.communication import Prices
from railwright.training.layout.placement import place
from railwright.training.passes.offload import layer_copies
from railwright.training.passes.work import Work
from railwright.training.software.constants import width_of
from railwright.training.software.eras import ANY_GPU, Pace, attention_kernels, eras, pace_keys, waiting
from railwright.training.software.formats import DTYPES
from railwright.training.software.host import cpu_factor
from railwright.training.step.quick import step_seconds
from railwright.training.step.simulating import kernel_timer
from railwright.training.step.stage import PassBook

ROOT = Path(__file__).parent.parent / "src" / "railwright"
ERAS = ROOT / "training" / "data" / "eras.yaml"
LEFT_OUT = ROOT / "measure" / "data" / "training_left_out.json"

STEP = {"load": 0.15, "attention": 0.15, "memory": 0.15, "gap": 4e-6, "host": 0.3}
"""Change of each for its derivative: logarithms, and seconds."""
SINGLES: tuple[Software, ...] = ("megatron-2021", TRACED)
"""Eras fitted on vTrain's single-server rows: as a step runs them, and as its profiler does."""
ROUNDS = 1
"""Linearisations, each at the last values, from those of the file: launches bound a step or do not, so that
from far off it takes several runs."""
UNSEEN = ("vtrain", "bigscience", "dgxc-nemotronh", "mbridge-nemotron-3")
"""Families that no fit sees.  Nemotron-H's mixers have launches that are not counted (docs/training/
calibration.md): in the fit, the gap and the host of all other models would stand for them."""


def main() -> None:
    """Fit, check every family left out, write both files."""
    single = single_fit() if "single" in sys.argv[1:] else tuple(eras()[era].pace[SINGLE] for era in SINGLES)
    samples = list(_samples())
    values = {s.cell: _start(s.cell) for s in samples}
    with ProcessPoolExecutor(3) as pool:
        for _ in range(ROUNDS):
            todo = [(s.number, values[s.cell]) for s in samples]
            points = [(n, p) for n, at in todo for p in (at, *_moved(at))]
            times = _times(pool, points)
            found, at = [_linear(n, v, times) for n, v in todo], values
            values = mixed(samples, found, at)
        families = sorted({s.family for s in samples})
        without = {
            family: mixed([s for s in samples if s.family != family],
                           [f for s, f in zip(samples, found, strict=True) if s.family != family],
                           at, {s.cell for s in samples if s.family == family})
            for family in families
        }  # fmt: skip
        last = [(s.number, values[s.cell]) for s in samples]
        blind = [(s.number, without[s.family][s.cell]) for s in samples]
        times = _times(pool, last + blind)
        final, unseen = ([_log_ratio(n, v, times) for n, v in found] for found in (last, blind))
    _report(samples, final, unseen)
    every = _everywhere(samples, found, at)
    alone = "guests" in sys.argv[1:]
    _write(samples, final, unseen, every, single, alone)
    left_out = {
        family: {" | ".join(cell): asdict(_pace(v)) | {"source": "left out"} for cell, v in cells.items()}
        for family, cells in without.items()
    }
    if alone:
        kept = json.loads(LEFT_OUT.read_text(encoding="utf-8"))
        keys = _guest_keys(samples)
        left_out = kept | {
            family: {cell: pace for cell, pace in paces.items() if cell.split(" | ")[1] in keys}
            for family, paces in left_out.items()
            if family.startswith(GUESTS)
        }
    LEFT_OUT.write_text(json.dumps(left_out, indent=1) + "\n", encoding="utf-8")


def _pace(values: Values) -> Pace:
    """No kernel runs faster in a step than alone."""
    load = round(max(float(np.exp(values["load"])), 1.0), 3)
    attention = round(max(float(np.exp(values["load"] + values["attention"])), 1.0), 3)
    memory = round(max(float(np.exp(values["memory"])), 1.0), 3)
    host = round(max(float(np.exp(values["host"])), 1.0), 2)
    return Pace(load, attention, memory, round(max(values["gap"], 0.0), 8), host)


def _start(cell: tuple[str, str]) -> Values:
    """The values that the file holds now."""
    gpu = cell[1].split(" ")[0]
    known = eras()[cast(Software, cell[0])].pace
    pace = known.get(cell[1]) or known.get(cell[1].replace(gpu, GENERATIONS[gpu])) or Pace(1.2, 1.2)
    # launches that bind nothing have no derivative: the first fit starts from vTrain's
    host = pace.host if pace.host > 1.0 else eras()[SINGLES[0]].pace[SINGLE].host
    load, memory, host = (float(np.log(v)) for v in (pace.gemm, pace.memory, host))
    attention = float(np.log(pace.attention)) - load
    return {"load": load, "attention": attention, "memory": memory, "gap": pace.gap, "host": host}


@lru_cache(maxsize=1)
def _records() -> list[dict[str, str]]:
    return list(records())


def _samples() -> Iterator[Sample]:
    """All records that are predicted and may be fitted."""
    for number, record in enumerate(_records()):
        if record["family"].startswith(UNSEEN):
            continue
        try:
            job = job_of(record)
            machine = machine_for(record)
            check(job, architecture_of(record), machine.network.fabric)
        except (Unsupported, PlanError):
            continue
        own, kin = pace_keys(machine.gpu, job.dtype)
        GENERATIONS[own.split(" ")[0]] = kin.split(" ")[0]
        yield Sample(number, record["family"], job.software, own)


Times = Mapping[tuple[str, Pace], tuple[float, float]]
"""Job and factors -> step time [s] and tokens of the step."""


@lru_cache(maxsize=4096)
def _job(number: int) -> str:
    """What makes two records the same job: releases often differ in nothing else."""
    record = _records()[number]
    job = job_of(record).model_copy(update={"name": ""})
    return "|".join((job.model_dump_json(), record["gpu"], record["gpus"], record["nic_gbps"]))


def _times(pool: ProcessPoolExecutor, points: list[tuple[int, Values]]) -> Times:
    """Step times of records under factors, each job once."""
    wanted = {(_job(n), _pace(v)): (n, _pace(v)) for n, v in points}
    return dict(zip(wanted, pool.map(_time, wanted.values(), chunksize=5), strict=True))


def _time(task: tuple[int, Pace]) -> tuple[float, float]:
    record = _records()[task[0]]
    pace = waiting(task[1], int(record["gpus"]))
    job, arch, machine = job_of(record), architecture_of(record), machine_for(record)
    # `simulate(...).step_time` to the last bit (tests/twin/test_training_quick.py), in a sixth of the time
    prices = Prices.shared(machine, place(job, machine.network.fabric), predict)
    timed = kernel_timer(machine, pace, attention_kernels(job, machine.gpu))
    book = PassBook(Work(job, arch, prices, timed, pace, layer_copies(job, arch, machine)))
    return step_seconds(job, arch, prices, timed, pace, book), job.global_batch * job.sequence


def _log_ratio(number: int, values: Values, times: Times) -> float:
    """Logarithm of predicted over measured step time of one record."""
    record = _records()[number]
    seconds, tokens = times[_job(number), _pace(values)]
    if record["step_time_s"]:
        measured = float(record["step_time_s"])
    else:
        measured = tokens / (float(record["tokens_s_gpu"]) * int(record["gpus"]))
    return float(np.log(seconds / measured))


def _moved(values: Values) -> list[Values]:
    """The values with each parameter a step further."""
    return [
        {**values, name: (values[name] if name == "attention" else max(values[name], 0.0)) + STEP[name]}
        for name in PARAMETERS
    ]


def _linear(number: int, values: Values, times: Times) -> tuple[float, list[float]]:
    """The logarithm at some values and its derivatives."""
    base = _log_ratio(number, values, times)
    moved = zip(PARAMETERS, _moved(values), strict=True)
    return base, [(_log_ratio(number, there, times) - base) / STEP[name] for name, there in moved]


def _everywhere(
    samples: list[Sample], found: list[tuple[float, list[float]]], at: Mapping[tuple[str, str], Values]
) -> dict[tuple[str, str], Values]:
    """Also the GPUs and generations without a record of that era, GPUs without a record at all whose CPU is
    not the usual one, and ANY_GPU."""
    hosts = {gpu.name: gpu for gpu in load_catalog().gpus.values() if cpu_factor(gpu) > 1.0}
    GENERATIONS.update({name: gpu.generation for name, gpu in hosts.items() if name not in GENERATIONS})
    keys = {s.key for s in samples} | {f"{gpu} {width}" for gpu in hosts for width in ("16-bit", "fp8")}
    keys |= {f"{GENERATIONS[gpu]} {width}" for gpu, width in (key.split(" ") for key in keys)}
    keys |= {f"{ANY_GPU} {width_of(dtype)}" for dtype in DTYPES}
    own = [name for name, era in eras().items() if name not in SINGLES and not era.like]
    wanted = {(str(name), key) for name in own for key in keys}
    return mixed(samples, found, at, wanted)


def _report(samples: list[Sample], final: list[float], unseen: list[float]) -> None:
    """In-sample and left-out error by cell and in all."""
    groups: dict[str, list[int]] = defaultdict(list)
    for i, s in enumerate(samples):
        groups[" | ".join(s.cell)].append(i)
        groups["all"].append(i)
        kind = "moe" if architecture_of(_records()[s.number]).is_moe else "dense"
        groups[kind].append(i)
        if not s.family.startswith(GUESTS):
            groups["all but guests"].append(i)
            groups[f"{kind} but guests"].append(i)
    for name, chosen in groups.items():
        seen, left = (np.expm1(np.array([e[i] for i in chosen])) for e in (final, unseen))
        print(
            f"{name:<45} {len(chosen):>4}  in-sample {np.abs(seen).mean():6.1%} bias {seen.mean():+6.1%}   "
            f"left out {np.abs(left).mean():6.1%} bias {left.mean():+6.1%}"
        )


def _write(
    samples: list[Sample],
    final: list[float],
    unseen: list[float],
    values: Mapping[tuple[str, str], Values],
    single: tuple[Pace, ...],
    alone: bool,
) -> None:
    """Put the factors into eras.yaml; names, words and kernels of the eras stay.

    alone  those of the GUESTS' GPUs; all others stay too
    """
    from ruamel.yaml import YAML

    guests = _guest_keys(samples)
    data = YAML(typ="safe").load(ERAS.read_text(encoding="utf-8"))
    lines = ["# Software eras, oldest first; `pace` is written by tools/fit_training.py."]
    for era, row in data.items():
        lines.append(f"{era}:")
        for key, value in row.items():
            if key != "pace":
                word = isinstance(value, str) and value and " " not in value
                lines.append(f"  {key}: {value if word else json.dumps(value)}")
        if "like" in row:
            continue
        paces = {key: _pace(v) for (e, key), v in sorted(values.items()) if e == era}
        if row.get("plain_modules"):
            paces = {k: replace(p, host=1.0) if k.endswith("16-bit") else p for k, p in paces.items()}
        sources = {key: _source(samples, final, unseen, (era, key)) for key in paces}
        counts = Counter(s.key for s in samples if s.era == era)
        paces = {key: replace(pace, records=counts[key]) for key, pace in paces.items()}
        if alone:
            stay = {k: p for k, p in eras()[era].pace.items() if k not in guests}
            paces = dict(sorted((paces | stay).items()))
            sources |= {key: pace.source for key, pace in stay.items()}
        if era in SINGLES:
            own = single[SINGLES.index(era)]
            paces, sources = {SINGLE: own}, {SINGLE: own.source}
        lines.append("  pace:" if paces else "  pace: {}")
        for key, pace in paces.items():
            lines.append(f"    {key}:")
            plain = asdict(Pace())
            for name, value in asdict(pace).items():
                if name != "source" and value != plain[name]:
                    lines.append(f"      {name}: {value:g}")
            lines.append(f"      source: {json.dumps(sources[key])}")
    ERAS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _guest_keys(samples: list[Sample]) -> set[str]:
    """'mi300x fp8' and 'cdna3 fp8': GPUs and generations that only GUESTS have."""
    own = {s.key for s in samples if s.family.startswith(GUESTS)}
    return own | {f"{GENERATIONS[gpu]} {width}" for gpu, width in (key.split(" ") for key in own)}


def _source(samples: list[Sample], final: list[float], unseen: list[float], cell: tuple[str, str]) -> str:
    chosen = [i for i, s in enumerate(samples) if s.cell == cell]
    if not chosen:
        return "no record: what other eras, GPUs and widths of the fit say (tools/fit_training.py)"
    count = len({samples[i].family for i in chosen})
    seen, left = (np.abs(np.expm1([e[i] for i in chosen])).mean() for e in (final, unseen))
    families = "family" if count == 1 else "families"
    records = "record" if len(chosen) == 1 else "records"
    return (
        f"{len(chosen)} {records} of {count} {families}: mean error {seen:.1%} fitted, {left:.1%} with each "
        "family left out (tools/fit_training.py)"
    )


if __name__ == "__main__":
    main()
