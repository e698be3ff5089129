"""The heads of a table: which column holds what, in which unit; nccl-tests of all ages, OSU, and by hand.

Source of the layouts: nccl-tests 1.x to 2.19 (src/common.cu, src/util.cu), rccl-tests (src/common.cu),
OSU micro-benchmarks 5 to 7 (osu_util.c).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = {
    "size": ("size", "bytes", "msgsize", "message_size", "msg_size", "datasize", "data_size", "buffer"),
    "count": ("count", "n", "elements", "elems", "nelem"),
    "type": ("type", "dtype", "datatype"),
    "redop": ("redop", "op"),
    "root": ("root",),
    "time": ("time", "cputime", "latency", "lat", "avg_latency", "time_us", "avg"),
    "algbw": ("algbw", "alg_bw", "algobw", "algo_bw", "algorithm_bw"),
    "busbw": ("busbw", "bus_bw", "bus_bandwidth"),
    "wrong": ("#wrong", "wrong", "error", "errors", "err", "res", "nwrong"),
    "stamp": ("timestamp",),
    "": ("i_min", "i_max", "i_p99", "i_cv%", "algo", "proto", "iterations", "min", "max", "p50", "p99"),
}
KNOWN = {name: column for column, names in _NAMES.items() for name in names}
RATES = {"GB/s": 1e9, "MB/s": 1e6, "GiB/s": 2.0**30, "MiB/s": 2.0**20, "Gb/s": 1e9 / 8, "Gbps": 1e9 / 8}
TIMES = {"us": 1e-6, "µs": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "ns": 1e-9}
_UNIT = re.compile(r"\s*[(\[]\s*([A-Za-zµ%/]+)\s*[)\]]")
_SIZED = re.compile("size|bytes|buffer", re.IGNORECASE)
_OSU = re.compile(
    r"(?P<lat>(?:(?P<which>Avg|Min|Max|P\d+)\s+(?:Tail\s+)?)?Lat(?:ency)?\s*\(us\))"
    r"|(?P<bw>Bandwidth\s*\(MB/s\))|(?P<other>Iterations|Validation|Messages/s|Overall\(us\)|Compute\(us\)"
    r"|Overlap\(%\)|Pure Comm\.\(us\))",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Columns:
    """One table's columns.

    names    per column: a key of `_NAMES`, '' for what we do not read
    time_unit, rate_unit   factor to [s] and [byte/s]; time_unit None where the head does not say
    comma    columns are separated by commas
    osu      OSU's meaning of size
    """

    names: tuple[str, ...]
    time_unit: float | None = None
    rate_unit: float = 1e9
    comma: bool = False
    osu: bool = False

    @property
    def lead(self) -> int:
        """Columns before the first measured one."""
        measured = [i for i, name in enumerate(self.names) if name in ("time", "algbw", "busbw")]
        return measured[0]

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.names[self.lead :]

    @property
    def group(self) -> int:
        """Columns of one half (out-of-place or in-place)."""
        metrics = self.metrics
        again = [i for i, name in enumerate(metrics) if name == metrics[0]]
        return again[1] if len(again) > 1 else len(metrics)


def read_heads(text: str) -> Columns | None:
    """The columns that a line names, or None when it is no table's head."""
    if not _SIZED.search(text):
        return None
    body = text.strip().lstrip("#").strip() if not text.strip().startswith("#wrong") else text.strip()
    osu = _osu(body)
    if osu is not None:
        return osu
    units = _UNIT.findall(body)
    comma = body.count(",") >= 2
    body = _UNIT.sub("", body)
    words = [w.strip().lower() for w in (body.split(",") if comma else body.split())]
    words = [w.strip('"*`').replace(" ", "_") for w in words]
    columns = [KNOWN.get(word) for word in words]
    known = [c for c in columns if c is not None]
    if "size" not in known or not {"time", "algbw", "busbw"} & set(known) or len(known) < 0.7 * len(words):
        return None
    time, rate = _units(units)
    return Columns(tuple(c or "" for c in columns), time, rate or 1e9, comma)


def read_units(text: str, columns: Columns) -> Columns | None:
    """The columns with the units of the line under them, '(B) (elements) (us) (GB/s)', or None."""
    body = text.strip().lstrip("#").strip()
    if not body.startswith("(") or not _UNIT.match(body):
        return None
    time, rate = _units(_UNIT.findall(body))
    return Columns(
        columns.names, time or columns.time_unit, rate or columns.rate_unit, columns.comma, columns.osu
    )


def default_columns(measured: int) -> Columns | None:
    """nccl-tests' columns for a row found without a head, by its number of measured values."""
    halves = {3: ("time", "algbw", "busbw"), 4: ("time", "algbw", "busbw", "wrong")}
    lead = ("size", "count", "type", "redop", "root")
    for half in halves.values():
        if measured in (len(half), 2 * len(half)):
            return Columns(lead + half * (measured // len(half)))
    return None


def _osu(body: str) -> Columns | None:
    match = re.match(r"Size\s+(?=\S)", body, re.IGNORECASE)
    if not match:
        return None
    names, rest = ["size"], body[match.end() :]
    for found in _OSU.finditer(rest):
        which = (found["which"] or "avg").lower()
        names.append("time" if found["lat"] and which == "avg" else "algbw" if found["bw"] else "")
    if not {"time", "algbw"} & set(names) or _OSU.sub("", rest).strip():
        return None
    return Columns(tuple(names), 1e-6, 1e6, osu=True)


def _units(found: list[str]) -> tuple[float | None, float | None]:
    time = next((TIMES[u] for u in found if u in TIMES), None)
    rate = next((RATES[u] for u in found if u in RATES), None)
    return time, rate
