"""Who reaches whom on fabrics that join rails, on those that do not, and what NCCL has to be told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import network_fabrics as hand
from railwright import fabric
from railwright.audit import audit, lines, nccl_settings, reach_lines, reachability
from railwright.audit.result import GroupReach
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Role
from railwright.network import Network, solve
from railwright.spec.study import Cluster, ComputeNetwork, Fault
from railwright.traffic import Communicator, all_to_all

CATALOG = load_catalog()


def built(family: str, servers: int = 16, server: str = "dgx-h100", **network) -> Fabric:
    compute = ComputeNetwork(family=family, switch="qm9700", **network)
    return fabric.build(Cluster(servers=servers, server=server, compute=compute), CATALOG)


def comm(*gpus: int, name: str = "job") -> Communicator:
    return Communicator(np.array(gpus, np.int32), name)


def world(f: Fabric) -> Communicator:
    return Communicator(np.arange(f.num_gpus, dtype=np.int32))


def ways(group: GroupReach) -> tuple[int, int, int, int]:
    return group.inside, group.direct, group.relayed, group.unreachable


def variables(f: Fabric, *comms: Communicator) -> dict[str, str]:
    return {variable: value for variable, value, _ in nccl_settings(f, reachability(f, comms))}


def test_a_tray_of_a_rack_lists_its_own_four_nics() -> None:
    """A GB300 NVL72 counts as one server of 72 NICs, but NCCL runs on trays, each with 4 of them."""
    f = built("rack-rails", servers=4, server="gb300-nvl72")
    assert variables(f, world(f))["NCCL_IB_HCA"] == "=<nic-0>,<nic-1>,<nic-2>,<nic-3>"


def test_rail_only_needs_pxn_for_every_pair_across_rails() -> None:
    """16 servers of 8: 16x8x7 inside, 8 rails of 16x15 direct, and 7 other rails for each of those."""
    f = built("rail-only")
    reach = reachability(f, [world(f)])
    (group,) = reach.groups
    assert reach.networks == 8
    assert ways(group) == (16 * 8 * 7, 8 * 16 * 15, 8 * 16 * 15 * 7, 0)
    assert group.common_rails == group.networks == 8
    assert group.alike
    relayed = dict(group.examples)["relayed"]
    assert (relayed.source, relayed.destination) == ("server-01/gpu-0", "server-02/gpu-1")
    assert relayed.relay == "server-01/gpu-1"
    told = variables(f, world(f))
    assert told["NCCL_PXN_DISABLE"] == "0"
    assert told["NCCL_P2P_PXN_LEVEL"] == "2"
    assert told["NCCL_CROSS_NIC"] == "0"
    assert told["NCCL_IB_HCA"] == "=" + ",".join(f"<nic-{i}>" for i in range(8))
    assert "NCCL_ALGO" not in told
    assert "NCCL_NET_GDR_LEVEL" not in told


def test_gpus_that_meet_over_pcie_relay_nothing() -> None:
    """Four A100 a NIC: 12 others of a rail in three servers, 12 of the other one.  Their lanes to the host
    (31.5 GB/s) are faster than those to their NICs (31), and no NVLink for all that."""
    f = built("rail-only", servers=4, server="server-8x-a100-pcie")
    (group,) = reachability(f, [world(f)]).groups
    assert ways(group) == (32 * 7, 32 * 12, 0, 32 * 12)
    with pytest.raises(PlanError, match=r"GPUs without NVLink forward nothing .*; choose the family"):
        solve(Network(f), all_to_all(f, world(f), 1e6, pxn=True))


def test_two_gpus_on_different_rails_have_no_relay() -> None:
    """NVIDIA/nccl#836: GPU 0 of one node and GPU 6 of another, rails not joined at the top."""
    f = built("rail-only")
    reach = reachability(f, [comm(0, 14, name="pair")])
    assert ways(reach.groups[0]) == (0, 0, 0, 2)
    assert (reach.groups[0].common_rails, reach.groups[0].networks) == (0, 2)
    told = nccl_settings(f, reach)
    assert [(v, x) for v, x, _ in told if v == "NCCL_ALGO"] == [("NCCL_ALGO", "unset")]
    assert "neither a ring nor a tree closes" in {v: why for v, _, why in told}["NCCL_ALGO"]
    assert "server-01/gpu-0 cannot reach server-02/gpu-6" in "\n".join(reach_lines(reach, told))


def test_nine_gpus_the_lone_one_cannot_send_to_seven() -> None:
    """NVIDIA/nccl#836: 8 on the first node, 1 on the second: it reaches its rail alone; all 8 reach it."""
    (group,) = reachability(built("rail-only"), [comm(*range(8), 8)]).groups
    assert ways(group) == (8 * 7, 2, 7, 7)
    assert not group.alike
    unreachable = dict(group.examples)["unreachable"]
    assert (unreachable.source, unreachable.destination) == ("server-02/gpu-0", "server-01/gpu-1")
    assert group.common_rails == 1


