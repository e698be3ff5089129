"""The cheapest test that tells suspects apart, as a command."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from railwright.diagnose.elements import Elements
from railwright.diagnose.inference.classes import Problem
from railwright.diagnose.inference.infer import Found
from railwright.diagnose.paths import Routing, crossed
from railwright.diagnose.result import NextTest
from railwright.errors import PlanError
from railwright.fabric.graph import Kind
from railwright.fabric.trays import host_of_nic

Ints = NDArray[np.int64]

TRIED, OPEN = 1500, 12
"""Pairs that are looked at, and suspects that are told apart."""

_SETTLES = {
    "rank": "py-spy dump and the rank's log on its host: does its process run, wait or hang?",
    "gpu": "on its host: dcgmi diag -r 3, nvbandwidth, nvidia-smi -q -d ECC,PAGE_RETIREMENT,CLOCK",
    "nic": "on its host: mlxlink -d DEVICE -c -e, lspci -vv (LnkSta), then the same test with another NIC",
    "cable": "mlxlink -d DEVICE -p PORT -c -e (bit errors, power); reseat and clean it, then swap it with a "
    "neighbour's and see whether the fault moves",
    "node": "on the host: dmesg, ipmitool sel list, dcgmi diag -r 3",
    "leaf": "counters and temperature of the switch (ibswinfo, mlxlink per port); move a server to "
    "another leaf",
    "spine": "counters of the switch; take it out of routing and repeat the tests",
    "core": "counters of the switch; take it out of routing and repeat the tests",
}


def settles(kinds: Sequence[str], element: str) -> str:
    """What settles or confirms a suspect that may be any of these kinds."""
    order = list(dict.fromkeys(kinds))
    if {"nic", "cable"} <= set(order):
        return (
            f"{element}: read the error counters of both ports (perfquery, mlxlink -c -e); then move the "
            "cable to another port: the fault stays with the NIC or goes with the cable; nvbandwidth tests "
            "the GPU's lane"
        )
    return f"{element}: {_SETTLES[order[0]]}"


def next_tests(
    elements: Elements, posed: Problem, found: Found, shown: Sequence[int], routing: Routing, most: int = 3
) -> tuple[NextTest, ...]:
    """Pair tests that split the open suspects best; none where nothing is open or no pair tells them apart.

    A test is slow when it crosses a fault: its expected gain is the entropy of that answer, less what is
    lost where a path is uncertain.  Suspects above 95 % are settled, and avoided where it can be.
    """
    fabric = elements.fabric
    open_ = [k for k in shown if 0.02 <= found.probability[k] <= 0.95][:OPEN]
    if fabric is None or len(open_) < 1 or fabric.num_servers < 2:
        return ()
    src, dst = _tried(elements, posed, open_)
    try:
        crossing = crossed(elements, routing, src, dst)
    except PlanError:
        return ()
    hit = np.zeros((len(src), len(shown)))
    for column, k in enumerate(shown):
        mine = np.isin(crossing.element, posed.members(k)[:1])
        np.maximum.at(hit[:, column], crossing.obs[mine], crossing.weight[mine])
    gain = _gain(hit, found, shown)
    tests: list[NextTest] = []
    for at in np.argsort(-gain, kind="stable")[: 40 * most].tolist():
        columns = np.flatnonzero(hit[at] > 0).tolist()
        touched = tuple(elements.name[int(posed.members(shown[c])[0])] for c in columns)
        if gain[at] < 0.05 or len(tests) == most:
            break
        if any(touched == t.between for t in tests):
            continue
        tests.append(NextTest(pair_command(elements, int(src[at]), int(dst[at])), touched, float(gain[at])))
    return tuple(tests)


def pair_command(elements: Elements, src: int, dst: int) -> str:
    """One bandwidth test from the NIC of a GPU to that of another (perftest)."""
    fabric = elements.fabric
    assert fabric is not None
    names = [elements.name[int(elements.of_device[fabric.nic_of_gpu[g]])] for g in (src, dst)]
    (a, one), (b, other) = (host_and_device(elements, name) for name in names)
    return (
        f"ssh {b} ib_write_bw -d {other} -D 10 --report_gbits & sleep 2; "
        f"ssh {a} ib_write_bw -d {one} -D 10 --report_gbits {b}"
    )


def host_and_device(elements: Elements, nic: str) -> tuple[str, str]:
    """('host05', 'mlx5_2') of a NIC; the drawing's 'nic-2' is taken for mlx5_2, in a rack of its tray."""
    server, _, device = nic.partition("/")
    if not device.startswith("nic-"):
        return server, device
    fabric = elements.fabric
    number = int(device.removeprefix("nic-"))
    if fabric is None:
        return server, f"mlx5_{number}"
    nics = len(fabric.devices(Kind.NIC)) // fabric.num_servers
    host, place = host_of_nic(server, number, fabric.gpus_per_server, nics)
    return host, f"mlx5_{place}"


def _tried(elements: Elements, posed: Problem, open_: Sequence[int]) -> tuple[Ints, Ints]:
    """Pairs of GPUs in different servers, many of them under the suspects."""
    fabric = elements.fabric
    assert fabric is not None
    rng = np.random.default_rng(1)
    near: list[int] = []
    at_a, at_b = fabric.a, fabric.b
    for k in open_:
        element = int(posed.members(k)[0])
        devices = np.flatnonzero(elements.of_device == element)
        cables = np.flatnonzero(elements.of_cable == element)
        ends = np.concatenate([devices, at_a[cables], at_b[cables]])
        ends = np.unique(np.concatenate([ends, at_a[np.isin(at_b, ends)], at_b[np.isin(at_a, ends)]]))
        servers = np.flatnonzero(elements.of_server == element)
        gpus = np.flatnonzero(
            np.isin(fabric.nic_of_gpu, ends)
            | np.isin(np.arange(fabric.num_gpus), devices)
            | np.isin(fabric.server[: fabric.num_gpus], servers)
        )
        near += gpus.tolist()
    pool = np.array(near or [0], np.int64)
    src = np.where(rng.random(TRIED) < 0.7, rng.choice(pool, TRIED), rng.integers(0, fabric.num_gpus, TRIED))
    dst = np.where(rng.random(TRIED) < 0.4, rng.choice(pool, TRIED), rng.integers(0, fabric.num_gpus, TRIED))
    good = fabric.server[src] != fabric.server[dst]
    return src[good], dst[good]


def _gain(hit: NDArray[np.float64], found: Found, shown: Sequence[int]) -> NDArray[np.float64]:
    """(n,) bits: entropy of 'slow or not' over the sets of faults, less that left when the set is known."""
    sets = [[column for column, k in enumerate(shown) if k in key] for key, _ in found.sets]
    weight = np.array([w for _, w in found.sets])
    weight = weight / weight.sum()
    crosses = np.stack([1 - np.prod(1 - hit[:, columns], axis=1) for columns in sets], axis=1)
    gain: NDArray[np.float64] = _bits(crosses @ weight) - _bits(crosses) @ weight
    return gain


def _bits(p: NDArray[np.float64]) -> NDArray[np.float64]:
    q = np.clip(p, 1e-12, 1 - 1e-12)
    out: NDArray[np.float64] = -(q * np.log2(q) + (1 - q) * np.log2(1 - q))
    return out
