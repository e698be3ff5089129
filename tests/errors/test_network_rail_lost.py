"""A rail-only fabric with a dead NIC: who can still reach whom, and what is said where nobody can."""

from __future__ import annotations

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric import apply_faults, build
from railwright.fabric.graph import Fabric
from railwright.network import Network, solve
from railwright.spec.study import Cluster, ComputeNetwork, Fault
from railwright.traffic import Communicator, all_to_all, send_recv


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    network = ComputeNetwork(family="rail-only", switch="qm9700")
    whole = build(Cluster(servers=3, server="dgx-h100", compute=network), load_catalog())
    return apply_faults(whole, [Fault(element="server-01/nic-0", state="failed")])


def test_gpus_of_other_servers_reach_the_one_whose_nic_died_on_its_new_rail(fabric: Fabric) -> None:
    """GPU 0 now receives on rail 1, so a GPU of rail 0 elsewhere is relayed over its server's rail-1 GPU."""
    assert fabric.rail[fabric.nic_of_gpu[0]] == 1
    inbound = send_recv(fabric, np.array([8, 16]), np.array([0, 0]), 1e6, pxn=True)
    assert inbound.relay.tolist() == [9, 17]
    assert solve(Network(fabric), inbound).time > 0


def test_the_lost_rail_is_named_and_pxn_is_not_advised_where_it_is_on(fabric: Fabric) -> None:
    """PXN forwards at the source only, and server-01 has no NIC left on rail 0."""
    everyone = Communicator(np.arange(fabric.num_gpus, dtype=np.int32))
    for pxn in (True, False):
        with pytest.raises(
            PlanError, match=r"no NIC of server-01 is live on rail 0 .* mend that NIC"
        ) as said:
            solve(Network(fabric), send_recv(fabric, np.array([1]), np.array([8]), 1e6, pxn))
        assert "switch PXN on" not in str(said.value)
    with pytest.raises(PlanError, match="server-01/gpu-0 cannot reach server-02/gpu-0"):
        solve(Network(fabric), all_to_all(fabric, everyone, 1e6, pxn=True))
