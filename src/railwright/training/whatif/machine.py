"""Machines and prices as questions change them: a faster network, communication or kernels that are free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from railwright.collectives import predict as network_predict
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import CollectivePrediction, Op
from railwright.fabric.graph import Role
from railwright.model.shape.architecture import Operator
from railwright.traffic.demand import Communicator
from railwright.training.layers.communication import Predict


def at_rate(machine: Machine, factor: float) -> Machine:
    """The machine with NICs, their PCIe lanes, switch ports and cables `factor` times as fast.

    Scale-up links, latencies, NCCL's settings and the PCIe slots of GPUs stay.
    """
    fabric = machine.network.fabric
    nic = replace(
        machine.nic, rate=machine.nic.rate * factor, pcie_bandwidth=machine.nic.pcie_bandwidth * factor
    )
    lane = machine.gpu.lane_to(nic) / machine.gpu.lane_to(machine.nic)
    roles = [fabric.role == Role.SCALE_UP, fabric.role == Role.PCIE]
    faster = np.select(roles, [1.0, lane], factor)
    changed = replace(fabric, rate=fabric.rate * faster, capacity=fabric.capacity * np.repeat(faster, 2))
    network = replace(machine.network, fabric=changed)
    return replace(machine, network=network, nic=nic, alike=(machine.network, factor))


def free_between_servers(machine: Machine) -> Predict:
    """Prices under which collectives that leave a server take no time, their part inside it neither."""
    server = machine.network.fabric.server

    def predict(
        machine: Machine, op: Op, size: float, groups: Sequence[Communicator]
    ) -> CollectivePrediction:
        if any(bool((server[g.gpus] != server[g.gpus[0]]).any()) for g in groups):
            return in_no_time(machine, op, size, groups)
        return network_predict(machine, op, size, groups)

    return predict


def in_no_time(machine: Machine, op: Op, size: float, groups: Sequence[Communicator]) -> CollectivePrediction:
    """A collective that is free."""
    return CollectivePrediction(
        op=op,
        size=size,
        ranks=len(groups[0]),
        groups=len(groups),
        time=0.0,
        algbw=0.0,
        busbw=0.0,
        algorithm="free",
        protocol="none",
        terms=(),
        bottleneck=None,
        error_low=1.0,
        error_high=1.0,
    )


def kernel_in_no_time(operator: Operator) -> float:
    """A kernel that is free."""
    return 0.0
