"""One row of a table: its words, put into the columns of its head."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from railwright.errors import RailwrightError
from railwright.measure.logs.columns import RATES, TIMES, Columns
from railwright.units import parse_test_size

TYPES = {
    "float": 4, "half": 2, "double": 8, "int8": 1, "uint8": 1, "char": 1, "int32": 4, "uint32": 4, "int": 4,
    "int64": 8, "uint64": 8, "bfloat16": 2, "bf16": 2, "fp16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1,
    "f8e4m3": 1, "f8e5m2": 1, "fp8": 1, "float32": 4, "float16": 2, "float64": 8,
}  # fmt: skip
"""Bytes of one element by nccl-tests' (and torch's) name of its type."""
REDUCTIONS = ("sum", "prod", "max", "min", "avg", "mulsum", "all", "none", "n/a")
_SIZE = re.compile(r"\d[\d_]*(?:\.\d+)?(?:[KMGT]i?B?|B)?", re.IGNORECASE)
_GLUE = re.compile(r"(?<=\d) (?=(?:[KMGT]i?B|B|us|µs|ms|[GM]i?B/s|Gb/s)(?:\s|,|$))")
_NUMBER = re.compile(r"([+-]?\d+(?:\.(\d*))?(?:[eE]([+-]?\d{1,3}))?)\*?")
_MISSING = {"n/a", "nan", "inf", "-nan", "-", "--", "*", "**", "?", ""}


@dataclass(frozen=True)
class Value:
    """A printed number and half a unit of its last digit."""

    value: float
    slack: float


@dataclass(frozen=True)
class Half:
    """Out-of-place or in-place part of a row; None for what is not printed."""

    time: Value | None = None
    algbw: Value | None = None
    busbw: Value | None = None
    wrong: float | None = None


@dataclass(frozen=True)
class Row:
    """One line of a table, in the table's units."""

    line: int
    size: float
    count: float
    type: str
    redop: str
    root: int
    halves: tuple[Half, ...]


def words_of(text: str, comma: bool) -> list[str]:
    """The cells of a line."""
    glued = _GLUE.sub("", text.strip())
    return [c.strip().strip('"*`') or "-" for c in glued.split(",")] if comma else glued.split()


def starts_row(words: list[str]) -> bool:
    """Whether the first word can be a size."""
    return bool(words) and _SIZE.fullmatch(words[0]) is not None


def full_row(words: list[str]) -> list[str] | None:
    """The part of the words that begins a row 'size count type', or None."""
    for i in range(2, min(len(words), 12)):
        if words[i].lower() in TYPES and words[i - 1].isdigit() and words[i - 2].isdigit():
            return words[i - 2 :]
    return None


def measured_words(words: list[str], metrics: int) -> tuple[str, int, list[str]]:
    """(redop, root, measured words) of what follows the type; the root is told by the number of words."""
    rest = list(words)
    redop, root = "", -1
    if rest and rest[0].lower() in REDUCTIONS and not (rest[0].lower() == "n/a" and len(rest) <= metrics):
        redop = rest.pop(0).lower()
    if rest and re.fullmatch(r"-?\d{1,7}", rest[0]) and (rest[0] == "-1" or len(rest) in _with_root(metrics)):
        root = int(rest.pop(0))
    return redop, root, rest


def read_row(line: int, words: list[str], columns: Columns) -> Row | None:
    """A row whose words fit the columns, or None: too few, too many, or no number where one belongs."""
    metrics = columns.metrics
    lead: list[str]
    if "type" in columns.names[: columns.lead] and len(words) > 2 and words[2].lower() in TYPES:
        redop, root, rest = measured_words(words[3:], len(metrics))
        size, count, kind = words[0], words[1], words[2].lower()
        allowed = {len(metrics), columns.group} | ({len(metrics) + 1} if "stamp" in metrics else set())
        if len(rest) not in allowed and not (len(rest) > len(metrics) and "stamp" not in metrics):
            return None
    else:
        if len(words) < len(columns.names):
            return None
        lead, rest = words[: columns.lead], words[columns.lead :]
        cells = dict(zip(columns.names, lead, strict=False))
        size, count, kind = cells.get("size", ""), cells.get("count", "0"), cells.get("type", "").lower()
        redop = cells.get("redop", "").lower()
        root = int(cells["root"]) if re.fullmatch(r"-?\d{1,7}", cells.get("root", "")) else -1
        if not size and "size" in metrics:
            size = rest[metrics.index("size")]
    total = _size(size)
    if total is None:
        return None
    halves = []
    for start in range(0, min(len(metrics), len(rest)), columns.group):
        names = metrics[start : start + columns.group]
        if "time" not in names and "algbw" not in names and "busbw" not in names:
            continue
        half = _half(names, rest[start : start + columns.group])
        if half is None:
            return None
        halves.append(half)
    number = float(count) if re.fullmatch(r"\d{1,18}", count) else 0.0
    return Row(line, total, number, kind, redop, root, tuple(halves))


def _with_root(metrics: int) -> tuple[int, ...]:
    return (metrics + 1, metrics // 2 + 1, metrics + 2)


def _size(text: str) -> float | None:
    plain = text.replace("_", "")
    if not _SIZE.fullmatch(plain) or len(plain) > 24:
        return None
    # In the tests' world a K is 1024, with or without its B.
    short = re.sub(r"(?i)(?<=\d)([kmgt])i?b?$", lambda m: m[1].upper(), plain)
    try:
        return parse_test_size(re.sub(r"(?i)b$", "", short))
    except (RailwrightError, OverflowError):
        return None


def _half(names: tuple[str, ...], words: list[str]) -> Half | None:
    found: dict[str, Value | None] = {}
    wrong: float | None = None
    for name, word in zip(names, words, strict=False):
        if name in ("time", "algbw", "busbw"):
            if word.lower() in _MISSING:
                found[name] = None
                continue
            value = _value(word)
            if value is None:
                return None
            found[name] = value
        elif name == "wrong":
            value = _value(word)
            wrong = value.value if value else None
    return Half(found.get("time"), found.get("algbw"), found.get("busbw"), wrong)


def _value(word: str) -> Value | None:
    for unit in (*RATES, *sorted(TIMES, key=len, reverse=True)):
        if word.endswith(unit) and word[: -len(unit)]:
            word = word[: -len(unit)]
            break
    match = _NUMBER.fullmatch(word)
    if match is None or len(word) > 40:
        return None
    value = float(match[1])
    if not math.isfinite(value) or value < 0:
        return None
    return Value(value, 0.5 * 10.0 ** (int(match[3] or 0) - len(match[2] or "")))
