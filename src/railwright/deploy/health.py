"""A node checked against its design before every job: counts, links and errors, in one shell script."""

from __future__ import annotations

from railwright.deploy.templates import template
from railwright.export.sheet import Sheet, gigabits
from railwright.fabric.graph import Kind, Role

NVLINK = {"volta": 25e9, "ampere": 25e9, "hopper": 25e9, "blackwell": 50e9, "blackwell-ultra": 50e9}
"""One NVLink, one direction [byte/s] (NVIDIA data sheets: 6 of V100, 12 of A100, 18 of H100 and of B200)."""


def expected(sheet: Sheet, gpus: int) -> dict[str, str]:
    """What a healthy host shows: GPUs, NVLinks of each, adapters, ports, port rate [Gb/s]."""
    fabric, gpu = sheet.fabric, sheet.gpu
    each = NVLINK.get(gpu.generation, 0.0) if gpu else 0.0
    links = round(gpu.scale_up_bandwidth / each) if gpu and each else 0
    at_leaf = fabric.rate[fabric.role == Role.NODE_LEAF]
    hosts = max(sheet.gpus // gpus, 1)
    leaf = sheet.switch(Kind.LEAF)
    return {
        "GPUS": str(gpus),
        "NVLINKS": str(links),
        "ADAPTERS": " ".join(sheet.adapters[: max(len(sheet.adapters) // hosts, 1)]),
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
