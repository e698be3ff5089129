"""What a job has in host memory, in words."""

from __future__ import annotations

from railwright.training.lanes.result import HostMemory
from railwright.units import show_size


def in_host_memory(held: HostMemory) -> str:
    """What is offloaded, on the fullest host."""
    of = f" of its {show_size(held.capacity)}" if held.capacity else ""
    parts = ", ".join(f"{part} {show_size(size)}" for part, size in held.parts.items())
    ranks = f"{held.ranks} rank{'s' if held.ranks > 1 else ''}"
    return (
        f"Offloaded into host memory: {show_size(held.total)}{of} on the fullest host, by {ranks} ({parts})."
    )
