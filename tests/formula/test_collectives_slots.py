"""PCIe slots of GPUs without NVLink: what collectives ask of the busiest one, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.collectives import predict
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import NcclSettings, Op
from railwright.collectives.slots import busiest_slot
from railwright.fabric.graph import Role
from railwright.network import solve
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic.demand import Communicator, Traffic
from railwright.traffic.groups import Groups
from railwright.traffic.patterns import all_to_all
from training_cases import machine

SERVER = "server-8x-h100-pcie"
SLOT = 63e9
"""PCIe 5.0 x16, one direction [byte/s]."""
COUNTED = 48e9
"""What NCCL counts on of it: 12 GB/s of each x16 of 8 GT/s [byte/s]."""


def groups(crossing: bool) -> list[Communicator]:
    gpu = np.arange(32, dtype=np.int32).reshape(4, 8)
    return [Communicator(np.ascontiguousarray(row)) for row in (gpu.T if crossing else gpu)]


def test_a_byte_crosses_the_slots_of_its_sender_and_its_receiver_once() -> None:
    # GPU 0 sends 63 MB to a neighbour and 126 MB to another server, through the NIC beside GPU 2:
    # 3 ms out of its slot, nothing through the slot of GPU 2
    fabric = machine(4, server=SERVER).network.fabric
    src, dst, relay = (np.array(x, np.int32) for x in ([0, 0], [1, 8], [-1, 2]))
    sent = Traffic(src, dst, relay, np.array([63e6, 126e6]))
    assert busiest_slot(fabric, sent) == pytest.approx(3e-3)
    # ... and 2 ms into GPU 8's, however many send there
    assert busiest_slot(fabric, Traffic(src + 16, dst, relay, np.array([0.0, 126e6]))) == pytest.approx(2e-3)


def test_bytes_that_a_gpu_keeps_cross_none() -> None:
    fabric, own = machine(4, server=SERVER).network.fabric, np.array([3], np.int32)
    assert busiest_slot(fabric, Traffic(own, own, own * 0 - 1, np.array([1e9]))) == 0.0


def test_described_exchanges_load_slots_as_listed_ones() -> None:
    fabric = machine(4, server=SERVER).network.fabric
    for crossing in (False, True):
        described = Groups.all_to_all([g.gpus for g in groups(crossing)], 1e6)
        listed = [all_to_all(fabric, g, 1e6, False) for g in groups(crossing)]
        assert busiest_slot(fabric, described) == pytest.approx(busiest_slot(fabric, listed[0]))
        assert busiest_slot(fabric, described) == pytest.approx((len(groups(crossing)[0]) - 1) * 1e6 / SLOT)


@pytest.mark.parametrize("crossing", [False, True])
def test_a_slot_carries_what_the_graphs_lanes_to_host_and_nics_carry(crossing: bool) -> None:
    """Where no message takes another GPU's NIC, the links of the graph add up to it."""
    one = machine(4, server=SERVER)
    fabric, sent = one.network.fabric, all_to_all(one.network.fabric, groups(crossing)[0], 1e6, False)
    load, lanes = solve(one.network, sent, "bound").load, np.flatnonzero(fabric.role <= Role.PCIE)
    each = [np.bincount(fabric.a[lanes], load[2 * lanes + way], 32).max() for way in (0, 1)]
    assert busiest_slot(fabric, sent) == pytest.approx(max(each) / SLOT)


@pytest.mark.parametrize(
    ("op", "crossing", "share"),
    [
        # eight ranks of a server send 7/8 S through slots and nothing else
        ("all_to_all", False, 1.0),
        # rings rest during the last receive, 0.43 of a send (nccl.yaml): 7 of 7.43, and 14 of 14.43
        ("all_gather", False, 7 / 7.43),
        ("all_reduce", False, 14 / 14.43),
        # two GPUs on a NIC of 50 GB/s, of which NCCL's payload has 96 %: half of 48 GB/s each
        ("all_to_all", True, 0.5),
        ("reduce_scatter", True, 0.5),
    ],
)
def test_part_of_a_slot_that_a_collective_fills(op: Op, crossing: bool, share: float) -> None:
    found = predict(machine(4, server=SERVER), op, 1e9, groups(crossing))
    assert found.slot_share == pytest.approx(share, rel=1e-3)


def test_an_exchange_is_no_faster_than_slots_carry_all_of_it() -> None:
    """With a NIC for every GPU: 7 of 15 messages inside, 8 across, 15/16 S through the slot in all.

    On their own lanes of the graph the slower part, 1/2 S over the NIC, would take 10 of these 20 ms.
    """
    catalog = load_catalog()
    server = replace(catalog.servers[SERVER], name="own", nics=8)
    network = ComputeNetwork(family="rail-optimised", switch="qm9700")
    own = replace(catalog, servers={**catalog.servers, "own": server})
    one = Machine.of(Cluster(servers=2, server="own", compute=network), own, NcclSettings())
    found = predict(one, "all_to_all", 1.024e9, [Communicator(np.arange(16, dtype=np.int32))])
    assert found.bandwidth_bound == pytest.approx(1.024e9 * 15 / 16 / COUNTED, rel=1e-3)
    assert found.slot_share == 1.0


def test_gpus_with_scale_up_links_have_no_slot_to_share() -> None:
    one = machine(4)
    assert (
        busiest_slot(one.network.fabric, all_to_all(one.network.fabric, groups(True)[0], 1e6, False)) == 0.0
    )
    assert all(predict(one, "all_gather", 1e9, groups(c)).slot == 0.0 for c in (False, True))
