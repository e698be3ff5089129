"""The NCCL settings that follow from who can reach whom, each with its reason.

Source of every variable's values and defaults: NVIDIA, "NCCL User Guide", Environment Variables
(docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html, read 2026-11); that NCCL does not detect whether
rails are joined and relies on NCCL_CROSS_NIC: S. Jeaugey in NVIDIA/nccl#1933.
NCCL_NET_GDR_LEVEL never follows: how near a NIC is to its GPU on PCIe is not in a fabric.
"""

from __future__ import annotations

import numpy as np

from railwright.audit.result import GroupReach, Reach
from railwright.audit.survey import survey
from railwright.fabric.graph import Fabric, Kind

Setting = tuple[str, str, str]
"""(variable, value, why)"""


def nccl_settings(fabric: Fabric, reach: Reach) -> list[Setting]:
    """What NCCL has to be told for this job on this fabric; empty where its defaults fit."""
    return [*_pxn(reach), *_cross_nic(fabric, reach), *_hca(fabric), *_algorithm(reach)]


def _pxn(reach: Reach) -> list[Setting]:
    relayed = reach.total("relayed")
    if not relayed:
        return []
    groups = [group for group in reach.groups if group.relayed]
    example = dict(groups[0].examples)["relayed"]
    return [
        (
            "NCCL_PXN_DISABLE",
            "0",
            f"{_pairs(relayed)} of ranks in {_groups(len(groups))} reach each other only through a relay; "
            f"{example.source} reaches {example.destination} through {example.relay}",
        ),
        (
            "NCCL_P2P_PXN_LEVEL",
            "2",
            "send/recv and all-to-all then always leave by the NIC on the destination's rail; at 1 they do "
            "so only where PCIe does not reach that NIC, at 0 never",
        ),
    ]


def _cross_nic(fabric: Fabric, reach: Reach) -> list[Setting]:
    if fabric.gpus_per_server == 0 or _nics_per_server(fabric) < 2:
        return []
    if reach.networks > 1:
        why = (
            f"the job's NICs are on {reach.networks} networks that nothing joins: a ring or tree that "
            "changes NICs between servers would try to cross them, and NCCL cannot see that it must not"
        )
        ragged = sum(1 for g in reach.groups if g.domains > 1 and g.networks > 1 and not g.alike)
        if ragged:
            why += (
                f"; {_groups(ragged)} without the same rails in every scale-up domain may make NCCL cross "
                "them all the same"
            )
        return [("NCCL_CROSS_NIC", "0", why)]
    if reach.networks == 1 and _one_leaf_per_server(fabric):
        return [
            (
                "NCCL_CROSS_NIC",
                "1",
                "all NICs of a server hang on the same leaf, so keeping to one NIC number avoids no switch",
            )
        ]
    return []


def _hca(fabric: Fabric) -> list[Setting]:
    """The compute NICs by place; NCCL filters by this list and would otherwise take storage NICs as well."""
    state = survey(fabric)
    per_host = _nics_per_host(fabric)
    if per_host < 2:
        return []
    place = np.arange(state.num_nics) % per_host
    live = [i for i in range(per_host) if state.nic_alive[place == i].any()]
    if not live:
        return []
    value = "=" + ",".join(f"<nic-{i}>" for i in live)
    why = (
        "the compute NICs in order of rail (put each server's device names for them, mlx5_…): the list is a "
        "filter of exact names, so storage and management NICs stay out and every server offers the same "
        "rails"
    )
    dead = per_host - len(live)
    if dead:
        why += f"; {dead} place(s) without a live NIC on any server are left out"
    return [("NCCL_IB_HCA", value, why)]


def _algorithm(reach: Reach) -> list[Setting]:
    stuck = [g for g in reach.groups if g.domains > 1 and g.common_rails == 0]
    if not stuck:
        return []
    worst: GroupReach = stuck[0]
    return [
        (
            "NCCL_ALGO",
            "unset",
            f"no value helps {_groups(len(stuck))}, {worst.name} first: its {worst.domains} scale-up domains "
            "have no network on which each of them has a rank, so neither a ring nor a tree closes; put its "
            "ranks on one rail, or give it whole servers",
        )
    ]


def _one_leaf_per_server(fabric: Fabric) -> bool:
    state = survey(fabric)
    pairs = np.unique(state.nic_server()[state.nic] * state.num_leaves + state.leaf)
    leaves = np.bincount(pairs // state.num_leaves)
    return bool((leaves <= 1).all())


def _nics_per_server(fabric: Fabric) -> int:
    return len(fabric.devices(Kind.NIC)) // max(fabric.num_servers, 1)


def _nics_per_host(fabric: Fabric) -> int:
    """NICs that one operating system sees: those of a server, or of one compute tray of a rack."""
    per_server = _nics_per_server(fabric)
    rail = fabric.rail[fabric.devices(Kind.NIC)]
    rails = int(rail.max(initial=-1)) + 1
    trays = 0 < rails < per_server and (rail == np.arange(len(rail)) % per_server % rails).all()
    return rails if trays else per_server


def _pairs(number: int) -> str:
    return f"{number:,} ordered pair" + ("" if number == 1 else "s")


def _groups(number: int) -> str:
    return f"{number} group" + ("" if number == 1 else "s")
