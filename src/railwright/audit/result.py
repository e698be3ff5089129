"""What an audit says: frozen records of plain numbers and names, ready for `dataclasses.asdict` and JSON."""

from __future__ import annotations

from dataclasses import dataclass

MANY = {"leaf": "leaves", "spine": "spines", "core": "cores"}
"""A tier's name, of more than one switch."""


@dataclass(frozen=True)
class Tier:
    """Oversubscription of one tier: live bandwidth down over live bandwidth up, per switch.

    tier      'leaf' or 'spine'
    switches  that have live cables below and above
    least, mean, most  of the ratio over these switches; 0 where there are none
    worst     the switch with the largest ratio (the first of equals); ''
    cut       switches with live cables below and none above, in a fabric that has a tier above them
    """

    tier: str
    switches: int
    least: float
    mean: float
    most: float
    worst: str
    cut: tuple[str, ...]


@dataclass(frozen=True)
class Ports:
    """Ports of one tier of switches.

    radix     ports of one switch; from the catalogue, or the highest port number in use where `radix_known`
              is False (then `unused` is a lower bound)
    used      ports with a cable that carries
    dead      ports with a cable that carries nothing
    reserved  ports kept for machines outside the graph
    unused    ports without any cable, reserved ones taken off
    emptiest, emptiest_unused  the switch with the most ports without a cable, and how many
    """

    tier: str
    switches: int
    radix: int
    radix_known: bool
    used: int
    dead: int
    reserved: int
    unused: int
    emptiest: str
    emptiest_unused: int


@dataclass(frozen=True)
class Bundles:
    """Cables side by side between two switches of neighbouring tiers.

    tier      'leaf-spine' or 'spine-core'
    bundles   pairs of switches joined by cables
    usual     live cables of the most frequent bundle
    fewest, most  live cables over all bundles
    uneven    bundles that do not have the usual number
    first_uneven  'leaf-03 - spine-01', the smallest of them; ''
    """

    tier: str
    bundles: int
    usual: int
    fewest: int
    most: int
    uneven: int
    first_uneven: str


@dataclass(frozen=True)
class PathDiversity:
    """Ways between two leaves that have servers, over all pairs of such leaves that are joined.

    leaf_pairs, joined   pairs of leaves with servers, and those with a way between them
    shortest_least, shortest_median  shortest ways, each cable of a bundle counted for itself
    disjoint_least, disjoint_median  ways without a common cable (a maximum flow of one per cable)
    disjoint_exact  False: pairs equal in distance, shortest ways and uplinks share the flow of one of them,
                    and after the 64 poorest kinds of pair the bound of their own uplinks stands
    """

    leaf_pairs: int
    joined: int
    shortest_least: float
    shortest_median: float
    disjoint_least: int
    disjoint_median: int
    disjoint_exact: bool


@dataclass(frozen=True)
class RailAlignment:
    """Pairs of NICs on the same rail of different servers.

    pairs        how many there are
    one_leaf     part of them that meet in one leaf, 0..1
    within_rail  part of them that meet without crossing a switch that serves another rail too, 0..1
    """

    pairs: int
    one_leaf: float
    within_rail: float


