"""nccl-tests' JSON (-J): the same rows as the text table, whole or cut short.

Source: nccl-tests 2.17 and later, src/util.cu (keys of config, devices and results).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from railwright.measure.logs.columns import Columns
from railwright.measure.logs.curve import Device, Header
from railwright.measure.logs.header import op_named
from railwright.measure.logs.rows import Half, Row, Value
from railwright.measure.logs.tables import Table

COLUMNS = Columns(
    ("size", "count", "type", "redop", "root", *(("time", "algbw", "busbw", "wrong") * 2)), 1e-6
)
_SLACK = 0.5e-6
"""Half a unit of the last of six printed decimals."""


def looks_like_json(text: str) -> bool:
    """Whether a text is JSON with nccl-tests' results rather than a log."""
    return text.lstrip().startswith("{") and '"results"' in text and '"bus_bw"' in text


def read_json(text: str) -> Table:
    """The one table of a JSON report; what is whole of one that was cut short (then it is not `closed`)."""
    whole = _parsed(text)
    results = whole.get("results") if whole is not None else _pieces(text, "results")
    config = whole.get("config") if whole is not None else None
    config = config if isinstance(config, dict) else {}
    listed = config.get("devices") if whole is not None else _pieces(text, "devices")
    args = (whole or {}).get("args")
    command = " ".join(str(a) for a in args) if isinstance(args, list) else _first_argument(text)
    program = command.split(" ")[0].rsplit("/", 1)[-1]
    devices = tuple(d for d in map(_device, listed if isinstance(listed, list) else []) if d is not None)
    header = Header(
        threads=number_of(config.get("nthreads")),
        gpus=number_of(config.get("ngpus")),
        devices=devices,
        command=command[:400],
        version=str((whole or {}).get("nccl_version", "")),
    )
    tool = "railwright" if "railwright" in command else "nccl-tests"
    op = op_named(program) or (op_named(str((whole or {}).get("op", ""))) or "")
    table = Table(1, "", COLUMNS, op, header, tool, closed=whole is not None)
    for item in results if isinstance(results, list) else []:
        row = _row(item, _line_of(text, item))
        if row is not None:
            table.rows.append(row)
    average = (whole or {}).get("average_bus_bandwidth")
    if isinstance(average, dict) and isinstance(average.get("bandwidth"), int | float):
        table.average = float(average["bandwidth"])
    return table


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _pieces(text: str, key: str) -> list[Any]:
    """The whole objects of a list whose end is missing."""
    start = re.search(rf'"{key}"\s*:\s*\[', text)
    return [item for _, item in objects_at(text, start.end())] if start else []


def objects_at(text: str, at: int) -> Iterator[tuple[int, Any]]:
    """(place, value) of what a list holds from a place on, as far as it is whole."""
    decoder = json.JSONDecoder()
    blank = re.compile(r"[ \n\r\t,]*")
    while at < len(text):
        found = blank.match(text, at)
        start = found.end() if found else at
        try:
            item, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        yield start, item


def _first_argument(text: str) -> str:
    found = re.search(r'"args"\s*:\s*\[\s*"((?:[^"\\]|\\.)*)"', text)
    return found[1].replace("\\/", "/") if found else ""


def _row(item: Any, line: int) -> Row | None:
    if not isinstance(item, dict):
        return None
    size = item.get("size")
    if not isinstance(size, int | float) or not 0 <= size < 1e18:
        return None
    halves = tuple(_half(item.get(key)) for key in ("out_of_place", "in_place"))
    root = re.fullmatch(r"\s*(-?\d{1,7})\s*", str(item.get("root", "")))
    return Row(
        line,
        float(size),
        float(number_of(item.get("count"))),
        str(item.get("type", "")).lower(),
        str(item.get("redop", "")).lower(),
        int(root[1]) if root else -1,
        halves,
    )


def _half(item: Any) -> Half:
    if not isinstance(item, dict):
        return Half()
    wrong = item.get("nwrong")
    return Half(
        value_of(item.get("time", item.get("cpu_time"))),
        value_of(item.get("alg_bw")),
        value_of(item.get("bus_bw")),
        float(wrong) if isinstance(wrong, int | float) and abs(wrong) < 1e18 else None,
    )


def value_of(item: Any) -> Value | None:
    """A number with the digits that are printed, None for what is none."""
    if isinstance(item, bool) or not isinstance(item, int | float) or not 0 <= item < 1e18:
        return None
    return Value(float(item), _SLACK)


def _device(item: Any) -> Device | None:
    if not isinstance(item, dict) or "rank" not in item:
        return None
    return Device(
        number_of(item.get("rank")),
        number_of(item.get("group")),
        str(item.get("hostname", "")),
        number_of(item.get("device")),
        str(item.get("device_info", "")),
    )


def number_of(item: Any) -> int:
    """A whole number, 0 for what is none."""
    return int(item) if isinstance(item, int | float) and abs(item) < 1e18 else 0


def _line_of(text: str, item: Any) -> int:
    size = item.get("size") if isinstance(item, dict) else None
    found = re.search(rf'"size"\s*:\s*{size}\b', text) if isinstance(size, int) else None
    return text.count("\n", 0, found.start()) + 1 if found else 1
