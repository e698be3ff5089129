"""The time of one collective of one group, as terms that add up; the network's share is given.

The same formulas price a machine (bandwidth solved on its fabric) and a published curve (healthy fabric).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from railwright.collectives import p2p
from railwright.collectives.algorithm import Path
from railwright.collectives.choice import ALGORITHMS, choose
from railwright.collectives.family import Family, family_of, ramp_seconds
from railwright.collectives.group import Group
from railwright.collectives.prediction import NcclSettings, Op, Term
from railwright.collectives.profile import Profile, as_measured, usable_share
from railwright.collectives.rates import bus_factor
from railwright.collectives.ring import crowding


@dataclass(frozen=True)
class Wires:
    """What the fabric does to one byte of S: seconds of the network, seconds of the scale-up lanes, paths.

    network   solved time at nominal link rates [s/byte]
    scale_up  of the busiest scale-up lane at its nominal rate [s/byte]
    slot      of the busiest PCIe slot of GPUs without scale-up links, likewise (`busiest_slot`) [s/byte]
    """

    network: float
    scale_up: float
    path: Path = field(default_factory=Path)
    slot: float = 0.0


@dataclass(frozen=True)
class Cost:
    """Algorithm, protocol and terms of one collective of one group.

    filling  latency of the pipeline that a message fills and drains [s]
    slot     how long the busiest PCIe slot carries it, at the rate that NCCL counts on [s]
    hidden   latency of steps that its bandwidth term hides at most [s]
    """

    algorithm: str
    protocol: str
    family: Family
    terms: tuple[Term, ...]
    filling: float
    slot: float = 0.0
    hidden: float = 0.0

    @property
    def time(self) -> float:
        return sum(term.seconds for term in self.terms)


def selected(op: Op, size: float, group: Group, settings: NcclSettings) -> tuple[str, str]:
    """(algorithm, protocol) that NCCL uses."""
    if op in ("all_to_all", "sendrecv"):
        return "p2p", p2p.protocol_of(p2p.message_size(op, size, group), group)
    algorithm, protocol = choose(op, size, group, settings)
    return algorithm.name, protocol


def collective(
    op: Op,
    size: float,
    group: Group,
    algorithm: str,
    protocol: str,
    wires: Wires,
    profile: Profile | None = None,
) -> Cost:
    """A ring, tree, NVLS, SHARP or PAT collective of S = size [byte]."""
    rule = ALGORITHMS[algorithm]
    family = as_measured(family_of(group, algorithm), profile)
    latency = rule.latency(op, protocol, group, wires.path)
    filling = rule.filling(protocol, group, latency)
    network = size * wires.network * rule.wire(protocol) * group.nic_rate / group.usable_nic * crowding(group)
    limit = rule.limit(op, protocol, group)
    inside = size * bus_factor(op, group.ranks) / limit
    usable = usable_share(family, profile)
    bandwidth = max(network, inside) / usable
    hidden = rule.hiding(op, group, network / usable, inside / usable)
    why = (
        f"NCCL's channels inside a node carry {limit / 1e9:.0f} GB/s of busbw"
        if inside >= network
        else "solved on the fabric at the rate NCCL's payload can use"
    )
    terms = (
        Term("launch", family.launch, "kernel launch and hand-shakes beyond NCCL's own latencies"),
        Term(
            "steps",
            max(0.0, latency - hidden),
            f"{algorithm} steps with {protocol} over {group.nodes} node(s)",
        ),
        Term("bandwidth", bandwidth, why),
        Term(
            "ramp",
            ramp_seconds(family, filling, bandwidth, group.nodes > 1),
            "filling and draining the pipeline of chunks",
        ),
    )
    slot = size * rule.wire(protocol) / usable * wires.slot * group.lane / group.usable_lane
    return Cost(algorithm, protocol, family, terms, filling, slot, hidden)


def point_to_point(
    op: Op, size: float, group: Group, settings: NcclSettings, wires: Wires, profile: Profile | None = None
) -> Cost:
    """An all-to-all or send/recv of S = size [byte]; posting hides behind the wire as far as that is busy."""
    message = p2p.message_size(op, size, group)
    protocol = p2p.protocol_of(message, group)
    family = as_measured(family_of(group, "p2p"), profile)
    latency = p2p.steps(op, size, group, settings.pxn, wires.path)
    usable = group.lane / (group.usable_pair if op == "sendrecv" else group.usable_lane)
    carried = size * p2p.wire(protocol) / usable_share(family, profile)
    slot = carried * wires.slot * group.lane / group.usable_lane
    network = carried * wires.network * group.nic_rate / group.usable_nic
    bandwidth = max(network, carried * wires.scale_up * usable, slot)
    posting = p2p.posting_seconds(
        op, size, group, settings.pxn, settings.sub_message_share, settings.p2p_net_chunk
    )
    relays = p2p.uses_relays(group, settings.pxn)
    aggregated = "aggregated through PXN relays" if relays else "each posted by its own GPU"
    terms = (
        Term("launch", family.launch, "kernel launch and hand-shakes beyond NCCL's own latencies"),
        Term(
            "steps", latency, f"{p2p.rounds(op, group)} round(s) of peers, {'with' if relays else 'no'} relay"
        ),
        Term(
            "messages", max(0.0, posting - bandwidth), f"proxy threads posting, {aggregated}; beyond the wire"
        ),
        Term("bandwidth", bandwidth, f"messages of {message:.0f} bytes, solved on the fabric"),
        Term(
            "ramp",
            ramp_seconds(family, latency, bandwidth, group.nodes > 1),
            "filling and draining the pipeline of chunks",
        ),
    )
    return Cost("p2p", protocol, family, terms, latency, slot)


def on_healthy_fabric(op: Op, size: float, group: Group, settings: NcclSettings) -> Cost:
    """The same collective on an uncontended fabric of the group's own NICs: no fabric needs to be built."""
    group = replace(group, min_channels=settings.min_channels, max_channels=settings.max_channels)
    algorithm, protocol = selected(op, size, group, settings)
    if algorithm == "p2p":
        nominal = p2p.nominal_seconds_per_byte(op, group, settings.pxn) * group.usable_nic / group.nic_rate
        return point_to_point(op, size, group, settings, Wires(nominal, 0.0))
    network = ALGORITHMS[algorithm].per_nic(op, group) / group.nic_rate
    return collective(op, size, group, algorithm, protocol, Wires(network, 0.0))
