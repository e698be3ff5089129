"""Constants of the training room, read once from its data files, each with its source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from railwright.shipped import read_data


@dataclass(frozen=True)
class Constant:
    """One constant: value in SI units, what it counts, where it comes from and how far that was checked."""

    name: str
    value: float
    unit: str
    source: str
    status: str


@dataclass(frozen=True)
class ErrorBand:
    """80 % band of measured/predicted step time, and how it was found."""

    low: float
    high: float
    source: str


def constant(name: str) -> float:
    """Value of one constant."""
    return _constants()[name].value


def constants() -> tuple[Constant, ...]:
    """All constants, for a report that lists its assumptions."""
    return tuple(_constants().values())


@cache
def error_band(family: str, framework: str) -> ErrorBand:
    """The error band of a job: what is the wider at each end of two.

    family     'dense H100 16-bit'; the band of its kind of model where it has too few published records
    framework  of its software's era, whose records are off by more or less than others' on the same GPU
    """
    data, kind = _read("error_band"), family.split()[0]
    band = _banded(data["families"].get(family) or data["kinds"][kind])
    row = data["frameworks"].get(f"{kind} {framework}")
    own = _banded(row) if row else band
    if band.low <= own.low and own.high <= band.high:
        return band
    source = f"{band.source}; widened to that of {framework}: {own.source.split(': ', 1)[-1]}"
    return ErrorBand(min(band.low, own.low), max(band.high, own.high), source)


def _banded(row: dict[str, Any]) -> ErrorBand:
    return ErrorBand(float(row["low"]), float(row["high"]), str(row["source"]))


MEASURED = ("A100", "H100", "H200", "B200", "B300", "GB200", "GB300")
"""GPUs of the published steps behind the error bands (measure/data/training.csv; a test compares)."""


def unmeasured(gpu: str) -> tuple[str, ...]:
    """What a reader of the error band must know of a GPU (catalogue name) that no published step ran on."""
    if _model(gpu) in MEASURED:
        return ()
    return (
        f"No published training step on {gpu} was compared with our predictions: the error band is that of "
        f"{', '.join(MEASURED)}, and this GPU's may be wider.",
    )


def family_of(is_moe: bool, gpu: str, dtype: str) -> str:
    """Steps that share kernels and constants: kind of model, GPU and width of the products.

    gpu  catalogue name; its first word counts ('h100-sxm' -> 'H100'), as in `railwright validate training`
    """
    return f"{'moe' if is_moe else 'dense'} {_model(gpu)} {width_of(dtype)}"


def _model(gpu: str) -> str:
    return gpu.split("-")[0].upper()


def width_of(dtype: str) -> str:
    """Width of the products: '16-bit', 'fp8' (with a scale per row or block too) or 'nvfp4'."""
    if dtype in ("bf16", "fp16"):
        return "16-bit"
    return "fp8" if dtype in ("fp8_rowwise", "fp8_block", "mxfp8") else dtype


@cache
def _constants() -> dict[str, Constant]:
    return {
        name: Constant(name, float(row["value"]), row["unit"], row["source"], row["status"])
        for name, row in _read("constants").items()
    }


def _read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = read_data("training", f"{name}.yaml")
    return data
