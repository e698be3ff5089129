"""The measured kernels of a GPU as rows, each with its source: serving/data/kernels/."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import numpy as np

from railwright.catalog.parts import Gpu
from railwright.errors import PlanError
from railwright.serving.kernels.cut import carried
from railwright.serving.kernels.flash2 import TileRow
from railwright.serving.kernels.measured import KernelFile, attention_fit, experts_fit, gemm_fit, read_kernels
from railwright.serving.kernels.times import AttentionRow, ElementRow, ExpertRow, Floats, GemmRow, Speeds
from railwright.shipped import read_data
from railwright.spec.serving import Weights

Kind = TypeVar("Kind", GemmRow, AttentionRow, ElementRow, ExpertRow, TileRow)

KNOTS = tuple(float(2**p) for p in (11, 15, 17, 18, 19, 20, 21, 22, 23, 25, 27, 29))
"""Sizes at which all-reduces are tabulated [byte]."""

KIN = {
    "ampere": "a100",
    "ada": "l40s",
    "hopper": "h100",
    "blackwell": "b200",
    "blackwell-ultra": "b200",
    "blackwell-rtx": "rtx-pro-6000",
}
"""Generation -> the GPU whose fractions of peak and bandwidth stand for the others of it."""

WIDTH = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0,
    "nvfp4": 0.5625,
    "mxfp4": 0.53125,
    "int8": 1.0,
    "int4": 0.53125,
}
"""Bytes of one weight with its scales: one byte for 16 values (nvfp4) or 32 (mxfp4); int4: two for 64."""

PEAK = {"fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4"}
"""The peak products in a type run at; those of others are bf16's."""

NARROWER = {
    "fp16": "bf16",
    "fp8_block": "fp8",
    "fp8": "fp8_block",
    "int8": "bf16",
    "int4": "bf16",
    "mxfp4": "bf16",
}
"""The type whose row stands for one without its own."""

_EXPERTS_OF = {
    "vllm": ("vllm", "sglang", "trtllm"),
    "sglang": ("sglang", "vllm", "trtllm"),
    "trtllm": ("trtllm", "vllm", "sglang"),
}
"""Whose rows are taken where an engine has none of a type: vLLM and SGLang share their Triton kernels."""

_EXPERTS_LIKE = {
    "fp8": ("fp8_block",),
    "fp8_block": ("fp8",),
    "int4": ("mxfp4",),
    "mxfp4": ("int4",),
    "nvfp4": ("mxfp4", "int4"),
}
"""Types whose rows of experts stand for one without its own, before those of bf16."""


@dataclass(frozen=True)
class Kernels:
    """What one engine's kernels reach on one GPU.

    row     whose measurements: 'h100';  exact  whether it is this very GPU
    family  whose attention, experts and all-reduce: 'vllm', 'trtllm', 'sglang'
    file    measured ones laid over them, where a job names some
    """

    gpu: Gpu
    speeds: Speeds
    row: str
    exact: bool
    family: str
    tables: dict[str, Any]
    file: KernelFile | None = None

    def gemm(
        self, weights: Weights, *, apart: bool = False, static: bool = False
    ) -> tuple[GemmRow, float, float, bool]:
        """Constants, peak over bf16's, bytes of a weight, whether activations are quantised before.

        apart  they are, in a kernel of its own;  static  by known scales; where such products were measured
        """
        name = self.gemm_name(weights, apart=apart, static=static)
        raw, own = self.tables["gemm"][name], type_of(name)
        peak = self.peak(own)
        quantise = peak > 1.0 or name.endswith("_static")
        row = _row(GemmRow, raw)
        if self.file and "points" in raw:
            fit = gemm_fit(row, self.speeds, peak, WIDTH[own], quantise)
            row = replace(row, points=self.file.points(raw, fit))
        return row, peak, WIDTH[weights], quantise

    def gemm_name(self, weights: Weights, *, apart: bool = False, static: bool = False) -> str:
        """The row of `tables` that products in a type take."""
        rows = self.tables["gemm"]
        name = weights if weights in rows else NARROWER.get(weights, "bf16")
        name = name if name in rows else "bf16"
        if static and f"{name}_static" in rows:
            return f"{name}_static"
        return f"{name}_apart" if apart and f"{name}_apart" in rows else name

    def attention(self, kind: str, kv: str) -> AttentionRow:
        """Constants of 'decode', 'prefill', 'mla_decode' or 'mla_prefill' over keys and values of a type."""
        name, raw = self.attention_row(kind, kv)
        row = _row(AttentionRow, raw)
        if self.file and "points" in raw:
            fit = attention_fit(kind, row, self.speeds, 1.0 if name.endswith("fp8") else 2.0)
            row = replace(row, points=self.file.points(raw, fit))
        return row

    def attention_row(self, kind: str, kv: str) -> tuple[str, dict[str, Any]]:
        """The row of `tables` that an attention kernel takes, with its name."""
        for family in (self.family, "vllm", "trtllm", "sglang"):
            rows = self.tables["attention"].get(family, {})
            for name in (f"{kind}_{kv}", f"{kind}_bf16"):
                if name in rows and rows[name].get("near", rows[name]["error"]) < WORST:
                    return name, rows[name]
        last = carried(_tables("h100"), self.gpu)["attention"]["trtllm"]
        return f"{kind}_bf16", last[f"{kind}_bf16"]

    def experts(self, weights: Weights) -> tuple[ExpertRow, float, float]:
        """Constants, peak over bf16's and bytes of a weight of routed experts."""
        name, raw = self.experts_row(weights)
        row, peak = _row(ExpertRow, raw), float(raw.get("peak", self.peak(name)))
        if self.file and "points" in raw:
            row = replace(row, points=self.file.points(raw, experts_fit(row, self.speeds, peak, WIDTH[name])))
        return row, peak, WIDTH[weights]

    def experts_row(self, weights: Weights) -> tuple[str, dict[str, Any]]:
        """The row of `tables` that routed experts take, with its type."""
        for name in (weights, *_EXPERTS_LIKE.get(weights, ()), "bf16"):
            for family in _EXPERTS_OF[self.family]:
                rows = self.tables["experts"].get(family, {})
                if name in rows and rows[name].get("near", rows[name]["error"]) < WORST_EXPERTS:
                    return name, rows[name]
        raise AssertionError(f"no experts measured on {self.row}")

    def all_reduce(self, ranks: int, sizes: Floats, whose: str = "") -> Floats | None:
        """Seconds of the engine's own all-reduce, or None for a number of GPUs that was not measured.

        whose  the engine it was written for, where that is another
        """
        for family in (whose or self.family, self.family, "vllm", "trtllm", "sglang"):
            rows = self.tables["all_reduce"].get(family, {})
            if ranks in rows:
                own = rows[ranks]
                knots, seconds = (own["bytes"], own["seconds"]) if isinstance(own, dict) else (KNOTS, own)
                times = np.log(np.asarray(seconds, float))
                at = np.log(np.maximum(np.asarray(sizes, float), 1.0))
                inside = np.exp(np.interp(at, np.log(knots), times))
                return np.asarray(inside * np.maximum(np.asarray(sizes, float) / knots[-1], 1.0))
        return None

    @property
    def tiles(self) -> TileRow | None:
        """FlashAttention 2 by its thread blocks, where the engine runs it and it was measured so."""
        row = self.tables["attention"].get(self.family, {}).get("tiles")
        return _row(TileRow, row) if row else None

    @property
    def elementwise(self) -> ElementRow | None:
        """Element-wise kernels, where they were measured."""
        row = self.tables.get("elementwise")
        return _row(ElementRow, row) if row else None

    def peak(self, weights: str) -> float:
        """Dense peak of products in a type over that in bf16; 1 where the GPU has no faster one."""
        faster = self.gpu.peak_flops.get(PEAK.get(weights, ""))
        return faster / self.speeds.peak if faster else 1.0


