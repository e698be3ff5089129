"""rccl-tests' JSON (-x FILE -Z json): a list of records, one for each size and half of a table.

Keys as ROCm's validation suite reads them (ROCm/cvs, schema/rccl.py): numCycle, name ('AllReduce'), nodes,
ranks, ranksPerNode, gpusPerRank, size, type, redop, inPlace, time [us], algBw and busBw [GB/s], wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from railwright.measure.logs.curve import Header
from railwright.measure.logs.header import op_named
from railwright.measure.logs.nccl_json import COLUMNS, number_of, objects_at, value_of
from railwright.measure.logs.rows import Half, Row
from railwright.measure.logs.tables import Table


def looks_like_records(text: str) -> bool:
    """Whether a text is rccl-tests' list rather than a log, which may begin with '[1,0]<stdout>:'."""
    start = text.lstrip()
    return start.startswith("[") and start[1:].lstrip().startswith("{") and '"busBw"' in text


def read_records(text: str) -> list[Table]:
    """A table of every collective and number of ranks; of a list that was cut short what is whole."""
    found: dict[tuple[str, int, int], Table] = {}
    halves: dict[tuple[str, int, int], dict[tuple[Any, ...], tuple[int, list[Half]]]] = {}
    for line, item in _records(text):
        ranks, each = number_of(item.get("ranks")), max(1, number_of(item.get("gpusPerRank")))
        key = (str(item.get("name", "")), ranks, each)
        if key not in found:
            # what rccl-tests calls a rank is a process, of which each may have several GPUs
            header = Header(threads=1, gpus=each, processes=ranks)
            op = op_named(key[0]) or ""
            found[key] = Table(line, "", COLUMNS, op, header, "rccl-tests", closed=_ends(text))
        said = tuple(item.get(name) for name in ("numCycle", "size", "type", "redop"))
        at = halves.setdefault(key, {}).setdefault(said, (line, [Half(), Half()]))
        wrong = str(item.get("wrong", "")).strip()
        at[1][bool(item.get("inPlace"))] = Half(
            value_of(item.get("time")),
            value_of(item.get("algBw")),
            value_of(item.get("busBw")),
            float(wrong) if wrong.isdecimal() else None,
        )
    for key, table in found.items():
        table.rows += [
            Row(line, float(said[1]), 0.0, str(said[2]).lower(), str(said[3]).lower(), -1, tuple(both))
            for said, (line, both) in halves[key].items()
        ]
    return list(found.values())


def _records(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, record) of all that are whole and have a size."""
    line, before = 1, 0
    for at, item in objects_at(text, text.index("[") + 1):
        line, before = line + text.count("\n", before, at), at
        size = item.get("size") if isinstance(item, dict) else None
        if isinstance(size, int | float) and not isinstance(size, bool) and 0 <= size < 1e18:
            yield line, item


def _ends(text: str) -> bool:
    return text.rstrip().endswith("]")
