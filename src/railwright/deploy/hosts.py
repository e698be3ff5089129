"""What schedulers must know of one host, from the study or from what is published of the server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from railwright.catalog.parts import HOST_SHARE
from railwright.errors import PlanError
from railwright.shipped import read_data
from railwright.spec.sharing import Sharing

MEGABYTE = 2.0**20
"""Slurm counts RealMemory in these [byte] (slurm.conf(5))."""


@dataclass(frozen=True)
class Host:
    """Sockets, cores of all sockets, threads of a core, memory [byte], and who says so."""

    sockets: int
    cores: int
    threads: int
    memory: float
    source: str

    @property
    def real_memory(self) -> int:
        """Slurm's RealMemory, of which no node may report less, or it is drained. [MiB]"""
        return int(HOST_SHARE * self.memory / MEGABYTE)


def host_of(server: str, sharing: Sharing) -> Host:
    """One host of a server; what the study says goes before what is published.

    Raises PlanError where neither says it, naming the fields to add.
    """
    known = next((row for row in _rows() if server in row["servers"]), {})
    said = {
        "sockets": sharing.sockets,
        "cores": sharing.cores,
        "threads": sharing.threads,
        "memory": sharing.memory,
    }
    found: dict[str, Any] = {
        name: value if value is not None else known.get(name) for name, value in said.items()
    }
    if missing := [name for name, value in found.items() if value is None]:
        raise PlanError(
            f"nothing is known of the CPUs of a '{server}', and schedulers must be told: add "
            f"{', '.join(f'sharing.{name}' for name in missing)} to the study (`slurmd -C` prints them)",
            "sharing",
        )
    if found["cores"] % found["sockets"]:
        raise PlanError(
            f"sharing.cores: {found['cores']} cores do not spread evenly over {found['sockets']} sockets"
        )
    own = [name for name, value in said.items() if value is not None]
    source = f"the study ({', '.join(own)})" if own else ""
    if len(own) < len(said):
        source = "; ".join(s for s in (source, known["source"]) if s)
    return Host(found["sockets"], found["cores"], found["threads"], found["memory"], source)


@cache
def _rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_data("deploy", "hosts.yaml")["rows"]
    return rows