def test_groups_of_a_job_one_rail_or_one_server_need_nothing() -> None:
    """TP inside servers and DP along rails, as Megatron packs them: no relay, no unreachable pair."""
    f = built("rail-only")
    tp = [comm(*range(8 * s, 8 * s + 8), name=f"TP group {s}") for s in range(16)]
    dp = [comm(*range(r, 128, 8), name=f"DP group {r}") for r in range(8)]
    reach = reachability(f, [*tp, *dp])
    assert [reach.total(w) for w in ("inside", "direct", "relayed", "unreachable")] == [896, 1920, 0, 0]
    told = variables(f, *tp, *dp)
    assert "NCCL_PXN_DISABLE" not in told
    assert told["NCCL_CROSS_NIC"] == "0"
    assert all(g.common_rails == 1 for g in reach.groups if g.name.startswith("DP"))


def test_joined_rails_need_no_relay() -> None:
    f = built("rail-optimised")
    (group,) = reachability(f, [world(f)]).groups
    assert ways(group) == (16 * 8 * 7, 128 * 127 - 16 * 8 * 7, 0, 0)
    assert set(variables(f, world(f))) == {"NCCL_IB_HCA"}


def test_all_nics_on_one_leaf_may_cross() -> None:
    f = built("fat-tree", servers=8, tiers=2)
    assert variables(f, world(f))["NCCL_CROSS_NIC"] == "1"


def test_a_dead_spine_makes_a_rail_optimised_fabric_rail_only() -> None:
    """16 servers have one spine: without it only PXN joins the rails."""
    f = fabric.apply_faults(built("rail-optimised", servers=4), [Fault(element="spine-01")])
    reach = reachability(f, [world(f)])
    assert reach.networks == 8
    assert ways(reach.groups[0]) == (4 * 8 * 7, 8 * 4 * 3, 8 * 4 * 3 * 7, 0)


def test_a_gpu_on_its_neighbours_nic_is_on_its_neighbours_rail() -> None:
    f = fabric.apply_faults(built("rail-only", servers=2), [Fault(element="server-01/nic-0")])
    (group,) = reachability(f, [comm(0, 8)]).groups
    assert ways(group) == (0, 0, 0, 2), "GPU 0 now sends on rail 1, where server-02/gpu-0 is not"
    (group,) = reachability(f, [comm(0, 9)]).groups
    assert ways(group) == (0, 2, 0, 0)
    f = fabric.apply_faults(built("rail-only", servers=2), [Fault(element="leaf-01")])
    assert "<nic-0>" not in variables(f, world(f))["NCCL_IB_HCA"]


def test_without_nvlink_nothing_relays() -> None:
    """Source: NCCL src/graph/paths.cc: PXN wants the peer over NVLink; a PCIe host has none."""
    f = built("rail-only", server="server-8x-h100-pcie", servers=4)
    (group,) = reachability(f, [world(f)]).groups
    assert group.relayed == 0
    assert group.unreachable > 0


def test_nvlink_pairs_that_do_not_span_the_rails_close_no_ring() -> None:
    """NVIDIA/nccl#2345: scale-up domains of one rail each hang although the node has both rails."""
    f = hand.make(servers=2, gpus=2, family="rail-only")
    cut = hand.with_capacity(f, dict.fromkeys(hand.links_of(f, Role.SCALE_UP), 0.0))
    reach = reachability(cut, [world(cut)])
    assert ways(reach.groups[0]) == (0, 4, 0, 8)
    assert reach.groups[0].common_rails == 0
    assert ("NCCL_ALGO", "unset") in [(v, x) for v, x, _ in nccl_settings(cut, reach)]


def test_with_every_cable_dead_nothing_but_nvlink_is_left() -> None:
    f = hand.make(servers=3, gpus=2)
    dead = {link: 0.0 for role in (Role.NODE_LEAF, Role.LEAF_SPINE) for link in hand.links_of(f, role)}
    cut = hand.with_capacity(f, dead)
    reach = reachability(cut, [world(cut)])
    assert (reach.networks, ways(reach.groups[0])) == (0, (6, 0, 0, 24))
    assert variables(cut, world(cut)) == {"NCCL_ALGO": "unset"}
    found = audit(cut)
    assert (found.hops, found.pairs_unjoined, found.fault_domains) == (((0, 3),), 12, ())
    assert "none has live cables both ways" in "\n".join(lines(found))


def test_equal_groups_have_equal_answers_with_their_own_names() -> None:
    f = built("rail-only")
    one, other = reachability(f, [comm(0, 9, 1), comm(16, 25, 17, name="later")]).groups
    assert ways(one) == ways(other)
    assert dict(other.examples)["relayed"].source == "server-03/gpu-0"


def test_the_page_shows_what_comes_out() -> None:
    f = built("rail-only", servers=64, server="dgx-b200")
    reach = reachability(f, [world(f), comm(0, 14, name="PP group 0")])
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    assert "\n".join(reach_lines(reach, nccl_settings(f, reach))) in page


def test_text_fits_a_terminal() -> None:
    f = built("rail-only")
    reach = reachability(
        f, [world(f), comm(0, 14), *(comm(0, 9 + i, name=f"PP group {i}") for i in range(7))]
    )
    text = reach_lines(reach, nccl_settings(f, reach))
    assert max(map(len, text)) <= 80
    assert any("more group" in line for line in text) == (len(reach.groups) > 8)


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        ((), "holds no rank"),
        ((3, 3), "2 ranks on 1 GPUs"),
        ((0, 400), "names GPU 400, but this fabric has 128"),
    ],
)
def test_a_wrong_communicator_is_refused(gpus: tuple[int, ...], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        reachability(built("rail-only"), [comm(*gpus)])
