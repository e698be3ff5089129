"""NCCL's own constants, read from `data/nccl.yaml` (each with its place in NCCL's source)."""

from __future__ import annotations

from functools import cache
from typing import Any

from railwright.shipped import read_data

PROTOCOLS = ("ll", "ll128", "simple")


@cache
def nccl() -> dict[str, Any]:
    """The constants as nested mappings; times [s], bandwidths [byte/s], sizes [byte]."""
    return load("nccl.yaml")


def load(name: str) -> dict[str, Any]:
    """One data file of this room as nested mappings."""
    content: dict[str, Any] = read_data("collectives", name)
    return content


def base_latency(algorithm: str, protocol: str) -> float:
    """What a collective costs before its first step. [s]"""
    return float(nccl()["base_latency"][algorithm][PROTOCOLS.index(protocol)])


def step_latency(medium: str, algorithm: str, protocol: str) -> float:
    """One step over 'nvlink', 'pci' or 'net'. [s]"""
    return float(nccl()["step_latency"][medium][algorithm][PROTOCOLS.index(protocol)])


def by_nodes(table: str, generation: str, nodes: int) -> float:
    """A bandwidth of a table with one column for 1, 2 and more nodes. [byte/s]

    AMD's generations have no row in NCCL's tables; Ampere's stands in (a stated weakness).
    """
    row = nccl()[table].get(generation, nccl()[table]["ampere"])
    return float(row[min(nodes, 3) - 1])
