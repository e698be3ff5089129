"""The audit: every figure of a fabric as it stands, in one record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from railwright import fabric as fabrics
from railwright.audit.domains import fault_domains
from railwright.audit.pairs import hop_histogram, rail_alignment
from railwright.audit.result import Audit
from railwright.audit.survey import Survey, survey
from railwright.audit.tiers import bare_nic_ports, bundles, oversubscription, ports
from railwright.audit.ways import leaf_ways, path_diversity
from railwright.catalog.parts import Catalog
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Kind

BISECTION_NOTE = (
    "exact for the cut between the first and the second half of the servers (maximum flow); "
    "an upper bound of the worst cut into halves"
)


def audit(
    fabric: Fabric, catalog: Catalog | None = None, groups: Mapping[str, Sequence[str]] | None = None
) -> Audit:
    """What a fabric is worth as it stands: failed and slowed links count as what they still carry.

    catalog  tells the ports of the switches and NICs named in `fabric.parts`; without it, or for parts it
             does not know (an imported machine), the highest port number in use stands in
    groups   name -> devices that fail together; each becomes a fault domain
    A storage or management network has no GPUs: its figures of pairs and GPUs are 0.
    Raises PlanError for a fabric without leaves or NICs and for a group that names an unknown device.
    """
    if not len(fabric.devices(Kind.LEAF)) or not len(fabric.devices(Kind.NIC)):
        raise PlanError(
            f"fabric '{fabric.name}' has {len(fabric.devices(Kind.NIC))} NICs and "
            f"{len(fabric.devices(Kind.LEAF))} leaves, so there is no network to audit; "
            "it takes at least one of each"
        )
    state = survey(fabric)
    ways = leaf_ways(state)
    hops, unjoined = hop_histogram(state, ways)
    bisection = fabrics.bisection(fabric) if fabric.num_servers > 1 else 0.0
    bare, first_bare = bare_nic_ports(state, _nic_ports(fabric, catalog))
    return Audit(
        name=fabric.name,
        family=fabric.family,
        servers=fabric.num_servers,
        gpus=fabric.num_gpus,
        oversubscription=oversubscription(state),
        bisection=bisection,
        bisection_share=bisection / max(_half_of_nics(state), 1.0),
        bisection_note=BISECTION_NOTE,
        hops=hops,
        pairs_unjoined=unjoined,
        diversity=path_diversity(state, ways),
        rails=rail_alignment(state, ways),
        ports=ports(state, _radix(fabric, catalog)),
        bundles=bundles(state),
        nic_ports_bare=bare,
        first_bare_nic=first_bare,
        fault_domains=fault_domains(fabric, groups),
    )


def _half_of_nics(state: Survey) -> float:
    """What the NICs of the smaller half of the servers send when nothing else limits them [byte/s]."""
    fabric = state.fabric
    to_nodes = fabric.role == fabrics.Role.NODE_LEAF
    server = fabric.server[state.low[to_nodes]]
    by_server = np.bincount(server, fabric.rate[to_nodes], minlength=fabric.num_servers)
    half = fabric.num_servers // 2
    return float(min(by_server[:half].sum(), by_server[half:].sum()))


def _radix(fabric: Fabric, catalog: Catalog | None) -> dict[str, int]:
    """Ports of the switch models the catalogue knows, by tier; a director's modules are not in it."""
    known = catalog.switches if catalog else {}
    tiers = ["leaf", "spine", "core"]
    if fabric.directors:
        tiers = tiers[: int(fabric.kind.max()) - int(Kind.LEAF) - 1]
    return {tier: known[fabric.parts[tier]].ports for tier in tiers if fabric.parts.get(tier) in known}


def _nic_ports(fabric: Fabric, catalog: Catalog | None) -> int:
    """Ports of one NIC of the catalogue's model; 0 where it does not say."""
    known = catalog.nics if catalog else {}
    name = fabric.parts.get("nic", "")
    return known[name].ports if name in known else 0
