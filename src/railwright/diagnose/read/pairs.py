"""Bandwidth between pairs: the matrix of `railwright bench pairs` (CSV or JSON), or a list of tests.

The list is a CSV with columns `from`, `to`, `GB/s` and, where there are any, `round` and `expected`
(`railwright diagnose --plan` writes it with the last column to be filled in).
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from railwright.diagnose.constants import noise
from railwright.diagnose.elements import Elements
from railwright.diagnose.evidence import Evidence
from railwright.diagnose.inference.likelihood import DEAD
from railwright.diagnose.paths import Routing, both_ways, crossed, need_fabric, rates_of
from railwright.diagnose.read.text_file import fail, text_of
from railwright.errors import Mistake, SpecError, nearest

COMMON = 0.2
"""Most that all tests together may miss the expectation by before it is a finding of its own [ln]."""
_LABEL = re.compile(r"^\s*(?P<rank>\d+)\s+(?P<host>\S+)/(?P<local>\d+)\s*$")


@dataclass(frozen=True)
class PairRate:
    """What one end sent to another [byte/s]; expected is 0 where the file does not say.

    both  the number is that of both ways at once, the slower counting
    """

    source: str
    target: str
    rate: float
    expected: float = 0.0
    both: bool = False
    line: int = 0


def read_pairs(path: Path) -> list[PairRate]:
    """Every pair of a matrix or a list; SpecError, with the line, for what is neither."""
    text = text_of(path)
    if text.lstrip().startswith("{"):
        return _from_json(path, text)
    lines = [(n, c) for n, c in _rows(text) if c and not c[0].startswith("#")]
    if not lines:
        fail(path, 0, "the file is empty; expected a matrix of `railwright bench pairs` or a list of tests")
    head = [cell.strip().lower() for cell in lines[0][1]]
    labelled = len(head) > 2 and all(_LABEL.match(cell) for cell in lines[0][1][1:])
    if not labelled and not {"from", "to"} <= set(head):
        fail(path, lines[0][0], "neither columns from, to, GB/s nor a matrix with labels like '12 host03/4'")
    if not labelled:
        return _from_list(path, head, lines[1:])
    return _from_matrix(path, lines)


def pair_evidence(
    elements: Elements, routing: Routing, tests: Sequence[PairRate], file: str, sigma: float | None = None
) -> Evidence:
    """The tests as rates along their paths, each against what it should be.

    Expected is what the file says, else the median of tests of the same kind (one server, one rail, several).
    sigma  scatter of a sound test [ln]; default the project's, or the data's own where that is larger
    """
    fabric = need_fabric(elements)
    src = np.array([gpu_called(elements, t.source, file, t.line) for t in tests], np.int64)
    dst = np.array([gpu_called(elements, t.target, file, t.line) for t in tests], np.int64)
    per = fabric.gpus_per_server
    kind = np.where(fabric.server[src] == fabric.server[dst], 0, np.where(src % per == dst % per, 1, 2))
    expected = np.array([t.expected for t in tests])
    rate = np.array([t.rate for t in tests])
    for k in range(3):
        mine = (kind == k) & (expected <= 0)
        if mine.any():
            expected[mine] = max(float(np.median(rate[mine])), 1e-9)
    y = np.log(np.maximum(rate / expected, math.exp(DEAD)))
    middle = float(np.median(y))
    if abs(middle) < COMMON:
        y = np.maximum(y - middle, DEAD)
    scatter = 1.4826 * float(np.median(np.abs(y - np.median(y))))
    width = sigma if sigma is not None else max(noise().healthy, scatter)
    crossing = crossed(elements, routing, src, dst)
    if tests and tests[0].both:
        crossing = both_ways(crossing, crossed(elements, routing, dst, src))
    labels = [
        f"{t.source} -> {t.target}: {t.rate / 1e9:.1f} GB/s of {e / 1e9:.1f}"
        for t, e in zip(tests, expected.tolist(), strict=True)
    ]
    notes = []
    if middle <= -COMMON:
        notes.append(
            f"{file}: the median test reaches {math.exp(middle):.0%} of the expected rate: something slows "
            "them all (a setting, the expectation); single elements are hard to see behind it"
        )
    rates = rates_of(crossing, routing, y, np.full(len(tests), width), labels, "pair tests")
    return Evidence((rates,), (), (), tuple(notes))


def gpu_called(elements: Elements, name: str, file: str = "", line: int = 0) -> int:
    """The GPU that a test's end means: a rank, 'server-03/nic-2', 'host03/4', 'host03 mlx5_2'."""
    fabric = need_fabric(elements)
    text = name.strip()
    if text.isdigit() and int(text) < fabric.num_gpus:
        return int(text)
    found = elements.find(text)
    if found is not None:
        at = np.flatnonzero(elements.of_device == found)
        if len(at) and at[0] < fabric.num_gpus:
            return int(at[0])
        users = np.flatnonzero(fabric.nic_of_gpu == at[0]) if len(at) else at
        if len(users):
            return int(users[0])
    host, _, local = text.rpartition("/")
    gpus = elements.gpus_of(host) if host else None
    if gpus is not None and local.isdigit() and int(local) < len(gpus):
        return gpus[int(local)]
    known = [elements.name[e] for e in elements.of_device[fabric.nic_of_gpu].tolist()]
    hint = nearest(text, known[:5000]) or f"; the machine's are like '{known[0]}'"
    raise SpecError([Mistake(file, line, 0, "", f"'{text}' is no GPU or NIC of this machine{hint}")])


