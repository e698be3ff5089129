"""Slurm's hostlist expressions: 'server-[01-30,32]' for many names that differ in one number."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"(.*?)(\d+)")


def hostlist(names: Iterable[str]) -> str:
    """The names as one expression, in their order, each run of numbers as a range.

    Only the last number of a name is bracketed; numbers of different widths are different ranges
    ('[01-99,100-128]'), because a range takes its width from its first number.
    Source: Slurm, slurm.conf(5), "NodeName" (a simple node range expression).
    """
    groups: list[tuple[str, list[str]]] = []
    for prefix, first, last in _runs(names):
        if not groups or groups[-1][0] != prefix or not (first and groups[-1][1]):
            groups.append((prefix, []))
        if first:
            groups[-1][1].append(first if first == last else f"{first}-{last}")
    return ",".join(
        prefix + (f"[{','.join(runs)}]" if len(runs) > 1 or "-" in "".join(runs) else "".join(runs))
        for prefix, runs in groups
    )


def ranges(names: Iterable[str]) -> list[str]:
    """The names as expressions of one range each, for readers that take no more: ['n[01-30]', 'n32']."""
    return [p + (first if first == last else f"[{first}-{last}]") for p, first, last in _runs(names)]


def _runs(names: Iterable[str]) -> list[tuple[str, str, str]]:
    """(prefix, first, last number) of each run of names that count up by one; '' without a number."""
    runs: list[tuple[str, str, str]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        prefix, number = (match[1], match[2]) if match else (name, "")
        if runs and number:
            before, first, last = runs[-1]
            if before == prefix and len(number) == len(last) and int(number) == int(last) + 1:
                runs[-1] = (prefix, first, number)
                continue
        runs.append((prefix, number, number))
    return runs
