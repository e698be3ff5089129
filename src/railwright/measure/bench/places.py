"""Where ranks sit, and how they are split into groups that run at the same time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from railwright.errors import RailwrightError

_EXPRESSION = re.compile(r"\s*(AND|OR|MOD|DIV|&|\||%|/)\s*(0x[0-9a-f]+|0b[01]+|\d+)\s*", re.IGNORECASE)
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "AND": lambda rank, value: rank & value,
    "OR": lambda rank, value: rank | value,
    "MOD": lambda rank, value: rank % value,
    "DIV": lambda rank, value: rank // value,
}
_SIGNS = {"&": "AND", "|": "OR", "%": "MOD", "/": "DIV"}


@dataclass(frozen=True)
class Place:
    """One rank: its host, its number on that host (its rail), its process and its device."""

    rank: int
    host: str
    local: int
    pid: int = 0
    device: str = ""


def split(text: str, places: Sequence[Place]) -> list[list[int]]:
    """Ranks of each group, groups in order of their colour.

    text   'none' (one group), 'host' (one group per host), 'rail' (the n-th rank of every host together), or
           nccl-tests' NCCL_TESTS_SPLIT: 'MOD 8', 'DIV 8', 'AND 0x7', 'OR 0x7', '%8', '/8', '&7', '|7'
    Source of the expressions: nccl-tests, README.md and src/common.cu.
    Raises RailwrightError for anything else.
    """
    colours = _colours(text, places)
    groups: dict[int, list[int]] = {}
    for place, colour in zip(places, colours, strict=True):
        groups.setdefault(colour, []).append(place.rank)
    return [sorted(groups[c]) for c in sorted(groups)]


def hosts_of(places: Sequence[Place]) -> list[str]:
    """Distinct hosts in rank order."""
    return list(dict.fromkeys(p.host for p in places))


def _colours(text: str, places: Sequence[Place]) -> list[int]:
    plain = text.strip().lower()
    if plain in ("", "none"):
        return [0] * len(places)
    if plain == "host":
        order = {host: i for i, host in enumerate(hosts_of(places))}
        return [order[p.host] for p in places]
    if plain == "rail":
        return [p.local for p in places]
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        raise RailwrightError(
            f"--split '{text}' is not a split; write none, host, rail, or as NCCL_TESTS_SPLIT: MOD 8, DIV 8, "
            "AND 0x7 or OR 0x7"
        )
    name = _SIGNS.get(match[1], match[1].upper())
    value = int(match[2], 0) if not match[2].isdigit() else int(match[2])
    if value == 0 and name in ("MOD", "DIV"):
        raise RailwrightError(f"--split '{text}': a rank cannot be divided by 0; give 1 or more")
    return [_OPERATIONS[name](p.rank, value) for p in places]
