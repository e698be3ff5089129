"""How fast a GPU really runs each kind of kernel: a table of rows, each with its source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import inf, log
from typing import Any

from railwright.catalog.parts import Gpu
from railwright.errors import PlanError
from railwright.model.shape.architecture import Phase
from railwright.shipped import read_data

PEAK_OF = {**dict.fromkeys(("fp8_rowwise", "mxfp8", "fp8_block", "fp8_dynamic"), "fp8"), "nvfp4": "fp4"}
"""The peak a scaled format runs at."""

NVIDIA_ONLY = ("nvfp4",)
"""Formats of one vendor: blocks of 16 values with a scale in fp8 and another for the tensor are NVIDIA's;
AMD's 4 bits are MXFP4 (AMD CDNA 4 architecture white paper, 2025, number formats)."""
BLOCK_SCALED = {"mxfp8": "fp4"}
"""Formats whose scales per block the tensor cores themselves apply, and the type that came with such cores:
Blackwell and CDNA 4 have both, Hopper and CDNA 3 neither (Transformer Engine, pytorch/quantization.py,
check_mxfp8_support: compute capability 10.0 and newer)."""

FIT_OF = {
    **dict.fromkeys(("fp8_rowwise", "mxfp8"), "fp8"),
    "nvfp4": "fp4",
    **dict.fromkeys(("fp16", "tf32", "fp32"), "bf16"),
}
"""The dtype whose GEMM fit stands for one without its own (same tensor-core path)."""


HALF = ("bf16", "fp16")
"""Formats of attention's usual kernels."""


@dataclass(frozen=True)
class Row:
    """Constants of one kind of kernel.

    fixed    launch and ramp of one kernel [s]
    compute  fraction of the dense peak reached on large shapes
    memory   fraction of HBM bandwidth reached
    depth    prologue and epilogue of a product's tile in steps of its inner dimension
    square   rate of a 128 x 128 tile over a full one; `tiny` of the smaller ones
    sustained  fraction of the dense peak that power sustains; infinite where nothing shows it
    short    sequence length at which attention reaches half of `compute` [token]; 0 for the others
    unmasked  number of keys where no mask cuts its tiles [token]
    softmax  time of a score's softmax over that of its products at head width 128; 0 for the others
    points   (tokens, share of `compute` reached) where a mask cuts tiles, in place of `short`; () for others
    source   where the constants come from
    steady   measured at the clock that the GPU holds, not at that of a short benchmark
    """

    fixed: float
    compute: float
    memory: float
    source: str
    depth: float = 0.0
    square: float = 1.0
    tiny: float = 1.0
    short: float = 0.0
    unmasked: float = 0.0
    softmax: float = 0.0
    points: tuple[tuple[float, float], ...] = ()
    sustained: float = inf
    steady: bool = False

    def slowed(self, tokens: int, masked: bool) -> float:
        """Time of attention to so many tokens over that of its products at `compute`."""
        if masked and self.points:
            return 1.0 / interpolated(self.points, max(tokens, 1))
        return 1.0 + (self.short if masked else self.unmasked) / max(tokens, 1)


def interpolated(points: Sequence[tuple[float, float]], at: float) -> float:
    """A value between (position, value) pairs in rising order, over the logarithm of the position; that of
    the nearest end beyond them."""
    for (low, first), (high, second) in pairwise(points):
        if at < high:
            return first + (second - first) * max(log(at / low), 0.0) / log(high / low)
    return points[-1][1]


@dataclass(frozen=True)
class Profile:
    """The kernel constants of one GPU: GEMMs by dtype, attention by pass, and memory-bound kernels.

    attention  'forward' and 'backward' in 16 bits, and 'forward mxfp8' … where narrower kernels were measured
    """

    gpu: str
    gemm: Mapping[str, Row]
    attention: Mapping[str, Row]
    memory: Row

    def gemm_row(self, dtype: str) -> Row:
        """The GEMM row of `dtype`, or of the dtype that stands for it, or of bf16."""
        for name in (dtype, FIT_OF.get(dtype, ""), PEAK_OF.get(dtype, ""), "bf16"):
            if name in self.gemm:
                return self.gemm[name]
        raise AssertionError(f"profile of {self.gpu} has no bf16 row")

    def attention_row(self, phase: Phase, dtype: str = "bf16") -> Row:
        """The attention row of the forward or the backward pass, in 16 bits or narrower.

        Raises PlanError for a narrow format that was not measured on this GPU's generation.
        """
        way = "forward" if phase == "forward" else "backward"
        row = self.attention.get(way if dtype in HALF else f"{way} {dtype}")
        if row is None:
            known = [name.removeprefix("forward ") for name in self.attention if name.startswith("forward ")]
            raise PlanError(
                f"{self.gpu}: no measurement of attention in {dtype}; there are some in "
                f"{', '.join(['16 bits', *known])}: leave attention out of dtype_also."
            )
        return row


