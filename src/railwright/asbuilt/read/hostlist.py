"""Slurm hostlists: 'n[01-03,7],m1' is n01 n02 n03 n7 m1.

Source: Slurm, slurm.conf(5), "NodeName" (node range expressions).
"""

from __future__ import annotations

import itertools
import math
import re

LIMIT = 1_000_000
"""Names one expression may stand for: ten times the largest cluster; more is a slip of the keyboard."""

_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")


def expand(text: str) -> list[str]:
    """All names of an expression, in order. ValueError with a sentence when it is none."""
    names: list[str] = []
    for part in _split(text):
        pieces = _BRACKET.split(part)
        if any("[" in piece or "]" in piece for piece in pieces[::2]):
            raise ValueError(f"'{part}' has a bracket without its partner")
        choices = [[piece] if i % 2 == 0 else _numbers(piece, part) for i, piece in enumerate(pieces)]
        count = math.prod(len(choice) for choice in choices)
        if len(names) + count > LIMIT:
            raise ValueError(f"'{part}' stands for {count} names; at most {LIMIT} are read")
        names.extend("".join(chosen) for chosen in itertools.product(*choices))
    return names


def _split(text: str) -> list[str]:
    """At commas outside brackets."""
    parts: list[str] = []
    depth, start = 0, 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _numbers(text: str, whole: str) -> list[str]:
    """'01-03,7' -> 01 02 03 7: a range keeps the width of its first number."""
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"'[{text}]' in '{whole}' is no list of numbers and ranges such as [01-16,20]")
        first, last = match[1], match[2] or match[1]
        low, high = int(first), int(last)
        if high < low:
            raise ValueError(f"'{part.strip()}' in '{whole}' counts down; the smaller number comes first")
        if high - low >= LIMIT:
            raise ValueError(
                f"'{part.strip()}' in '{whole}' stands for {high - low + 1} names; at most {LIMIT} are read"
            )
        numbers.extend(str(n).zfill(len(first)) for n in range(low, high + 1))
    return numbers
