"""What a fabric becomes on one machine: network namespaces, and the shaped cables between them.

Legend: N devices and C cables of the fabric, W wires of the emulation.
Every GPU is a namespace with its NIC inside; every live scale-up switch, leaf, spine and core is one too.
A live cable between two namespaces is a veth pair; the lane between a GPU and its own NIC is inside one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.units import show_bit_rate

MOST_GPUS = 128
"""GPUs emulated at most: set-up takes about 10 s there, and 10.x.y.z names at most 254 GPUs."""

NIC_RATE = 25e6 / 8
"""Rate of the fastest NIC cable, where the machine allows [byte/s]: a block of 64 KiB takes 21 ms, far above
scheduling noise. Source: EMULATION notes (25 to 50 Mbit/s)."""

RATE_PER_CORE = 0.4e9 / 8
"""Sum of NIC rates that one core may be asked to move [byte/s]. Source: EMULATION notes: the ceiling was
about 3.2 Gbit/s on two cores; a quarter of it, since others share the machine."""

MOST_SLOWED = 4
SMALL = 1e-9

LEAST_RATE = 1e5 / 8
"""Of the fastest NIC cable [byte/s]: a packet of NETWORK_MTU bytes takes 0.7 s there."""

NETWORK_MTU = 9000
SCALE_UP_MTU = 65535


@dataclass(frozen=True)
class Wire:
    """One veth pair.

    name    of the device at both ends
    cable   of the fabric; links 2 * cable (a -> b) and 2 * cable + 1
    a, b    namespaces
    rates   a -> b and b -> a on this machine [byte/s]
    """

    name: str
    cable: int
    a: int
    b: int
    rates: tuple[float, float]
    mtu: int


@dataclass(frozen=True, eq=False)
class Topology:
    """Namespaces and wires.

    names    of the namespaces, as in the drawing; the GPUs come first, in order of id
    node_of  (N,) namespace of each device, -1 for those that carry nothing
    wires    by cable, ascending
    scale    emulated rate over real rate
    """

    names: tuple[str, ...]
    node_of: NDArray[np.int64]
    wires: tuple[Wire, ...]
    scale: float


def topology(fabric: Fabric, nic_rate: float | None = None) -> Topology:
    """Namespaces and wires of a fabric, its rates scaled down alike.

    nic_rate  what the fastest NIC cable runs at here [byte/s]; default: NIC_RATE, or less where the GPUs
              would need more than RATE_PER_CORE of every core, or where others keep the cores busy
    Raises PlanError for more than MOST_GPUS GPUs, and for a rate beyond the NIC's own or below LEAST_RATE.
    """
    refuse_too_many(fabric.num_gpus, fabric.gpus_per_server)
    fastest = float(fabric.rate[fabric.role == Role.NODE_LEAF].max())
    if nic_rate is not None and not LEAST_RATE <= nic_rate <= fastest:
        raise PlanError(
            f"a NIC at {show_bit_rate(nic_rate)} is not emulated: give from {show_bit_rate(LEAST_RATE)} to "
            f"its own {show_bit_rate(fastest)}, or leave the rate out for what this machine moves"
        )
    scale = (nic_rate or affordable(fabric.num_gpus, os.cpu_count() or 1, os.getloadavg()[0])) / fastest
    node_of, names = _nodes(fabric)
    wires = []
    for cable in range(fabric.num_cables):
        ends = int(node_of[fabric.a[cable]]), int(node_of[fabric.b[cable]])
        rates = float(fabric.capacity[2 * cable]) * scale, float(fabric.capacity[2 * cable + 1]) * scale
        if min(rates) <= 0 or min(ends) < 0 or ends[0] == ends[1]:
            continue
        mtu = SCALE_UP_MTU if fabric.role[cable] == Role.SCALE_UP else NETWORK_MTU
        wires.append(Wire(f"c{cable}", cable, *ends, rates, mtu))
    return Topology(names, node_of, tuple(wires), scale)


def refuse_too_many(gpus: int, per_server: int) -> None:
    """Raise PlanError, with what to do, for more than MOST_GPUS GPUs."""
    if gpus <= MOST_GPUS:
        return
    fit = MOST_GPUS // per_server * per_server
    if fit < 2:
        advice = f"one server alone has {per_server}, so this design cannot be emulated"
    else:
        advice = f"--gpus {fit} emulates the first {fit // per_server} servers of the same design"
    raise PlanError(f"{gpus:,} GPUs are too many to emulate: at most {MOST_GPUS} on one machine; {advice}")


def affordable(gpus: int, cores: int, load: float) -> float:
    """Rate of a NIC that this machine can move for so many GPUs at once [byte/s].

    load  processes that want to run already: where they outnumber the cores, everything is slower here, so
          that their turns stay short against a block; at most by MOST_SLOWED
    """
    free = min(1.0, max(cores / max(load, SMALL), 1 / MOST_SLOWED))
    return min(NIC_RATE, moved(gpus, cores)) * free


def moved(gpus: int, cores: int) -> float:
    """Rate of a NIC up to which a machine is sure to move all of so many GPUs at once [byte/s]."""
    return RATE_PER_CORE * cores / gpus


def _nodes(fabric: Fabric) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Namespace of each device: GPUs, their NICs with the first GPU on their lanes, then live switches."""
    node_of = np.full(fabric.num_devices, -1, np.int64)
    node_of[: fabric.num_gpus] = np.arange(fabric.num_gpus)
    alive = np.minimum(fabric.capacity[0::2], fabric.capacity[1::2]) > 0
    lanes = np.flatnonzero((fabric.role == Role.PCIE) & alive)
    for cable in lanes.tolist():
        gpu, nic = sorted((int(fabric.a[cable]), int(fabric.b[cable])))
        if node_of[nic] < 0:
            node_of[nic] = gpu
    names = [fabric.device_name(gpu) for gpu in range(fabric.num_gpus)]
    touched = np.zeros(fabric.num_devices, bool)
    touched[fabric.a[alive]] = touched[fabric.b[alive]] = True
    for device in np.flatnonzero(touched & (fabric.kind >= Kind.SCALE_UP)).tolist():
        node_of[device] = len(names)
        names.append(fabric.device_name(device))
    return node_of, tuple(names)
