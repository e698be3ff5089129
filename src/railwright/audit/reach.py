"""Who can reach whom: every ordered pair of ranks of every communicator, by the way it can take.

A pair goes *inside* its scale-up domain; or *directly*, NIC to NIC, where the network joins the two; or
*relayed* (NCCL's PXN): another rank of the source's domain, whose NIC is on the destination's rail and joined
to the destination's NIC, sends in its place; or not at all.
Only ranks of the communicator may relay, because NCCL's topology holds no others, and only over NVLink.
Source: NCCL 2.30 src/graph/paths.cc and topo.cc (PHYSICS notes, section 6); S. Jeaugey in NVIDIA/nccl#836:
with rails not joined at the top, GPU 0 of one node and GPU 6 of another cannot communicate unless the
communicator holds a GPU that relays.

Legend: G GPUs, n ranks of a communicator; U slots (rail, networks that the NIC is on) of its ranks;
T types of domains: domains with equally many ranks in every slot.
Ranks are counted by slot and type, so a communicator of 100,000 ranks takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.audit.result import GroupReach, Pair, Reach
from railwright.audit.survey import survey
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Role
from railwright.traffic import Communicator, rail_of_gpu

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

WAYS = ("inside", "direct", "relayed", "unreachable")


@dataclass(frozen=True, eq=False)
class _Hosts:
    """Per GPU (G,): scale-up domain, rail, class of networks its NIC is on, whether it relays over NVLink.

    on_network  (classes, networks) whether a class of NICs is on a network
    """

    domain: Ints
    rail: Ints
    place: Ints
    relays: Bools
    on_network: Bools


@dataclass(frozen=True)
class _Answer:
    """A group's counts, and its examples by rank: (way, source, destination, relay or -1)."""

    domains: int
    pairs: tuple[int, ...]
    common: int
    networks: int
    alike: bool
    examples: tuple[tuple[str, int, int, int], ...]


def reachability(fabric: Fabric, communicators: Sequence[Communicator]) -> Reach:
    """How the ranks of each communicator reach each other on the fabric as it stands.

    Raises PlanError for a communicator that holds a GPU twice, none, or one the fabric does not have.
    """
    hosts = _hosts(fabric)
    known: dict[tuple[bytes, ...], _Answer] = {}
    groups = []
    used = np.zeros(hosts.on_network.shape[1], bool)
    for comm in communicators:
        _check(fabric, comm)
        used |= hosts.on_network[np.unique(hosts.place[comm.gpus])].any(axis=0)
        # Groups of the same shape (a job has thousands) have the same answer in ranks.
        _, shape = np.unique(hosts.domain[comm.gpus], return_inverse=True)
        columns = (shape, hosts.rail[comm.gpus], hosts.place[comm.gpus], hosts.relays[comm.gpus])
        key = tuple(column.tobytes() for column in columns)
        if key not in known:
            known[key] = _solve(hosts, *columns)
        groups.append(_named(fabric, comm, known[key]))
    return Reach(tuple(groups), int(used.sum()))


def _check(fabric: Fabric, comm: Communicator) -> None:
    if not len(comm):
        raise PlanError(f"the communicator '{comm.name}' holds no rank; give it at least one GPU")
    if len(np.unique(comm.gpus)) < len(comm):
        raise PlanError(
            f"the communicator '{comm.name}' holds {len(comm)} ranks on {len(np.unique(comm.gpus))} GPUs; "
            "NCCL needs a GPU of its own for each: list each GPU once"
        )
    if comm.gpus.min() < 0 or comm.gpus.max() >= fabric.num_gpus:
        wrong = int(comm.gpus.max() if comm.gpus.max() >= fabric.num_gpus else comm.gpus.min())
        raise PlanError(
            f"the communicator '{comm.name}' names GPU {wrong}, but this fabric has {fabric.num_gpus}, "
            f"numbered 0 to {fabric.num_gpus - 1}"
        )


def _hosts(fabric: Fabric) -> _Hosts:
    state = survey(fabric)
    place, on_network = state.parts_of_nics()
    return _Hosts(
        domain=state.domain_of_gpu(),
        rail=rail_of_gpu(fabric).astype(np.int64),
        place=place[fabric.nic_of_gpu - state.first_nic],
        relays=_over_nvlink(fabric),
        on_network=on_network.toarray() > 0,
    )


