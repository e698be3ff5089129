"""Hosts of a dump as the servers of a fabric: each is one, or a tray of a rack whose trays are one server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from railwright.asbuilt.compare_plan import listed, natural
from railwright.errors import PlanError

_TRAY = re.compile(r"[-_.]?(compute)?[-_.]?tray[-_.]?$", re.IGNORECASE)


@dataclass(frozen=True)
class Racks:
    """The servers of some hosts, in the order of their names.

    names  of the servers: the host's, or the rack's
    at     host -> (server, tray of it), both from 0
    trays  of one server; 1: every host is a server of its own
    """

    names: tuple[str, ...]
    at: Mapping[str, tuple[int, int]]
    trays: int

    @property
    def missing(self) -> int:
        """Trays that no host is."""
        return len(self.names) * self.trays - len(self.at)


def in_racks(hosts: Sequence[str], trays: int) -> Racks:
    """Hosts as racks of so many trays: those numbered in one name ('rack2-tray-07'), else so many in turn.

    A tray that a dump lacks leaves its place empty where hosts have numbers.
    Raises PlanError for hosts that fill no whole racks.
    """
    if trays == 1:
        return Racks(tuple(hosts), {host: (i, 0) for i, host in enumerate(hosts)}, 1)
    by_name: dict[str, dict[int, str]] = {}
    for host in hosts:
        before, number = _numbered(host)
        by_name.setdefault(before, {})[number] = host
    first = min((min(row) for row in by_name.values()), default=0)
    if any(min(row) < first or max(row) - first >= trays for row in by_name.values()):
        return _in_turn(hosts, trays)
    names = sorted(by_name, key=natural)
    at = {
        host: (server, number - first)
        for server, name in enumerate(names)
        for number, host in by_name[name].items()
    }
    return Racks(tuple(_TRAY.sub("", name) or name for name in names), at, trays)


def trays_by_name(hosts: Sequence[str]) -> int:
    """Trays of a rack where hosts are called so ('rack2-tray-07'), by their numbers; 1 where they are not."""
    numbered = [_numbered(host) for host in hosts]
    if not all(_TRAY.search(before) for before, _ in numbered):
        return 1
    numbers = [number for _, number in numbered]
    return max(numbers, default=0) - min(numbers, default=0) + 1


def _in_turn(hosts: Sequence[str], trays: int) -> Racks:
    if len(hosts) % trays:
        raise PlanError(
            f"{len(hosts)} hosts like '{hosts[0]}' fill no whole racks of {trays} trays, and their names do "
            f"not say which rack each is in ({listed(hosts)}); give a node-name map that does, as "
            "'rack2-tray-07'"
        )
    at = {host: divmod(i, trays) for i, host in enumerate(hosts)}
    ends = [(hosts[i], hosts[i + trays - 1]) for i in range(0, len(hosts), trays)]
    return Racks(tuple(f"{a}…{b}" for a, b in ends), at, trays)


def _numbered(host: str) -> tuple[str, int]:
    """A name before its last number, and that number."""
    found = re.match(r"(.*?)(\d+)\D*$", host)
    return (found[1], int(found[2])) if found else (host, 0)
