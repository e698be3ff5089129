"""Designed fabrics drawn by hypothesis: any that can be built, and those that a vote can be held on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from railwright import fabric
from railwright.asbuilt import Wiring, to_wiring
from railwright.asbuilt.infer_places import WITNESSES
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.spec.study import Cluster, ComputeNetwork

CATALOG = load_catalog()
QM9700, DGX = CATALOG.switches["qm9700"], CATALOG.servers["dgx-h100"]


def parts(ports: int, nics: int, twin: int = 1):
    return replace(
        CATALOG,
        nics={"cx7-400": replace(CATALOG.nics["cx7-400"], ports=twin)},
        servers={"s": replace(DGX, name="s", gpus=nics, nics=nics)},
        switches={"sw": replace(QM9700, name="sw", ports=ports)},
    )


@st.composite
def any_design(draw):
    """Anything that can be built, however small."""
    catalog = parts(
        draw(st.sampled_from([8, 12, 16, 32])),
        draw(st.sampled_from([1, 2, 4, 8])),
        draw(st.sampled_from([1, 1, 2])),
    )
    network = ComputeNetwork(
        family=draw(st.sampled_from(sorted(fabric.FAMILIES))),
        switch="sw",
        tiers=draw(st.sampled_from(["auto", "auto", 2, 3])),
        oversubscription=draw(st.sampled_from([1.0, 2.0])),
        spare_spines=draw(st.sampled_from([0, 0, 1])),
        servers_per_group=draw(st.sampled_from([None, None, 2, 3])),
    )
    return built(draw(st.integers(2, 24)), network, catalog)


def witnessed(wiring: Wiring) -> Wiring:
    """Of two spines that disagree either may be wrong; a leaf needs a majority that stays one."""
    assume(sum(node.name.startswith("spine") for node in wiring.nodes) not in (1, 2))
    on_leaf = Counter(k.b for k in wiring.links if wiring.nodes[k.a].kind == "host")
    assume(min(on_leaf.values()) >= 2 * WITNESSES - 1)
    return wiring


@st.composite
def regular_design(draw):
    """Designs with witnesses: enough servers per unit and enough switches per block for a vote."""
    family = draw(
        st.sampled_from(
            ["rail-optimised", "rail-optimised", "rail-3", "fat-tree", "fat-3", "rail-only", "one"]
        )
    )
    ratio = draw(st.sampled_from([1.0, 2.0]))
    if family == "rail-optimised":
        group = draw(st.integers(6, 8))
        network = ComputeNetwork(
            family=family, switch="sw", tiers=2, oversubscription=ratio, servers_per_group=group
        )
        catalog = parts(32, draw(st.sampled_from([4, 8])))
        return witnessed(built(group * draw(st.integers(1, 3)) - draw(st.integers(0, 1)), network, catalog))
    if family == "rail-3":
        network = ComputeNetwork(
            family="rail-optimised", switch="sw", tiers=3, servers_per_group=6, groups_per_pod=3
        )
        return witnessed(built(6 * 3 * 3, network, parts(12, 4)))
    if family == "fat-tree":
        network = ComputeNetwork(family=family, switch="sw", tiers=2, oversubscription=ratio)
        return witnessed(built(draw(st.integers(24, 60)), network, parts(16, draw(st.sampled_from([1, 2])))))
    if family == "fat-3":
        network = ComputeNetwork(family="fat-tree", switch="sw", tiers=3)
        return witnessed(built(36 * 3, network, parts(12, 1)))
    if family == "rail-only":
        return witnessed(
            built(draw(st.integers(8, 30)), ComputeNetwork(family=family, switch="sw"), parts(32, 4))
        )
    return witnessed(
        built(draw(st.integers(12, 30)), ComputeNetwork(family="single-switch", switch="sw"), parts(64, 2))
    )


def built(servers: int, network: ComputeNetwork, catalog) -> Wiring:
    try:
        return to_wiring(
            fabric.build(Cluster(servers=servers, server="s", compute=network), catalog), catalog
        )
    except PlanError:
        assume(False)
        raise
