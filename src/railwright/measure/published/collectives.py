"""Published nccl-tests curves replayed: our time beside theirs at every size."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from railwright.collectives import bus_factor, predict
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import NcclSettings
from railwright.errors import RailwrightError
from railwright.measure.machines import Unsupported, published_machine
from railwright.measure.table import Row, Skipped
from railwright.shipped import read_data
from railwright.traffic.demand import Communicator

BANDS = ((256 * 1024.0, "≤ 256 KB"), (128 * 2.0**20, "512 KB - 128 MB"), (float("inf"), "≥ 256 MB"))
"""Upper sizes of the bands in which errors are told: latency, ramp, plateau."""
VIRTUAL = "SR-IOV"
"""Families of records whose NICs are virtual functions: no constant is fitted on them."""
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
ALGORITHMS = {"RING forced": "ring", "Ring": "ring", "Tree": "tree", "NVLSTree": "nvlstree"}
"""How records name a forced algorithm -> NCCL_ALGO."""


def collective_rows() -> Iterator[Row | Skipped]:
    """Every point of every curve, or the record left out with the reason."""
    data = published()
    for record in data["records"]:
        if record["op"].startswith("moe_") or record["op"] == "rdma_alltoall":
            continue  # replayed by `measure.moe`
        try:
            yield from _replay(record)
        except (Unsupported, RailwrightError) as no:
            yield Skipped("collectives, others", record["id"], str(no))
    for left in data["left_out"]:
        yield Skipped("collectives, others", left["id"], left["why"])


@cache
def published() -> dict[str, Any]:
    """data/collectives.yaml: 'records' of curves, 'left_out' with reasons, 'one_node_fits'."""
    data: dict[str, Any] = json.loads(json.dumps(read_data("measure", "collectives.yaml")))
    return data


def _replay(record: dict[str, Any]) -> Iterator[Row]:
    """The points of one curve. Raises Unsupported for records that are not nccl-tests curves."""
    if record["op"] not in OPS:
        raise Unsupported(f"'{record['op']}' is not an nccl-tests collective modelled here")
    if "gpus" not in record or "nodes" not in record or record["columns"][0] != "bytes":
        raise Unsupported("no size or no rank count")
    algorithm = record.get("algorithm", "auto")
    nccl = NcclSettings(algorithm=ALGORITHMS.get(algorithm, "auto"))
    efa = "EFA" in record.get("fabric", "")
    rate, nics = record.get("nic_gbps"), record.get("nics")
    machine = published_machine(record["gpu"], _gpus_to_build(record), rate, nccl, efa, nics=nics)
    group = (ranks(machine, record["gpus"], record["nodes"], record.get("of_node")),)
    factor = bus_factor(record["op"], record["gpus"])
    for size, value in record["points"]:
        predicted = predict(machine, record["op"], float(size), group)
        in_microseconds = record["columns"][1] == "us"
        measured = value * 1e-6 if in_microseconds else size * factor / (value * 1e9)
        band = next(name for top, name in BANDS if size <= top)
        what = f"{record['op']} {record['gpus']} {record['gpu']}, {size:,} B"
        yield Row(
            f"{VIRTUAL if record.get('virtual') else 'collectives'} {band}",
            record["id"],
            what,
            predicted.time,
            measured,
            "s",
            record["source"],
            record.get("reason", ""),
        )


def _gpus_to_build(record: dict[str, Any]) -> int:
    """GPUs of the servers a record used: whole servers even when it ran on fewer GPUs of each."""
    per_node = -(-record["gpus"] // record["nodes"])
    return int(record["gpus"] if per_node >= 4 and "of_node" not in record else record["nodes"] * 8)


def ranks(machine: Machine, gpus: int, nodes: int, of_node: Sequence[int] | None = None) -> Communicator:
    """The record's ranks: packed, or some GPUs of each server when it used a few of each.

    of_node  which ones; None: the first
    """
    fabric = machine.network.fabric
    if of_node is None and gpus <= fabric.num_gpus and -(-gpus // nodes) >= 4:
        return Communicator(np.arange(gpus, dtype=np.int32), "world")
    each = np.array(range(gpus // nodes) if of_node is None else of_node, dtype=np.int32)
    first = np.arange(nodes, dtype=np.int32)[:, None] * fabric.gpus_per_server
    return Communicator((first + each).ravel().astype(np.int32), "world")
