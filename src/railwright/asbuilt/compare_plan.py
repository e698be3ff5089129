"""What a machine should look like, link by link: inferred from itself, or laid down by a design.

A port is (node, port number); port number 0 stands for 'some port of it, which one is not known'.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from railwright.asbuilt.read.speeds import rate_of
from railwright.asbuilt.wiring import Link, Node

_UNNAMED = re.compile(
    r"^$|^localhost|^mt\d{3,}|^mellanox|^connectx|^infiniscale|^quantum\b|^\(none\)|^unknown", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Planned:
    """One cable as it should be.

    width, speed, rate  as in `Link`; 0 or '' where nothing is expected of it
    why         the evidence, one clause
    confidence  0..1, of the plan for this cable
    """

    a: int
    a_port: int
    b: int
    b_port: int
    width: int = 0
    speed: str = ""
    rate: float = 0.0
    why: str = ""
    confidence: float = 1.0


@dataclass(frozen=True)
class Blueprint:
    """The intended machine over the nodes of a dump.

    nodes  those of the dump, in its order, then those that should be there and are not
    tier   tier of each node: 0 hosts, 1 leaves, 2 spines, …; -1 where it has none
    rail   rail of each node; -1 where it has none
    """

    nodes: tuple[Node, ...]
    links: tuple[Planned, ...]
    tier: tuple[int, ...]
    rail: tuple[int, ...]


def label(node: Node) -> str:
    """What a person calls a node: 'server-03/nic-2', 'leaf-07', or its key when the dump has no name."""
    if node.kind == "host" and node.host:
        return f"{node.host}/{node.adapter}" if node.adapter else node.host
    return node.name or node.key


def end_name(node: Node, port: int) -> str:
    """'leaf-03 port 37'."""
    return f"{label(node)} port {port}" if port else label(node)


def unnamed(node: Node) -> bool:
    """Whether an adapter carries no server's name, only what its firmware calls it."""
    return bool(_UNNAMED.match(node.host or node.name)) if node.kind == "host" else not node.name


def speed_name(width: int, speed: str, rate: float) -> str:
    """'4xNDR', or the rate where the dump names no speed; '' when nothing is known."""
    if width and speed:
        return f"{width}x{speed}"
    if rate:
        return f"{rate * 8 / 1e9:g} Gb/s"
    return f"{width} lanes" if width else speed


def relative_speed(link: Link | Planned) -> float:
    """One direction of a link, by its width and speed where they are known [byte/s]; 0 when unknown."""
    return rate_of(link.width, link.speed.upper()) or link.rate


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that puts 'n9' before 'n10'."""
    parts = re.split(r"(\d+)", text.casefold())
    return tuple((1, int(p), "") if p.isdigit() else (0, 0, p) for p in parts if p)


def last_number(text: str) -> int | None:
    """The last whole number in a name: 7 in 'rack2-server-07'."""
    found = re.findall(r"\d+", text)
    return int(found[-1]) if found else None


def stem(text: str) -> str:
    """A name without its last number: what machines of one kind have in common."""
    return re.sub(r"\d+(?=\D*$)", "#", text.casefold())


def alike(adapters: Mapping[str, Collection[str]]) -> list[str]:
    """Hosts of the commonest naming, in the order of their names.

    adapters  of each host
    Hosts that differ in several numbers ('rack2-node07') are of one naming where those of each first number
    have equally many adapters ('gpu4-01' and 'gpu8-01' have not).
    """
    counts: dict[str, list[int]] = {}
    for name, own in adapters.items():
        counts.setdefault(stem(name), []).append(len(own))
    kinds = {name: (re.sub(r"\d+", "#", stem(name)), mode(counts[stem(name)])) for name in adapters}
    number = Counter(kinds.values())
    usual = min(number, key=lambda kind: (-number[kind], kind), default=None)
    return sorted((name for name in adapters if kinds[name] == usual), key=natural)


def listed(names: Iterable[str], most: int = 4) -> str:
    """'a, b, c and 5 more'."""
    names = list(names)
    shown = names if len(names) <= most else names[: most - 1]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def mode(values: Sequence[int]) -> int:
    """The commonest value; the smallest of several as common.  0 for none."""
    counts: dict[int, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return min(counts, key=lambda v: (-counts[v], v)) if counts else 0