USUAL_FLASH = {"ampere", "ada", "blackwellrtx"}
"""Generations whose usual rows are FlashAttention 2's (compute/data/attention.yaml)."""


def flash_is_known(generation: str) -> bool:
    """Whether a row is FlashAttention 2's on GPUs of a generation: one of its own, or the usual one."""
    own = {row["generation"] for row in _tables()["attention"] if row.get("kernel") == "flash-2"}
    return bool(_words(generation) & (own | USUAL_FLASH))


def profile_of(gpu: Gpu, flash: str = "") -> Profile:
    """The profile of a catalogue GPU: its own row, else its generation's, else the general one.

    flash  attention kernels in order of preference ('triton flash-2'): the first that the generation has a
           row for; without one its usual kernel
    """
    return _profile(gpu.name, gpu.generation, flash)


@cache
def _profile(name: str, generation: str, flash: str) -> Profile:
    tables = _tables()
    own = _best(tables["gemm"], _words(name), _words(generation))
    stands = "" if own["tokens"] and set(own["tokens"]) <= _words(name) else _stands_for(own)
    gemm = {
        dtype: Row(
            value["fixed"],
            value["compute"],
            value["memory"],
            _cite(own | {"source": value.get("source", own["source"])}, stands, value.get("error")),
            depth=value["depth"],
            square=value["square"],
            tiny=value["small"],
            sustained=value.get("sustained", inf),
            steady=own.get("steady", False),
        )
        for dtype, value in own.items()
        if isinstance(value, dict)
    }
    base = gemm["bf16"]
    # its own row first, then its generation's ('blackwellultra'), then that of its products ('blackwell')
    kin = (name, max(_words(generation), key=len, default=""), own["generation"])
    usual = [row for row in tables["attention"] if "dtype" not in row]
    rows = {(row.get("gpu", row["generation"]), row.get("kernel", "")): row for row in usual}
    wanted = [(one, kernel) for kernel in (*flash.split(), "") for one in kin]
    chosen = next((rows[key] for key in wanted if key in rows), rows["", ""])
    # the products' generation first, so that its own rows replace those
    narrow = [r for one in kin[::-1] for r in tables["attention"] if "dtype" in r and r["generation"] == one]
    attention = {
        f"{phase} {row['dtype']}" if "dtype" in row else phase: Row(
            base.fixed,
            row[phase]["compute"],
            base.memory,
            _cite(row[phase]),
            short=row[phase]["short"],
            unmasked=row[phase].get("unmasked", row[phase]["short"]),
            softmax=row[phase]["softmax"],
            points=tuple(row[phase].get("points", {}).items()),
            steady=row.get("steady", False),
        )
        for row in (chosen, *narrow)
        for phase in ("forward", "backward")
    }
    memory = Row(base.fixed, 1.0, base.memory, "memory limb of the bf16 GEMM row: " + base.source)
    return Profile(name, gemm, attention, memory)


def _best(rows: list[dict[str, Any]], name: set[str], generation: set[str]) -> dict[str, Any]:
    """The row with most words in the name; else the first of the generation ('blackwell-rtx'), or of the one
    that it is of ('blackwell'); else the last (general) one."""
    named = [r for r in rows if r["tokens"] and set(r["tokens"]) <= name]
    if named:
        return max(named, key=lambda r: len(r["tokens"]))
    own = [r for r in rows if _words(r["generation"]) == generation]
    kin = [r for r in rows if r["generation"] in generation]
    return [*own, *kin, rows[-1]][0]


def _stands_for(row: dict[str, Any]) -> str:
    words = " ".join(row["tokens"]).upper()
    return f"no measurement of this GPU, {words} stands for it: " if words else ""


def _cite(entry: dict[str, Any], prefix: str = "", error: float | None = None) -> str:
    tail = f", mean error {error:g} %" if error else ""
    return f"{prefix}{entry['source']}{tail} ({entry['status']})"


def _words(text: str) -> set[str]:
    """Lower-case words; 'CDNA 3' also gives 'cdna3', so that a generation matches however it is spaced."""
    words = [w for w in re.split(r"[^a-z0-9]+", text.lower()) if w]
    return {*words, "".join(words)}


@cache
def _tables() -> dict[str, list[dict[str, Any]]]:
    return {name: read_data("compute", f"{name}.yaml")["rows"] for name in ("gemm", "attention")}
