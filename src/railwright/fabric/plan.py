"""What a fabric is asked for (`Order`) and its sizes before anything is wired (`Plan`): numbers only."""

from __future__ import annotations

from dataclasses import dataclass

from railwright.catalog.parts import Gpu, Nic, Server, Switch
from railwright.spec.study import ComputeNetwork, ServiceNetwork


@dataclass(frozen=True)
class Order:
    """The parts of one cluster, looked up, and the network asked for.

    leaf, spine, core  switch models of the three tiers (the same one unless the study says otherwise)
    rails              NICs of a server that are rails of their own: all, or those of one compute tray
    """

    servers: int
    server: Server
    gpu: Gpu
    nic: Nic
    leaf: Switch
    spine: Switch
    core: Switch
    network: ComputeNetwork | ServiceNetwork
    rails: int

    @property
    def endpoints_per_server(self) -> int:
        """NIC ports of one server: one cable each."""
        return self.server.nics * self.nic.ports

    @property
    def endpoints(self) -> int:
        return self.servers * self.endpoints_per_server

    @property
    def node_rate(self) -> float:
        """Rate of a NIC-leaf cable: the slower of its two ends, one direction [byte/s].

        A leaf port that is broken out gives each of its cables an equal share.
        """
        return min(self.nic.rate, self.leaf.rate / self.network.breakout)

    def whole_ports(self, endpoints: int) -> int:
        """Leaf ports that so many NIC ports take: `breakout` of them share one."""
        return -(-endpoints // self.network.breakout)

    @property
    def leaf_endpoints(self) -> int:
        """NIC ports that would fill a leaf without uplinks."""
        return self.leaf.ports * self.network.breakout

    @property
    def leaf_spine_rate(self) -> float:
        return min(self.leaf.rate, self.spine.rate)

    @property
    def spine_core_rate(self) -> float:
        return min(self.spine.rate, self.core.rate)


@dataclass(frozen=True)
class Plan:
    """Sizes of a folded Clos built of groups, pods and planes.

    A *group* is a set of servers with its own `leaves_per_group` leaves (a rack, or a scalable unit).
    A *pod* is `groups_per_pod` groups with their own spines; two-tier fabrics are one pod.
    A *plane* is a set of leaves of a pod that mesh with the same spines: one plane for all leaves, one per
    rail, or one per port of a NIC; leaf i of a group is in plane i modulo `planes`.  Within a pod and plane
    every leaf has `leaf_spine_links` cables to every spine.
    Spine j of every plane of every pod has `spine_core_links` cables to every core of core set j.

    leaf_ports        most NIC ports on a leaf, reserved ones included
    rail_leaves       leaf i of a group serves endpoint i of each of its servers, or of each tray of each
                      server (otherwise leaves are filled server by server)
    ports_per_rail    NIC ports of a server on each of its rail leaves: its compute trays
    spines_per_plane  per pod and plane, spares included; 0 without a spine tier
    cores_per_set     0 without a core tier
    """

    family: str
    servers: int
    endpoints_per_server: int
    servers_per_group: int
    leaves_per_group: int
    leaf_ports: int
    rail_leaves: bool
    groups_per_pod: int
    planes: int
    spines_per_plane: int = 0
    leaf_spine_links: int = 0
    cores_per_set: int = 0
    spine_core_links: int = 0
    reserved_ports: int = 0
    ports_per_rail: int = 1

    @property
    def groups(self) -> int:
        return -(-self.servers // self.servers_per_group)

    @property
    def pods(self) -> int:
        return -(-self.groups // self.groups_per_pod)

    @property
    def ports_per_leaf(self) -> int:
        """NIC ports on each leaf of a full group, where leaves are filled server by server."""
        return -(-self.servers_per_group * self.endpoints_per_server // self.leaves_per_group)

    @property
    def leaves(self) -> int:
        """A part-filled last group has a leaf for every rail; without rails, only the leaves it fills."""
        if self.rail_leaves:
            return self.groups * self.leaves_per_group
        before = self.groups - 1
        last = (self.servers - before * self.servers_per_group) * self.endpoints_per_server
        return before * self.leaves_per_group - (-last // self.ports_per_leaf)

    @property
    def spines(self) -> int:
        return self.pods * self.planes * self.spines_per_plane

    @property
    def cores(self) -> int:
        return self.spines_per_plane * self.cores_per_set

    @property
    def tiers(self) -> int:
        return 1 + (self.spines > 0) + (self.cores > 0)

    @property
    def switches(self) -> int:
        return self.leaves + self.spines + self.cores

    @property
    def leaf_uplinks(self) -> int:
        """Cables from one leaf to its spines."""
        return self.spines_per_plane * self.leaf_spine_links

    @property
    def spine_uplinks(self) -> int:
        """Cables from one spine to its cores."""
        return self.cores_per_set * self.spine_core_links

    @property
    def leaves_per_plane(self) -> int:
        """Leaves of one plane in a full pod."""
        return self.groups_per_pod * self.leaves_per_group // self.planes

    @property
    def node_leaf(self) -> int:
        """Cables below the leaves, those to reserved ports included."""
        return self.servers * self.endpoints_per_server + self.reserved_ports

    @property
    def leaf_spine(self) -> int:
        return self.leaves * self.leaf_uplinks

    @property
    def spine_core(self) -> int:
        return self.spines * self.spine_uplinks

    @property
    def cables(self) -> int:
        return self.node_leaf + self.leaf_spine + self.spine_core
