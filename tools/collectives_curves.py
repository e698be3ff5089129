"""The published curves that families of collectives are fitted to, and what NCCL's model says of each point.

Reads src/railwright/measure/data/collectives.yaml and prices every point on a healthy fabric.
Records without sizes and times, on machines that are not known, over virtual functions, and busbws read too
coarsely are left out; single quoted numbers (quality C) count as plateaus.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from railwright.catalog import find, load_catalog
from railwright.collectives.choice import ALGORITHMS
from railwright.collectives.cost import on_healthy_fabric
from railwright.collectives.family import BANDS, pipeline_root
from railwright.collectives.group import Group, generation_of
from railwright.collectives.prediction import NcclSettings, Op
from railwright.collectives.rates import bus_factor

CURVES = Path(__file__).parent.parent / "src/railwright/measure/data/collectives.yaml"
SERVERS = {
    "V100": "dgx-1-v100", "A100": "dgx-a100", "A100-40": "dgx-a100", "H100": "dgx-h100", "H800": "hgx-h800",
    "H200": "dgx-h200", "B200": "dgx-b200", "B300": "dgx-b300", "GB200": "gb200-nvl72",
}  # fmt: skip
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
FORCED = {"RING forced": "ring", "NVLSTree": "nvlstree", "Ring": "ring", "Tree": "tree"}
TRANSPORTS = {"EFA": "efa", "p5": "efa", "p4de": "efa", "TCPXO": "tcpxo"}
Sample = tuple[float, float, float, float]
"""S [byte]; NCCL's terms, the root of the ramp, measured [s]."""
SIZES = 2.0 ** np.arange(10, 31)


@dataclass(frozen=True)
class Curve:
    """One published curve and the machine it was measured on."""

    name: str
    op: Op
    group: Group
    settings: NcclSettings
    points: tuple[tuple[float, float], ...]  # (S [byte], time [s])
    quality: str


def curves() -> list[Curve]:
    """Every record of a plain collective with sizes and times, and the one-node fits at powers of two."""
    content = YAML(typ="safe").load(CURVES.read_text(encoding="utf-8"))
    found = [c for c in map(_curve, content["records"]) if c is not None]
    for gpu, op, gpus, alpha, busbw, k, _error, _version in content["one_node_fits"]["rows"]:
        group = _group(gpu, gpus, "ib", {})
        factor = bus_factor(op, gpus)
        times = [(alpha + k * sqrt(s) + factor * s / busbw / 1e3) * 1e-6 for s in SIZES]
        points = tuple(zip(SIZES.tolist(), times, strict=True))
        found.append(Curve(f"fit {gpu}x{gpus} {op}", op, group, NcclSettings(), points, "A"))
    return found


def samples(curve: Curve) -> list[tuple[str, Sample]]:
    """The family and the sample of each point; algorithms as NCCL chooses."""
    rows: list[tuple[str, Sample]] = []
    for size, measured in curve.points:
        cost = on_healthy_fabric(curve.op, size, curve.group, curve.settings)
        terms = {t.name: t.seconds for t in cost.terms}
        fixed = terms["steps"] + terms["bandwidth"] + terms.get("messages", 0.0)
        root = pipeline_root(cost.filling, terms["bandwidth"], curve.group.nodes > 1)
        family = f"{curve.group.generation} {curve.group.scope} {cost.algorithm}"
        rows.append((family, (size, fixed, root, measured)))
    return rows


def _curve(record: dict[str, Any]) -> Curve | None:
    timed = record["columns"] == ["bytes", "us"]
    if record["op"] not in OPS or record["gpu"] not in SERVERS or "gpus" not in record:
        return None
    if not timed and record["columns"] != ["bytes", "busbw_GBs"]:
        return None
    op, gpus = record["op"], record["gpus"]
    fabric = str(record.get("fabric", ""))
    transport = next((name for word, name in TRANSPORTS.items() if word in fabric), "ib")
    group = _group(record["gpu"], gpus, transport, record)
    settings = NcclSettings(algorithm=FORCED.get(record.get("algorithm", ""), "auto"))
    if settings.algorithm != "auto" and ALGORITHMS[settings.algorithm].unavailable(op, group, False):
        return None
    points = [
        (float(s), (v * 1e-6 if timed else bus_factor(op, gpus) * s / v / 1e9)) for s, v in record["points"]
    ]
    least = 2e9 * record.get("resolution", 0.0)  # a busbw read to half of itself and less says nothing
    smallest = BANDS[1] if record["quality"] == "C" else 0.0  # single quoted numbers are plateaus
    points = [p for p in points if p[0] > smallest and bus_factor(op, gpus) * p[0] / p[1] > least]
    if not points or record.get("virtual"):
        return None
    return Curve(record["id"], op, group, settings, tuple(points), record["quality"])


def _group(gpu: str, gpus: int, transport: str, record: dict[str, Any]) -> Group:
    """The communicator of a record; {}: packed on the GPU's usual servers."""
    catalog = load_catalog()
    server = find(catalog.servers, SERVERS[gpu])
    domains = ceil(gpus / server.gpus)
    if "nodes" in record and server.gpus <= 16:
        domains = record["nodes"]
    part = find(catalog.gpus, server.gpu)
    local = ceil(gpus / domains)
    rate = find(catalog.nics, server.nic).rate
    of_node = record.get("nics", server.nics)
    if "nic_gbps" in record:
        rate = record["nic_gbps"] * 1e9 / 8 * server.gpus / of_node
    used = record.get("of_node", range(local))
    nics = len({gpu * of_node // server.gpus for gpu in used})
    return Group(
        gpus, domains, nics, rate, part.scale_up_bandwidth, generation_of(part), server.cpu, transport
    )