@dataclass(frozen=True)
class Blast:
    """What goes when an element, or a named group of elements, is lost.

    element       its name
    cables        live cables lost, PCIe and scale-up lanes left out
    gpus_cut      GPUs without any network: the last live NIC of their server is gone, or they are themselves
    gpus_moved    GPUs whose own NIC is gone and that send through another one of their server
    gpus_slowed   GPUs whose NIC keeps some of its ports, not all
    servers_cut   servers without a live NIC
    servers_apart servers that have a NIC but are no longer joined to the largest part of the servers
    rails_lost    most NICs that one surviving server loses
    leaf_pairs_cut  pairs of leaves with servers that were joined and are not, or have lost one of the two
    bandwidth_lost  per tier ('node-leaf', 'leaf-spine', 'spine-core'), part of its live bandwidth, 0..1
    worst_pair    two leaves that stay: the bandwidth between them alone before and after [byte/s]; the
                  maximum flow of the pair that loses most uplinks; None where none loses any
    """

    element: str
    cables: int
    gpus_cut: int
    gpus_moved: int
    gpus_slowed: int
    servers_cut: int
    servers_apart: int
    rails_lost: int
    leaf_pairs_cut: int
    bandwidth_lost: tuple[tuple[str, float], ...]
    worst_pair: tuple[str, str, float, float] | None

    @property
    def rank(self) -> tuple[float, ...]:
        """What makes one loss larger than another, most important first."""
        lost = max((share for _, share in self.bandwidth_lost), default=0.0)
        gpus = (self.gpus_cut, self.servers_apart, self.gpus_moved, self.gpus_slowed)
        return (*gpus, self.leaf_pairs_cut, lost)


@dataclass(frozen=True)
class FaultDomain:
    """A class of devices or cables, and its member whose loss costs most.

    what     'leaf', 'spine', 'core', 'server', 'nic', 'node-leaf cable', …, or 'group'
    members  how many there are
    worst    what the costliest member takes with it
    fatal    members whose loss leaves GPUs without any network, or servers apart from the rest
    """

    what: str
    members: int
    fatal: int
    worst: Blast


@dataclass(frozen=True)
class Audit:
    """A fabric's figures as it stands, its faults counted as such.

    oversubscription  one entry per tier that has a tier above it
    bisection         what the first half of the servers can send to the second [byte/s]
    bisection_share   of what the NICs of the smaller half can send; 1 is full bisection
    bisection_note    what kind of figure it is
    hops              (switches crossed, pairs of GPUs): 0 is within a scale-up domain
    pairs_unjoined    pairs of GPUs whose NICs no way joins (PXN may still relay)
    nic_ports_bare    NIC ports without a cable, or with one that carries nothing
    largest_loss_first  the fault domains
    """

    name: str
    family: str
    servers: int
    gpus: int
    oversubscription: tuple[Tier, ...]
    bisection: float
    bisection_share: float
    bisection_note: str
    hops: tuple[tuple[int, int], ...]
    pairs_unjoined: int
    diversity: PathDiversity
    rails: RailAlignment
    ports: tuple[Ports, ...]
    bundles: tuple[Bundles, ...]
    nic_ports_bare: int
    first_bare_nic: str
    fault_domains: tuple[FaultDomain, ...]


@dataclass(frozen=True)
class Pair:
    """Two ranks, by the names of their GPUs, and the GPU that relays between them ('': none)."""

    source: str
    destination: str
    relay: str = ""


@dataclass(frozen=True)
class GroupReach:
    """How the ranks of one communicator reach each other: ordered pairs of ranks by their way.

    inside       through the scale-up domain
    direct       over the fabric, NIC to NIC
    relayed      over the fabric from another rank of the source's domain, on the destination's rail (PXN)
    unreachable  none of these
    examples     the first pair of each way that occurs
    common_rails networks (parts of the fabric that no way joins) on which every scale-up domain of the
                 group has a rank: on each of them a ring or tree can run without leaving it
    networks     networks that the group's NICs are on
    alike        whether every domain holds as many ranks of the group on every rail and network
    """

    name: str
    ranks: int
    domains: int
    inside: int
    direct: int
    relayed: int
    unreachable: int
    common_rails: int
    networks: int
    alike: bool
    examples: tuple[tuple[str, Pair], ...]


@dataclass(frozen=True)
class Reach:
    """Reachability of all communicators of a job, and what it rests on.

    networks  separate networks the NICs in use fall into: 1 when all rails meet
    """

    groups: tuple[GroupReach, ...]
    networks: int

    def total(self, way: str) -> int:
        """Ordered pairs of all groups that go one way: 'inside', 'direct', 'relayed' or 'unreachable'."""
        return sum(int(getattr(group, way)) for group in self.groups)
