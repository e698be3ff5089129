"""Constants of the training room, read once from its data files, each with its source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from railwright.model.shape.pattern import ModelKind
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


def known(name: str) -> Constant:
    """One constant with its source."""
    return _constants()[name]


def constants() -> tuple[Constant, ...]:
    """All constants, for a report that lists its assumptions."""
    return tuple(_constants().values())


DECIDES = 0.25
"""Share of a step in which its GPU waits for launches from which their errors are the step's: predicted
launches are off by more than kernels (measure/training/bands.py, `launches`)."""


def error_band(family: str, framework: str, fitted: bool = True, launches: float = 0.0) -> ErrorBand:
    """The error band of a job: what is the wider at each end of two, or of more.

    family     'dense H100 16-bit'; the band of its kind of model where it has too few published records
    framework  of its software's era, whose records are off by more or less than others' on the same GPU
    fitted     whether that era has published steps on this GPU; else all of its kind of model count too
    launches   share of the step in which its GPU waits for launches; from DECIDES on all steps that do count
    """
    return band_for(family, framework, fitted, launches >= DECIDES)


@cache
def band_for(family: str, framework: str, fitted: bool, waits: bool) -> ErrorBand:
    """`waits`: for launches, so much that they decide; kept by each step's share the cache would grow."""
    data, kind = _read("error_band"), family.split()[0]
    band = _banded(data["families"].get(family) or data["kinds"][kind])
    if row := data["frameworks"].get(f"{kind} {framework}"):
        band = _widened(band, framework, _banded(row))
    if not fitted:
        band = _widened(band, f"all {kind} models", _banded(data["kinds"][kind]))
    if waits:
        band = _widened(band, "steps that wait for launches", _banded(data["launches"]["all"]))
    return band


def _widened(band: ErrorBand, whose: str, own: ErrorBand) -> ErrorBand:
    if band.low <= own.low and own.high <= band.high:
        return band
    source = f"{band.source}; widened to that of {whose}: {own.source.split(': ', 1)[-1]}"
    return ErrorBand(min(band.low, own.low), max(band.high, own.high), source)


def _banded(row: dict[str, Any]) -> ErrorBand:
    return ErrorBand(float(row["low"]), float(row["high"]), str(row["source"]))


MEASURED = (
    "A100", "H100", "H200", "B200", "B300", "GB200", "GB300", "L40S", "MI300X", "MI325X", "MI350X", "MI355X",
)  # fmt: skip
"""GPUs of the published steps behind the error bands (measure/data/training.csv; a test compares)."""


def unmeasured(gpu: str, software: str, dtype: str, fitted: bool, anywhere: bool = True) -> tuple[str, ...]:
    """What a reader of the error band must know of a GPU (catalogue name) that no published step ran on, or
    none of its era of software with products of this width.

    fitted    whether one did
    anywhere  whether any step of this software is in the fit, on whatever GPU
    """
    if model_of(gpu) in MEASURED:
        if fitted:
            return ()
        return (
            f"No published training step of software {software} on {gpu} in {width_of(dtype)} is in "
            "the fit: what other eras, GPUs and widths say stands for it (`railwright catalog show "
            f"{software}`), and the error band is that of other software, so this one's may be wider.",
        )
    own = "this GPU's" if anywhere else "this GPU's and this software's"
    return (
        f"No published training step on {gpu}{'' if anywhere else f', and none of software {software},'} is "
        f"in the fit: the error band is that of {', '.join(MEASURED)}, and {own} may be wider.",
    )


def family_of(kind: ModelKind, gpu: str, dtype: str) -> str:
    """Steps that share kernels and constants: kind of model, GPU and width of the products.

    gpu  catalogue name; its `model_of` counts ('h100-sxm' -> 'H100'), as in `railwright validate training`
    """
    return f"{kind} {model_of(gpu)} {width_of(dtype)}"


CARDS = ("PCIE", "NVL")
"""Forms in which a chip is sold with less power and without links between all GPUs of a server."""


def model_of(gpu: str) -> str:
    """'H100' of 'h100-sxm': a catalogue name's first word; of a card with its form ('H100-PCIE'), since no
    published step ran on one and its products run at 0.60 to 0.66 of the rate (`compute/limited.py`)."""
    name, *rest = gpu.upper().split("-")
    return "-".join([name, *(form for form in rest if form in CARDS)])


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
