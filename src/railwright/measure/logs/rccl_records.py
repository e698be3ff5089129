"""rccl-tests' own reports (-X FILE -Z json or csv): a record for each size and half of a table.

Keys and columns: class Reporter in projects/rccl-tests/src/common.cu of ROCm/rocm-systems (read 2026-11-28;
older releases name the file with -x): numCycle, name ('AllReduce'; 'collective' in a CSV), nodes, ranks,
ranksPerNode, gpusPerRank, size, type, redop, inPlace, time [us], algBw and busBw [GB/s], wrong.  Without MPI
'gpus' stands for the four about ranks.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from typing import Any

from railwright.measure.logs.curve import Header
from railwright.measure.logs.header import op_named
from railwright.measure.logs.nccl_json import COLUMNS, number_of, objects_at, value_of
from railwright.measure.logs.rows import Half, Row
from railwright.measure.logs.tables import Table

_RENAMED = {"collective": "name", "#wrong": "wrong"}
"""Columns of a CSV that a JSON report calls otherwise, but for capitals."""


def looks_like_records(text: str) -> bool:
    """Whether a text is rccl-tests' list rather than a log, which may begin with '[1,0]<stdout>:'."""
    start = text.lstrip()
    return start.startswith("[") and start[1:].lstrip().startswith("{") and '"busBw"' in text


def looks_like_csv(text: str) -> bool:
    """Whether a text is rccl-tests' CSV."""
    head = text.lstrip("\ufeff \r\n").split("\n", 1)[0].lower()
    return head.startswith("numcycle,") and "busbw" in head


def read_records(text: str) -> list[Table]:
    """A table of every collective and number of ranks; of a list that was cut short what is whole."""
    return _tables(_listed(text), closed=text.rstrip().endswith("]"))


def read_csv(text: str) -> list[Table]:
    """As `read_records`, of a CSV; lines with too few or too many values are left out and counted.

    The head of some releases lacks 'nodes', which their lines have: there it stands before 'ranks'.
    """
    lines = text.lstrip("\ufeff").splitlines()
    above = next(i for i, line in enumerate(lines) if line.strip())
    names = [_RENAMED.get(word.strip().lower(), word.strip().lower()) for word in lines[above].split(",")]
    records, torn = [], []
    for number, line in enumerate(lines[above + 1 :], above + 2):
        if not line.strip():
            continue
        values = next(csv.reader([line]))
        keys = names
        if len(values) == len(names) + 1 and "ranks" in names and "nodes" not in names:
            keys = [*names[: names.index("ranks")], "nodes", *names[names.index("ranks") :]]
        if len(values) == len(keys):
            records.append((number, dict(zip(keys, map(_value, values), strict=True))))
        else:
            torn.append(number)
    tables = _tables(_with_size(records), closed=text.endswith("\n") and not torn)
    for table in tables[:1]:
        table.torn += torn
    return tables


def _tables(records: Iterable[tuple[int, dict[str, Any]]], closed: bool) -> list[Table]:
    """(line, record with keys in small letters) as tables."""
    found: dict[tuple[str, int, int], Table] = {}
    halves: dict[tuple[str, int, int], dict[tuple[Any, ...], tuple[int, list[Half]]]] = {}
    for line, item in records:
        ranks = number_of(item.get("ranks"))
        each = max(1, number_of(item.get("gpusperrank", item.get("gpus"))))
        key = (str(item.get("name", "")), ranks, each)
        if key not in found:
            # what rccl-tests calls a rank is a process, of which each may have several GPUs
            header = Header(threads=1, gpus=each, processes=ranks)
            found[key] = Table(line, "", COLUMNS, op_named(key[0]) or "", header, "rccl-tests", closed=closed)
        said = tuple(item.get(name) for name in ("numcycle", "size", "type", "redop"))
        at = halves.setdefault(key, {}).setdefault(said, (line, [Half(), Half()]))
        wrong = str(item.get("wrong", "")).strip()
        at[1][bool(item.get("inplace"))] = Half(
            value_of(item.get("time")),
            value_of(item.get("algbw")),
            value_of(item.get("busbw")),
            float(wrong) if wrong.isdecimal() else None,
        )
    for key, table in found.items():
        table.rows += [
            Row(line, float(said[1]), 0.0, str(said[2]).lower(), str(said[3]).lower(), -1, tuple(both))
            for said, (line, both) in halves[key].items()
        ]
    return list(found.values())


def _listed(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, record) of a list, of all that are whole and have a size."""
    line, before = 1, 0
    for at, item in objects_at(text, text.index("[") + 1):
        line, before = line + text.count("\n", before, at), at
        if isinstance(item, dict):
            yield from _with_size([(line, {str(name).lower(): value for name, value in item.items()})])


def _with_size(records: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, item in records:
        size = item.get("size")
        if isinstance(size, int | float) and not isinstance(size, bool) and 0 <= size < 1e18:
            yield line, item


def _value(text: str) -> Any:
    """A value of a CSV as JSON would have it: a number where it is one, else its text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()
    return found if isinstance(found, int | float) and not isinstance(found, bool) else text.strip()
