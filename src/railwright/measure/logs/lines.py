"""Lines of a log without what launchers, kubectl, mailers and NCCL's own messages put around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_QUOTE = re.compile(r"^\s*(?:>\s?)+")
_TIME = re.compile(r"^\s*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?\]?(?:\s+|$)")
_PREFIXES = (
    re.compile(r"^\s*\[\d+,\d+\]<(?:stdout|stderr|stddiag)>:?"),  # Open MPI --tag-output
    re.compile(r"^\s*\[\d+(?:,\d+)?\](?=\s)"),  # [0]
    re.compile(r"^\s*\[(?:(?!0x)[\w.-]+[/ ])*[\w.-]*[A-Za-z][\w.-]*\](?=\s)"),  # [pod/worker-0/main], stern
    re.compile(r"^\s*\d+:(?=\s|$)"),  # srun --label
    re.compile(
        r"^\s*(?!rccl-tests:)[A-Za-z][\w.-]*(?:/[\w.-]+)*(?:\[\d+\])?(?::(?=\s)|\s*\|(?=\s))"
    ),  # pod: , pod |
)
_NCCL = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d[^\]]*\] )?(?:[\w.-]+:\d+:\d+ )?(?:\[\d+\] )?(?:\S+:\d+ )?"
    r"NCCL (?:INFO|WARN|TRACE|CALL)\b"
)
_MOST_PREFIXES = 5
_LONGEST = 4000
"""Characters of a line that are read: a launcher's command at most; no table is wider."""


@dataclass(frozen=True)
class Line:
    """One line: its number, who printed it ('' where nobody is named), its text, and whether it was cut.

    cut   a message of NCCL began in the middle of it, so the rest of a table's row may follow below
    """

    number: int
    source: str
    text: str
    cut: bool = False


def clean(text: str) -> Iterator[Line]:
    """Every line that may carry something; code fences and NCCL's messages are left out."""
    for number, raw in enumerate(text.split("\n"), 1):
        line = _COLOUR.sub("", raw[:_LONGEST]).replace("\t", " ").replace("\u00a0", " ").replace("\r", "")
        line = _QUOTE.sub("", line)
        if line.lstrip().startswith(("```", "~~~")):
            continue
        source, line = _without_prefixes(line)
        message = _NCCL.search(line) if "NCCL " in line else None
        if message:
            line = line[: message.start()]
            if not line.strip():
                continue
        if line.count("|") >= 2:  # a Markdown table
            line = line.replace("|", " ")
        if line.strip(" -:+="):
            yield Line(number, source, line, cut=message is not None)


def _without_prefixes(line: str) -> tuple[str, str]:
    source = ""
    for _ in range(_MOST_PREFIXES):
        stamp = _TIME.match(line)
        if stamp:
            line = line[stamp.end() :]
            continue
        found = next((m for m in (p.match(line) for p in _PREFIXES) if m), None)
        if found is None:
            break
        source += found.group().strip()
        line = line[found.end() :]
    return source, line
