"""What one GPU's tables of one engine say, as a file of measured kernels for serving."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from railwright.catalog.parts import Gpu
from railwright.errors import RailwrightError, nearest
from railwright.measure.optables.attending import attention
from railwright.measure.optables.fitting import Found, Reduced, Subject, Tables
from railwright.measure.optables.grids import Judged, grid, judged
from railwright.measure.optables.package import ENGINES, NAME, Package, system_of, systems
from railwright.measure.optables.products import NAMES as PRODUCT_NAMES
from railwright.measure.optables.products import products
from railwright.measure.optables.routed import BESIDE_FP8, experts, reductions
from railwright.measure.optables.routed import NAMES as EXPERT_NAMES
from railwright.serving.kernels.constants import PEAK, WIDTH, type_of
from railwright.serving.kernels.measured import FORM, attention_fit, experts_fit, gemm_fit
from railwright.serving.kernels.times import AttentionRow, ExpertRow, GemmRow, Speeds

LICENCE = "Apache-2.0, NVIDIA CORPORATION & AFFILIATES"


@dataclass(frozen=True)
class Line:
    """One kernel that was read."""

    found: Found
    judged: Judged
    raw: Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """All kernels of a GPU and an engine, and where they come from."""

    gpu: str
    engine: str
    version: str
    subject: Subject
    package: Package
    lines: tuple[Line, ...]
    reduced: tuple[Reduced, ...]

    def text(self) -> str:
        """The file: JSON, a row a line."""
        rows: dict[str, Any] = {"gemm": {}, "attention": {}, "experts": {}, "all_reduce": {}}
        for line in self.lines:
            place = rows
            for key in line.found.path[:-1]:
                place = place.setdefault(key, {})
            place[line.found.path[-1]] = _row(line)
        for one in self.reduced:
            rows["all_reduce"].setdefault(one.engine, {})[str(one.ranks)] = {
                "bytes": one.sizes.tolist(),
                "seconds": [float(f"{v:.5g}") for v in np.maximum.accumulate(one.seconds)],
                "table": one.table,
            }
        speeds = self.subject.speeds
        head = {
            "form": FORM,
            "gpu": self.gpu,
            "engine": self.engine,
            "version": self.version,
            "package": {
                "name": NAME,
                "version": self.package.version,
                "system": self.subject.system,
                "licence": LICENCE,
            },
            "speeds": {"peak": speeds.peak, "bandwidth": speeds.bandwidth, "sms": speeds.sms},
        }
        start = json.dumps(head, indent=1)[:-2]
        return f'{start},\n "rows": {_lines(rows, 1)}\n}}\n'


def read_source(package: Package, gpu: Gpu, engine: str, version: str | None = None) -> Source:
    """The kernels of a GPU under an engine, from its tables of a version; default: the package's current one.

    Raises RailwrightError where the package has no such tables, or one that cannot be read.
    """
    system = system_of(gpu.name)
    package.systems()
    if engine not in ENGINES:
        hint = nearest(engine, ENGINES) or f"; they are {', '.join(ENGINES)}"
        raise RailwrightError(f"--engine: there are no kernels of '{engine}'{hint}")
    known = package.all_versions(system, engine)
    has = [e for e in ENGINES if package.all_versions(system, e)]
    if not known:
        said = f"it has those of {', '.join(has)}" if has else "it has none of any engine"
        raise RailwrightError(
            f"{NAME} {package.version} has no tables of {engine} for {gpu.name} ('{system}'); {said}."
        )
    if version is not None and version not in known:
        raise RailwrightError(
            f"--version: {NAME} {package.version} has no tables of {engine} {version} for {gpu.name}; it has "
            f"{', '.join(known)}."
        )
    versions = {e: newest for e in has if (newest := package.current(system, e))}
    versions[engine] = version or versions[engine]
    subject = subject_of(gpu, system)
    tables = Tables(package, versions)
    found = [*products(tables, subject, engine), *attention(tables, subject, (engine,))]
    found += experts(tables, subject, (engine,))
    lines = tuple(_line(one, subject) for one in found)
    reduced = tuple(reductions(tables, subject, (engine,)))
    if not lines:
        raise RailwrightError(
            f"{NAME} {package.version}: none of the tables of {engine} {versions[engine]} for {gpu.name} "
            f"holds kernels that are read; name another version: {', '.join(known)}."
        )
    return Source(
        gpu=gpu.name,
        engine=engine,
        version=versions[engine],
        subject=subject,
        package=package,
        lines=lines,
        reduced=reduced,
    )


def subject_of(gpu: Gpu, system: str) -> Subject:
    """A GPU of the catalogue as its tables are read, with the peaks and widths that serving predicts by."""
    bf16 = gpu.peak_flops.get("bf16") or gpu.peak_flops["fp16"]
    names = {**PRODUCT_NAMES, **EXPERT_NAMES}
    peaks = {}
    for dtype, name in names.items():
        faster = gpu.peak_flops.get("fp8" if dtype == BESIDE_FP8 else PEAK.get(name, ""))
        peaks[dtype] = faster / bf16 if faster else 1.0
    widths = {dtype: WIDTH[name] for dtype, name in names.items()}
    speeds = Speeds(bf16, gpu.hbm_bandwidth, gpu.sms)
    return Subject(system, speeds, float(systems()[system]["cache"]), peaks, widths)


def _line(found: Found, subject: Subject) -> Line:
    raw = grid(found.measured)
    return Line(found, judged(raw, _fit(found, subject)), raw)


def _fit(found: Found, subject: Subject) -> Any:
    """The fit of a row, as serving evaluates it."""
    constants, speeds = rounded(found), subject.speeds
    kind, name = found.path[0], found.path[-1]
    if kind == "attention":
        byte = 1.0 if name.endswith("fp8") else 2.0
        return attention_fit(name.rsplit("_", 1)[0], AttentionRow(**constants), speeds, byte)
    own = type_of(name)
    peak = next(subject.peaks[d] for d, n in {**PRODUCT_NAMES, **EXPERT_NAMES}.items() if n == own)
    if kind == "experts":
        peak = constants.pop("peak", peak)
        return experts_fit(ExpertRow(**constants), speeds, peak, WIDTH[own])
    quantise = peak > 1.0 or name.endswith("_static")
    return gemm_fit(GemmRow(**constants), speeds, peak, WIDTH[own], quantise)


def rounded(found: Found) -> dict[str, Any]:
    """Constants as they are written."""
    return {name: float(f"{value:.3e}") for name, value in found.constants.items()}


def _row(line: Line) -> dict[str, Any]:
    fit, told = line.found.fit, line.judged
    return {
        **rounded(line.found),
        "error": round(fit.error, 1),
        "left_out": round(fit.left_out, 1),
        "rows": fit.rows,
        "at_points": round(told.fit, 1),
        "near": round(told.near, 1),
        "between": round(told.between, 1),
        "table": line.found.table,
        "points": {"scale": told.scale, **line.raw},
    }


def _lines(tree: Mapping[str, Any], depth: int) -> str:
    """Mappings over lines down to rows, which take one each."""
    pad = " " * (depth + 1)
    items: Iterable[str] = (
        f"{pad}{json.dumps(key)}: "
        + (
            json.dumps(value, separators=(",", ":"), allow_nan=False)
            if "table" in value
            else _lines(value, depth + 1)
        )
        for key, value in tree.items()
    )
    inside = ",\n".join(items)
    return f"{{\n{inside}\n{' ' * depth}}}" if inside else "{}"
