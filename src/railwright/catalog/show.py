"""Parts for people: one line of each for a list, every field with its source for one part."""

from __future__ import annotations

from typing import get_args

from railwright.catalog.fields import FIELDS, Part, kind_of, show
from railwright.catalog.parts import Catalog, Source, Status
from railwright.errors import RailwrightError, nearest

KINDS = tuple(FIELDS)

# What a list shows of each kind: column title -> field.
_COLUMNS: dict[str, dict[str, str]] = {
    "gpus": {
        "vendor": "vendor",
        "memory": "hbm_bytes",
        "memory bandwidth": "hbm_bandwidth",
        "scale-up": "scale_up_bandwidth",
        "power": "power",
    },
    "nics": {
        "vendor": "vendor",
        "technology": "technology",
        "rate": "rate",
        "ports": "ports",
        "PCIe": "pcie_bandwidth",
        "latency": "latency",
    },
    "switches": {
        "vendor": "vendor",
        "technology": "technology",
        "ports": "ports",
        "rate": "rate",
        "latency": "latency",
        "rack units": "rack_units",
    },
    "servers": {
        "vendor": "vendor",
        "GPUs": "gpus",
        "GPU": "gpu",
        "NICs": "nics",
        "NIC": "nic",
        "CPU": "cpu",
        "rack units": "rack_units",
        "power": "power_max",
    },
}
# From the best checked to the least.
_TRUST: tuple[str, ...] = get_args(Status)


def rows(catalog: Catalog, kind: str) -> list[dict[str, str]]:
    """One row per part of a kind: column title -> text, in catalogue order; GPUs with their 16-bit peak.

    'sources' says how many of the part's values were checked how.
    Raises RailwrightError when the kind is none of 'gpus', 'nics', 'switches', 'servers'.
    """
    if kind not in FIELDS:
        raise RailwrightError(f"no kind of part '{kind}'; kinds are {', '.join(KINDS)}{nearest(kind, KINDS)}")
    return [_row(kind, part) for part in getattr(catalog, kind).values()]


def describe(part: Part) -> list[tuple[str, str, Source]]:
    """(field, shown value, source) of every field, one row per dtype of the peaks ('peak_flops.bf16')."""
    described: list[tuple[str, str, Source]] = []
    for name, field in FIELDS[kind_of(part)].items():
        value = getattr(part, name)
        if field.form == "peaks":
            described += [
                (f"{name}.{dtype}", show(field, peak), source_of(part, f"{name}.{dtype}"))
                for dtype, peak in value.items()
            ]
        else:
            described.append((name, show(field, value), source_of(part, name)))
    return described


def source_of(part: Part, field: str) -> Source:
    """Source of one field ('power', 'peak_flops.fp8'): its own, else its parent's, else the part's '*'."""
    for key in (field, field.split(".")[0], "*"):
        if key in part.sources:
            return part.sources[key]
    raise RailwrightError(f"no source for '{field}' of '{part.name}'")


def _row(kind: str, part: Part) -> dict[str, str]:
    row = {"name": part.name}
    for title, field in _COLUMNS[kind].items():
        row[title] = show(FIELDS[kind][field], getattr(part, field))
    if kind == "gpus":
        peaks = getattr(part, "peak_flops", {})
        dtype = "bf16" if "bf16" in peaks else "fp16"
        row["peak"] = f"{show(FIELDS[kind]['peak_flops'], peaks[dtype])} {dtype}" if dtype in peaks else "-"
    statuses: list[str] = [source.status for _, _, source in describe(part)]
    counts = [(status, statuses.count(status)) for status in _TRUST]
    row["sources"] = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts if count)
    return row