def _from_list(path: Path, head: Sequence[str], lines: Sequence[tuple[int, list[str]]]) -> list[PairRate]:
    column = next((c for c in ("gb/s", "measured gb/s", "gbytes/s") if c in head), None)
    if column is None:
        fail(path, 0, f"no column GB/s; here are: {', '.join(head)}")
    found = []
    for number, cells in lines:
        row = dict(zip(head, (c.strip() for c in cells), strict=False))
        if not row.get(column):
            continue  # a test of the plan that was not run
        rate, expected = (
            _value(path, number, row[column]),
            row.get("expected gb/s") or row.get("expected") or "0",
        )
        found.append(PairRate(row["from"], row["to"], rate, _value(path, number, expected), False, number))
    if not found:
        fail(path, 0, f"no row has a value in the column '{column}': fill in what was measured")
    return found


def _from_matrix(path: Path, lines: Sequence[tuple[int, list[str]]]) -> list[PairRate]:
    ranks = [_label(cell) for cell in lines[0][1][1:]]
    found = []
    for number, cells in lines[1:]:
        if len(cells) != len(ranks) + 1 or not _LABEL.match(cells[0]):
            fail(path, number, f"a row must have a label and {len(ranks)} values")
        me = _label(cells[0])
        for other, cell in zip(ranks, cells[1:], strict=True):
            if other != me:
                found.append(PairRate(me, other, _value(path, number, cell), 0.0, True, number))
    return found


def _from_json(path: Path, text: str) -> list[PairRate]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as no:
        fail(path, getattr(no, "lineno", 0), f"this is no JSON ({no})")
    ranks = data.get("ranks") if isinstance(data, Mapping) else None
    values = data.get("bandwidth") if isinstance(data, Mapping) else None
    try:
        names = [f"{r['host']}/{int(r['local'])}" for r in ranks or ()]
        table = [[float(v) for v in row] for row in values or ()]
    except (KeyError, TypeError, ValueError):
        names, table = [], []
    if not names or len(table) != len(names) or any(len(row) != len(names) for row in table):
        fail(path, 0, "not the JSON of `railwright bench pairs`: 'ranks' with host and local, and a square "
             "'bandwidth'")  # fmt: skip
    return [
        PairRate(names[i], names[j], table[i][j], 0.0, True)
        for i in range(len(names))
        for j in range(len(names))
        if i != j
    ]


def _label(cell: str) -> str:
    found = _LABEL.match(cell)
    assert found is not None
    return f"{found['host']}/{found['local']}"


def _value(path: Path, line: int, text: str) -> float:
    try:
        value = float(text) * 1e9
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        fail(path, line, f"'{text}' is no bandwidth in GB/s")
    return value


def _rows(text: str) -> list[tuple[int, list[str]]]:
    return [(n, row) for n, row in enumerate(csv.reader(text.splitlines()), 1)]
