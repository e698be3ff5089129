"""A file of measured kernels (`railwright kernels`): read, checked, and laid over the shipped rows.

It holds, for one GPU and the tables of one engine, rows of constants as serving/data/kernels/ does and the
measurements that they were fitted on, which correct them where they were made (serving/kernels/points.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from railwright.catalog.parts import Gpu
from railwright.compute.gemm import Shape
from railwright.errors import PlanError, RailwrightError
from railwright.serving.kernels.points import Fit, Points
from railwright.serving.kernels.times import (
    AttentionRow,
    ExpertRow,
    Floats,
    GemmRow,
    Speeds,
    decode_seconds,
    experts_seconds,
    gemm_seconds,
    prefill_seconds,
)

FORM = "railwright kernels 1"
"""The first field of every file; the number rises when what is in it changes."""

MAY_BE_ZERO = ("error", "near", "even", "ramp", "unit", "row", "spread", "pad")
"""Constants of rows that need not be above zero."""

LATENT_CACHE = 512.0 + 64.0
"""Values of one token of latent attention in the cache."""


@dataclass(frozen=True, eq=False)
class KernelFile:
    """What a file says.

    path     as it was read;  gpu  catalogue name;  engine  'vllm', 'trtllm' or 'sglang'
    package  name, version, folder of the GPU's tables;  version  of the engine whose tables were read
    speeds   that the fractions in `rows` are of
    rows     'gemm' -> type -> row, 'attention' and 'experts' -> engine -> kernel -> row, 'all_reduce' ->
             engine -> GPUs -> {'bytes', 'seconds'}, as `Kernels.tables`; a row's 'points' were measured
    """

    path: str
    gpu: str
    engine: str
    package: Mapping[str, str]
    version: str
    speeds: Speeds
    rows: dict[str, Any]
    made: dict[int, Points] = field(default_factory=dict, repr=False)

    def points(self, row: Mapping[str, Any], fit: Fit) -> Points:
        """The measurements of one of its rows around their fit; made once."""
        found = self.made.get(id(row))
        if found is None:
            try:
                found = self.made[id(row)] = points_of(row["points"], fit)
            except (KeyError, TypeError, ValueError) as error:
                raise _not_one(self.path, error) from None
        return found

    def check(self, job: str, gpu: Gpu, engine: str) -> None:
        """Raise PlanError where the file is of another GPU or of another engine's kernels."""
        if (self.gpu, self.engine) != (gpu.name, engine):
            raise PlanError(
                f"{job}: kernels: '{self.path}' was measured on {self.gpu} with {self.engine}, but the job "
                f"runs on {gpu.name} with {engine}'s kernels; write one by `railwright kernels {gpu.name} "
                f"--engine {engine} --out FILE`, or leave `kernels` out for the shipped fits."
            )

    def over(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Shipped tables with the file's rows in the place of those it has."""
        own = dict(tables) | {"gemm": {**tables["gemm"], **self.rows["gemm"]}}
        for part in ("attention", "experts", "all_reduce"):
            families = dict(tables[part])
            for family, rows in self.rows[part].items():
                families[family] = {**families.get(family, {}), **rows}
            own[part] = families
        return own


def read_kernels(path: str) -> KernelFile:
    """The file at a path; read again only when it has changed.

    Raises RailwrightError where it cannot be read, or is not such a file.
    """
    try:
        seen = Path(path).stat()
    except OSError as error:
        raise RailwrightError(
            f"{path}: cannot be read ({error.strerror}); `kernels` names a file of `railwright kernels`."
        ) from None
    return _read(path, seen.st_mtime_ns, seen.st_size)


@lru_cache(maxsize=4)
def _read(path: str, changed: int, size: int) -> KernelFile:
    wanted = "write it anew by `railwright kernels`"
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RailwrightError(f"{path}: cannot be read ({error.strerror}); {wanted}.") from None
    except ValueError:
        raise RailwrightError(f"{path}: is not JSON, or not all of it is there; {wanted}.") from None
    if not isinstance(plain, dict) or plain.get("form") != FORM:
        raise RailwrightError(f"{path}: form: is not '{FORM}', so not a file of this release; {wanted}.")
    try:
        return _parsed(path, plain)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _not_one(path, error) from None


def _not_one(path: str, error: Exception) -> RailwrightError:
    return RailwrightError(
        f"{path}: is not as `railwright kernels` writes it ({type(error).__name__}: {error}); write it anew "
        "by `railwright kernels`."
    )


def _parsed(path: str, plain: Mapping[str, Any]) -> KernelFile:
    said = plain["speeds"]
    speeds = Speeds(float(said["peak"]), float(said["bandwidth"]), int(said["sms"]))
    rows: dict[str, Any] = {part: plain["rows"][part] for part in ("gemm", "attention", "experts")}
    for row in rows["gemm"].values():
        _check_row(row, GemmRow)
    for part, kind in (("attention", AttentionRow), ("experts", ExpertRow)):
        for row in (row for family in rows[part].values() for row in family.values()):
            _check_row(row, kind)
    rows["all_reduce"] = {
        family: {int(ranks): _pair(pair) for ranks, pair in by.items()}
        for family, by in plain["rows"]["all_reduce"].items()
    }
    package = {key: str(plain["package"][key]) for key in ("name", "version", "system")}
    return KernelFile(
        path, str(plain["gpu"]), str(plain["engine"]), package, str(plain["version"]), speeds, rows
    )


def _check_row(row: Mapping[str, Any], kind: type) -> None:
    """Raise KeyError, TypeError or ValueError where a row lacks a constant, or has one that is none."""
    own = ("peak",) if "peak" in row else ()
    for name in (*(f.name for f in fields(kind)), "error", "near", *own):
        if name == "points":
            row[name]
        elif not (0.0 if name in MAY_BE_ZERO else 1e-30) <= float(row[name]) < float("inf"):
            raise ValueError(f"{name} is {row[name]}")
    str(row["table"])


def _pair(pair: Mapping[str, Any]) -> dict[str, list[float]]:
    found = {key: [float(v) for v in pair[key]] for key in ("bytes", "seconds")}
    if len(found["bytes"]) != len(found["seconds"]) or len(found["bytes"]) < 2:
        raise ValueError("an all-reduce has as many sizes as times")
    if min(found["seconds"]) <= 0 or not (np.diff(found["bytes"]) > 0).all():
        raise ValueError("times of all-reduces are above zero, and their sizes rise")
    return found


def points_of(plain: Mapping[str, Any], fit: Fit) -> Points:
    """Points as a file holds them, around a fit. Raises KeyError, TypeError or ValueError."""
    configs, grid = np.array(plain["configs"], float), np.array(plain["microseconds"], float)
    first, second = (np.array(plain[axis], float) for axis in ("first", "second"))
    if configs.ndim != 2 or grid.shape != (len(configs), len(first), len(second)):
        raise ValueError("points do not fit their axes")
    if not (np.diff(first) > 0).all() or not (np.diff(second) > 0).all() or not (configs > 0).all():
        raise ValueError("an axis of points does not rise")
    if (grid <= 0).any() or np.isinf(grid).any() or not float(plain["scale"]) > 0:
        raise ValueError("points are no times")
    return Points(configs, first, second, grid * 1e-6, float(plain["scale"]), fit)


def gemm_fit(row: GemmRow, speeds: Speeds, peak: float, width: float, quantise: bool) -> Fit:
    """Fitted seconds of a product (n, k) at m rows."""

    def fit(config: Floats, m: Floats, _: Floats) -> Floats:
        return gemm_seconds(Shape(m, config[0], config[1]), row, speeds, peak, width, quantise)

    return fit


def attention_fit(kind: str, row: AttentionRow, speeds: Speeds, byte: float) -> Fit:
    """Fitted seconds of 'decode', 'prefill', 'mla_decode' or 'mla_prefill' of (kv_heads, heads, work).

    At requests and context, or prompts and length;  byte  of one value in the cache.
    """

    def decode(config: Floats, requests: Floats, context: Floats) -> Floats:
        kv, heads, work = config
        cached = byte * (LATENT_CACHE if kind.startswith("mla") else work / 2.0)
        return decode_seconds(requests, context, kv, cached, heads, work, row, speeds)

    def prefill(config: Floats, prompts: Floats, length: Floats) -> Floats:
        kv, heads, work = config
        return prefill_seconds(prompts, length, 0.0, heads, work, row, speeds, kv)

    return prefill if kind.endswith("prefill") else decode


def experts_fit(row: ExpertRow, speeds: Speeds, peak: float, width: float) -> Fit:
    """Fitted seconds of experts (experts of this GPU, each token's, ranks, hidden, inner) at tokens."""

    def fit(config: Floats, tokens: Floats, _: Floats) -> Floats:
        here, each, ranks, hidden, inner = config
        rows = tokens * each / ranks
        active = np.minimum(here, np.maximum(rows, 1.0))
        spread = float(ranks > 1)
        return experts_seconds(rows, active, hidden, inner, row, speeds, peak, width, spread=spread)

    return fit
