"""A node checked against its design before every job: counts, links and errors, in one shell script."""

from __future__ import annotations

from railwright.deploy.templates import template
from railwright.export.hierarchy import host_adapters
from railwright.export.nccl import nvlinks
from railwright.export.sheet import Sheet, gigabits
from railwright.fabric.graph import Kind, Role


def expected(sheet: Sheet, gpus: int) -> dict[str, str]:
    """What a healthy host shows: GPUs, NVLinks of each, adapters, ports, port rate [Gb/s]."""
    fabric = sheet.fabric
    at_leaf = fabric.rate[fabric.role == Role.NODE_LEAF]
    leaf = sheet.switch(Kind.LEAF)
    return {
        "GPUS": str(gpus),
        "NVLINKS": str(nvlinks(sheet.gpu)),
        "ADAPTERS": " ".join(host_adapters(sheet)),
        "RATE": gigabits(float(at_leaf[0])) if len(at_leaf) else "0",
        "LAYER": "Ethernet" if leaf is not None and leaf.technology == "ethernet" else "InfiniBand",
    }


def render(sheet: Sheet, gpus: int) -> dict[str, str]:
    """health/check-node.sh: prints one line for each thing that is wrong; status 1 if there is any.

    Sources: nvidia-smi(1) query fields; Linux Documentation/ABI/stable/sysfs-class-infiniband (state, rate,
    link_layer); NVIDIA Xid catalogue for row remapping.
    """
    figures = "\n".join(f'{name}="{value}"' for name, value in expected(sheet, gpus).items())
    return {"health/check-node.sh": template("check-node.sh", TITLE=sheet.title, FIGURES=figures)}