def _over_nvlink(fabric: Fabric) -> Bools:
    """(G,) whether the GPU is joined to others by NVLink: a host without it is drawn with lanes of its PCIe
    complex, which may be as fast as those to a NIC or faster."""
    joined = np.zeros(fabric.num_gpus, bool)
    if fabric.scale_up != "pcie":
        lanes = np.flatnonzero(fabric.role == Role.SCALE_UP)
        joined[np.minimum(fabric.a[lanes], fabric.b[lanes])] = True
    return joined


def _solve(hosts: _Hosts, domain: Ints, rail: Ints, place: Ints, relays: Bools) -> _Answer:
    """Count the ordered pairs of one communicator by way, and find the first of each."""
    ranks = len(domain)
    slots, slot = np.unique(np.stack([rail, place, relays], axis=1), axis=0, return_inverse=True)
    slot = slot.reshape(-1)
    rail_u, place_u, relays_u = slots[:, 0], slots[:, 1], slots[:, 2] > 0
    on = hosts.on_network[place_u]
    joined = (on.astype(float) @ on.T.astype(float)) > 0
    members = np.zeros((int(domain.max()) + 1, len(slots)))
    np.add.at(members, (domain, slot), 1)
    types, type_of, domains = np.unique(members, axis=0, return_inverse=True, return_counts=True)
    type_of = type_of.reshape(-1)

    can_relay = joined & (rail_u[:, None] == rail_u) & relays_u[:, None]
    # The source's lane has to be NVLink too; lanes of one domain are alike, so its relay answers for it.
    relayed_to = ((types > 0).astype(float) @ can_relay) > 0
    apart = (~joined).astype(float)
    total = types.T @ domains
    size = types.sum(axis=1)
    inside = float(domains @ (size * (size - 1)))
    direct = float(total @ joined @ total - domains @ ((types @ joined) * types).sum(axis=1))
    lone = (types @ apart) * relayed_to
    relayed = float(domains @ (lone @ total - (lone * types).sum(axis=1)))
    counts = [round(x) for x in (inside, direct, relayed)]
    counts.append(ranks * (ranks - 1) - sum(counts))

    reaches = ((types > 0).astype(float) @ on) > 0
    return _Answer(
        domains=int(domains.sum()),
        pairs=tuple(counts),
        common=int(reaches.all(axis=0).sum()),
        networks=int(on.any(axis=0).sum()),
        alike=len(types) == 1,
        examples=_examples(counts, domain, slot, type_of, joined, can_relay, relayed_to),
    )


def _examples(
    counts: list[int], domain: Ints, slot: Ints, type_of: Ints, joined: Bools, can_relay: Bools, to: Bools
) -> tuple[tuple[str, int, int, int], ...]:
    """The first pair of each way that occurs: sources alike (in domain type and slot) are tried once."""
    found: dict[int, tuple[str, int, int, int]] = {}
    wanted = {way for way, pairs in enumerate(counts) if pairs}
    _, first = np.unique(type_of[domain] * len(joined) + slot, return_index=True)
    for source in np.sort(first).tolist():
        if wanted <= found.keys():
            break
        way = np.where(joined[slot[source], slot], 1, np.where(to[type_of[domain[source]], slot], 2, 3))
        way[domain == domain[source]] = 0
        way[source] = -1
        for kind in sorted(wanted - found.keys()):
            at = np.flatnonzero(way == kind)
            if len(at):
                goal, relay = int(at[0]), -1
                if kind == 2:
                    near = np.flatnonzero(domain == domain[source])
                    relay = int(near[np.argmax(can_relay[slot[near], slot[goal]])])
                found[kind] = (WAYS[kind], source, goal, relay)
    return tuple(found[kind] for kind in sorted(found))


def _named(fabric: Fabric, comm: Communicator, answer: _Answer) -> GroupReach:
    def gpu(rank: int) -> str:
        return fabric.device_name(int(comm.gpus[rank])) if rank >= 0 else ""

    return GroupReach(
        name=comm.name,
        ranks=len(comm),
        domains=answer.domains,
        inside=answer.pairs[0],
        direct=answer.pairs[1],
        relayed=answer.pairs[2],
        unreachable=answer.pairs[3],
        common_rails=answer.common,
        networks=answer.networks,
        alike=answer.alike,
        examples=tuple((way, Pair(gpu(a), gpu(b), gpu(c))) for way, a, b, c in answer.examples),
    )
