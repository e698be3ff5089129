"""Traces of requests as published: Azure's and BurstGPT's CSV, Mooncake's JSON lines; plain or gzipped.

Legend: N requests, in order of arrival.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from railwright.errors import RailwrightError, nearest

MOONCAKE_PART = 512
"""Tokens of one hashed block. Source: kvcache-ai/Mooncake, README of the traces ("block size 512")."""

AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
"""Source: Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md."""
BURSTGPT = ("Timestamp", "Request tokens", "Response tokens")
"""Source: HPMLL/BurstGPT, README (Schema); later files have a session and an elapsed time between."""


@dataclass(frozen=True, eq=False)
class TraceRequests:
    """Requests of a file.

    arrival      (N,) seconds since the first
    prompt       (N,) tokens; `output` likewise
    part_ptr     (N + 1,) CSR of the hashed full blocks of each prompt; `parts` their ids from 0 on
    part_tokens  tokens of one block, 0 where the file tells none
    skipped      lines of requests that failed, and had no answer
    """

    arrival: NDArray[np.float64]
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    part_ptr: NDArray[np.int64]
    parts: NDArray[np.int64]
    part_tokens: int
    skipped: int


def read_trace(path: Path, limit: int | None = None) -> TraceRequests:
    """The requests of a trace file, the first `limit` of them; the format is told by its first line.

    Raises RailwrightError naming file and line for what is no such file, is cut off, or says the impossible.
    """
    try:
        with closing(_open(path)) as file:
            first = file.readline()
            if not first.strip():
                raise RailwrightError(f"{path}: is empty; a trace has one request a line")
            if first.lstrip().startswith("{"):
                return _mooncake(path, first, file, limit)
            return _table(path, first, file, limit)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RailwrightError(f"{path}: is cut off or no gzip file ({error}); fetch it again") from None
    except UnicodeDecodeError:
        raise RailwrightError(f"{path}: is not text; a trace is CSV or JSON lines, plain or .gz") from None
    except OSError as error:
        raise RailwrightError(f"cannot read trace '{path}': {error.strerror or error}") from None


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _table(path: Path, first: str, file: IO[str], limit: int | None) -> TraceRequests:
    header = [name.strip() for name in next(csv.reader([first]))]
    known = {AZURE: (_date, False), BURSTGPT: (_seconds, True)}
    names = next((names for names in known if all(name in header for name in names)), None)
    if names is None:
        near = "".join(nearest(name, (*AZURE, *BURSTGPT)) for name in header[:3])
        raise RailwrightError(
            f"{path}:1: the columns {', '.join(header)} are no trace's{near}; known are Azure's "
            f"({', '.join(AZURE)}), BurstGPT's ({', '.join(BURSTGPT)}) and Mooncake's JSON lines"
        )
    moment, failures = known[names]
    columns = [header.index(name) for name in names]
    rows: list[tuple[float, int, int]] = []
    skipped = 0
    for line, row in enumerate(csv.reader(file), 2):
        if not row:
            continue
        if len(row) <= max(columns):
            raise RailwrightError(
                f"{path}:{line}: has {len(row)} columns of {len(header)}: the line is cut off"
            )
        when = moment(row[columns[0]], path, line)
        prompt = _tokens(row[columns[1]], names[1], path, line)
        output = _tokens(row[columns[2]], names[2], path, line)
        if failures and output == 0:
            skipped += 1
            continue
        rows.append((when, prompt, output))
        if limit is not None and len(rows) == limit:
            break
    return _in_order(path, rows, [], 0, skipped)


def _mooncake(path: Path, first: str, file: IO[str], limit: int | None) -> TraceRequests:
    rows: list[tuple[float, int, int]] = []
    hashes: list[list[int]] = []
    for line, text in enumerate(_chain(first, file), 1):
        if not text.strip():
            continue
        try:
            entry = json.loads(text)
        except json.JSONDecodeError as error:
            raise RailwrightError(f"{path}:{line}: is no JSON ({error.msg}); is the file cut off?") from None
        if not isinstance(entry, dict):
            raise RailwrightError(f"{path}:{line}: is no JSON object; one request a line is expected")
        when = _number(entry, "timestamp", path, line) / 1e3
        prompt = _tokens(_number(entry, "input_length", path, line), "input_length", path, line)
        output = _tokens(_number(entry, "output_length", path, line), "output_length", path, line)
        ids = entry.get("hash_ids", [])
        if not (isinstance(ids, list) and all(isinstance(i, int) for i in ids)):
            raise RailwrightError(f"{path}:{line}: hash_ids: a list of whole numbers is expected")
        rows.append((when, prompt, output))
        # Only full blocks are shared; the last one of a prompt may be part of one.
        hashes.append(ids[: prompt // MOONCAKE_PART])
        if limit is not None and len(rows) == limit:
            break
    return _in_order(path, rows, hashes, MOONCAKE_PART if any(hashes) else 0, 0)


def _chain(first: str, file: IO[str]) -> Iterator[str]:
    yield first
    yield from islice(file, None)


def _in_order(
    path: Path, rows: list[tuple[float, int, int]], hashes: list[list[int]], part: int, skipped: int
) -> TraceRequests:
    if not rows:
        raise RailwrightError(f"{path}: has no request with an answer")
    when = np.array([row[0] for row in rows])
    order = np.argsort(when, kind="stable")
    prompt = np.array([row[1] for row in rows], np.int64)[order]
    output = np.array([row[2] for row in rows], np.int64)[order]
    lists = [hashes[k] for k in order] if hashes else [[] for _ in rows]
    ptr = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    flat = np.array([i for one in lists for i in one], np.int64)
    parts = np.unique(flat, return_inverse=True)[1].astype(np.int64) if len(flat) else flat
    # A prompt or an answer of no tokens still is a request: engines add a token at least.
    return TraceRequests(
        when[order] - when.min(), np.maximum(prompt, 1), np.maximum(output, 1), ptr, parts, part, skipped
    )


def _date(text: str, path: Path, line: int) -> float:
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        example = "2023-11-16 18:17:03.9799600"
        raise RailwrightError(f"{path}:{line}: {AZURE[0]}: '{text}' is no moment, like '{example}'") from None


def _seconds(text: str, path: Path, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise RailwrightError(f"{path}:{line}: {BURSTGPT[0]}: '{text}' is no number of seconds")
    return value


def _tokens(value: Any, field: str, path: Path, line: int) -> int:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not (number >= 0 and number == int(number)):
        raise RailwrightError(
            f"{path}:{line}: {field}: '{value}' is no number of tokens (a whole number from 0)"
        )
    return int(number)


def _number(entry: dict[str, Any], field: str, path: Path, line: int) -> float:
    value = entry.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        said = "is missing" if value is None else f"'{value}' is no number"
        raise RailwrightError(f"{path}:{line}: {field} {said}; Mooncake's traces have it in every line")
    return float(value)