def type_of(product: str) -> str:
    """The type that a row of products is of: 'fp8' of 'fp8_static' and of 'fp8_apart'."""
    return product.removesuffix("_static").removesuffix("_apart")


WORST = 35.0
"""Mean error (of rows with points, at shapes left out of them) from which another engine's kernel is the
better guess [%]."""
WORST_EXPERTS = 50.0
"""The same of routed experts, whose kernels differ more by engine [%]."""


@cache
def _tables(row: str) -> dict[str, Any]:
    tables: dict[str, Any] = read_data("serving", f"kernels/{row}.yaml")
    like = tables.pop("like", None)
    own = _named(tables, row)
    return _over(_tables(like), own) if like else own


def _named(part: dict[str, Any], row: str) -> dict[str, Any]:
    """Every row with the GPU that it is of."""
    if "fixed" in part:
        return {**part, "of": row}
    return {k: _named(v, row) if isinstance(v, dict) else v for k, v in part.items()}


def _over(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Rows of `base`, a GPU's own before them."""
    deeper = {k: _over(base[k], v) for k, v in own.items() if k in base and "fixed" not in v}
    return {**base, **own, **deeper}


@cache
def measured() -> tuple[str, ...]:
    """GPUs whose kernels were measured."""
    folder = files("railwright.serving") / "data" / "kernels"
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".yaml")))


def kernels_of(gpu: Gpu, family: str, file: str | None = None, job: str = "") -> Kernels:
    """The measured kernels of a GPU: its own, else those of its generation's best-known one.

    file  of measured kernels to lay over them, as `job` names it

    Raises PlanError for a GPU of a generation that no kernel was measured on, and for a file of another GPU
    or engine; RailwrightError for a file that is none.
    """
    own = [name for name in measured() if gpu.name == name or gpu.name.startswith(name + "-")]
    row = max(own, key=len) if own else KIN.get(gpu.generation, "")
    if not row:
        known = ", ".join(measured())
        raise PlanError(
            f"No inference kernel was measured on the GPU '{gpu.name}' of generation '{gpu.generation}'; "
            f"serving is predicted for those of the generations of {known}."
        )
    peak = gpu.peak_flops.get("bf16") or gpu.peak_flops["fp16"]
    speeds = Speeds(peak, gpu.hbm_bandwidth, gpu.sms)
    if file is None:
        return Kernels(gpu, speeds, row, bool(own), family, carried(_tables(row), gpu))
    measured_file = read_kernels(file)
    measured_file.check(job, gpu, family)
    laid = measured_file.over(_tables(row))
    return Kernels(gpu, measured_file.speeds, row, True, family, laid, measured_file)


def _row(kind: type[Kind], row: dict[str, Any]) -> Kind:
    values: dict[str, Any] = {f.name: float(row.get(f.name, 0.0)) for f in fields(kind) if f.name != "points"}
    return kind(**values)
