"""A grid of random problems for every engine, and what physics says of any answer.

A case follows from its number alone: pattern and routing in turn, family, size, damage and bytes at random.
Bounds are counted here from the fabric and the demands; nothing of the engines is used.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from lifted_cases import damaged, some_fabric
from railwright.errors import PlanError, SpecError
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network import Network, Solution, solve
from railwright.traffic import Communicator, Traffic, all_to_all, broadcast, domain_of_gpu, ring, send_recv
from railwright.traffic import tree as tree_of

PATTERNS = ("all-to-all", "all-to-all with PXN", "ring", "tree", "broadcast", "send/recv")
ROUTINGS = ("adaptive", "ecmp", "ecmp unsalted", "static", "ecmp of 3 queue pairs")
FIFO_UP_TO = 600
"""Demands that the chunk FIFO follows here."""


@dataclass(frozen=True, eq=False)
class Case:
    what: str
    network: Network
    traffic: Traffic


def case(number: int, most_gpus: int) -> Case | None:
    """None where the plan, the damage or the pattern is refused, or the fabric is larger than asked for."""
    rng = np.random.default_rng([7, number])
    pattern, routing = PATTERNS[number % 6], ROUTINGS[number // 6 % 5]
    try:
        fabric = damaged(some_fabric(rng), rng)
        if fabric.num_gpus > most_gpus:
            return None
        ranks = int(rng.integers(2, fabric.num_gpus + 1)) if rng.random() < 0.5 else fabric.num_gpus
        gpus = np.arange(fabric.num_gpus, dtype=np.int32)
        members = np.sort(rng.permutation(gpus)[:ranks])
        traffic = _traffic(fabric, pattern, Communicator(members), rng)
    except (PlanError, SpecError):
        return None
    network = Network(
        fabric,
        "adaptive" if routing == "adaptive" else "static" if routing == "static" else "ecmp",
        seed=number,
        qps=3 if routing.endswith("pairs") else 1,
        salt="none" if routing.endswith("unsalted") else "switch",
    )
    what = f"case {number}: {fabric.name}, {fabric.family}, {ranks} ranks, {pattern}, {routing}"
    return Case(what, network, traffic)


def _traffic(fabric: Fabric, pattern: str, comm: Communicator, rng: np.random.Generator) -> Traffic:
    n, size = len(comm), float(rng.choice([1.0, 1e3, 7e6, 3e9]))
    mixed = rng.random() < 0.3 and n <= 16
    if pattern.startswith("all-to-all"):
        pairs = size * rng.choice([0.0, 1.0, 2.5], (n, n)) if mixed else size
        return all_to_all(fabric, comm, pairs, pattern.endswith("PXN"))
    if pattern == "ring":
        return ring(fabric, comm, size, bool(rng.integers(2)))
    if pattern == "tree":
        return tree_of(fabric, comm, size)
    if pattern == "broadcast":
        return broadcast(fabric, comm, size, int(rng.integers(n)), bool(rng.integers(2)))
    ends = rng.integers(0, n, (2, int(rng.integers(1, 3 * n))))
    sizes = size * rng.choice([0.0, 1.0, 1.0, 3.0], ends.shape[1])
    return send_recv(fabric, comm.gpus[ends[0]], comm.gpus[ends[1]], sizes, bool(rng.integers(2)))


def engines(given: Case) -> list[str]:
    names = ["auto", "last", "numpy", "numba", "bound"]
    if given.network.routing == "adaptive":
        names.append("lifted")
    if len(given.traffic) <= FIFO_UP_TO:
        names.append("fifo")
    return names


def answers(given: Case) -> dict[str, Solution | str]:
    """What each engine says: a solution, or the sentence of its refusal."""
    found: dict[str, Solution | str] = {}
    for name in engines(given):
        try:
            found[name] = solve(given.network, given.traffic, name)  # type: ignore[arg-type]
        except PlanError as error:
            found[name] = str(error)
    return found


def digest(found: dict[str, Solution | str]) -> str:
    """Of every byte of the answers."""
    words = hashlib.sha256()
    for name, answer in found.items():
        words.update(f"{name} {answer if isinstance(answer, str) else (answer.time, answer.engine)}".encode())
        if not isinstance(answer, str):
            words.update(repr(answer.bottleneck).encode())
            for array in (answer.finish, answer.load, answer.latency, answer.hops):
                words.update(np.ascontiguousarray(array).tobytes())
    return words.hexdigest()


def ends(fabric: Fabric) -> tuple[np.ndarray, np.ndarray]:
    """Tail and head of every directed link."""
    tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    return tail, np.stack([fabric.b, fabric.a], axis=1).reshape(-1)


def bounds(fabric: Fabric, traffic: Traffic, seed: int) -> dict[str, float]:
    """Seconds that no answer may go below: NICs, scale-up lanes, and cuts through the switches."""
    tail, head = ends(fabric)
    role = np.repeat(fabric.role, 2)
    domain, nic = domain_of_gpu(fabric), fabric.nic_of_gpu
    out = np.where(traffic.relay >= 0, traffic.relay, traffic.src)
    inside = domain[traffic.src] == domain[traffic.dst]
    bytes_ = traffic.size

    def over(load: np.ndarray, room: np.ndarray) -> float:
        return float(np.max(load[load > 0] / room[load > 0], initial=0.0))

    def amount(at: np.ndarray, which: np.ndarray) -> np.ndarray:
        return np.bincount(at[which], bytes_[which], fabric.num_devices)

    def room(at: np.ndarray, which: np.ndarray) -> np.ndarray:
        return np.bincount(at[which], fabric.capacity[which], fabric.num_devices)

    wired = ~inside & (nic[out] != nic[traffic.dst])
    cable, lane = role >= Role.NODE_LEAF, role == Role.SCALE_UP
    hop_in = np.where(inside, traffic.dst, out)
    hop = traffic.src != hop_in
    found = {
        "NIC out": over(amount(nic[out], wired), room(tail, cable)),
        "NIC in": over(amount(nic[traffic.dst], wired), room(head, cable)),
        "lane out": over(amount(traffic.src, hop), room(tail, lane)),
        "lane in": over(amount(hop_in, hop), room(head, lane)),
    }
    rng = np.random.default_rng(seed)
    servers = np.unique(fabric.server[nic])
    halves = [servers[: len(servers) // 2], rng.permutation(servers)[: len(servers) // 2]]
    for number, chosen in enumerate(halves):
        # Any set of devices is a cut: NICs of some servers, and each switch with most of what is below it.
        side = np.isin(fabric.server, chosen) & (fabric.kind == Kind.NIC)
        for kind in (Kind.LEAF, Kind.SPINE, Kind.CORE):
            up = cable & (fabric.kind[head] == kind) & (fabric.kind[tail] < kind)
            near = np.bincount(head[up], fabric.capacity[up] * (2.0 * side[tail[up]] - 1), fabric.num_devices)
            side |= (fabric.kind == kind) & (near > 0)
        across = wired & side[nic[out]] & ~side[nic[traffic.dst]]
        through = float(fabric.capacity[cable & side[tail] & ~side[head]].sum())
        total = float(bytes_[across].sum())
        found[f"cut {number}"] = total / through if total else 0.0
    return found


def unbalanced(fabric: Fabric, traffic: Traffic, load: np.ndarray) -> float:
    """Largest part of all bytes that a device makes or swallows: what leaves it less what enters, less what
    its demands send and receive."""
    tail, head = ends(fabric)
    moved = traffic.src != traffic.dst
    net = np.bincount(tail, load, fabric.num_devices) - np.bincount(head, load, fabric.num_devices)
    net -= np.bincount(traffic.src[moved], traffic.size[moved], fabric.num_devices)
    net += np.bincount(traffic.dst[moved], traffic.size[moved], fabric.num_devices)
    return float(np.abs(net).max()) / max(float(traffic.size.sum()), 1.0)
