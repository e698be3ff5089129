"""Laws of tables: shortest ways by one port per destination are never faster than an even spread."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import network_fabrics as hand
from railwright.fabric.graph import Kind
from railwright.network import Network, Tables, own_tables, solve
from railwright.network.routing.tables import destinations, switches
from railwright.network.routing.tables_check import check_tables
from railwright.traffic import Communicator, all_to_all


@settings(max_examples=40)
@given(
    st.integers(2, 6),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(0, 2**32),
)
def test_no_minimal_tables_beat_adaptive_routing_for_an_all_to_all(
    servers: int, gpus: int, spines: int, cables: int, per_group: int, seed: int
) -> None:
    """Any up-port and any of the parallel cables down, drawn for every switch and destination."""
    fabric = hand.make(servers, gpus, "fat-tree", spines, cables, servers_per_group=per_group)
    tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    head = np.stack([fabric.b, fabric.a], axis=1).reshape(-1)
    draw = np.random.default_rng(seed)
    out = own_tables(fabric).out.copy()
    for row, switch in enumerate(switches(fabric).tolist()):
        for column, cable in enumerate(destinations(fabric).tolist()):
            home = int(fabric.b[cable])
            if fabric.kind[switch] == Kind.LEAF and switch != home:
                out[row, column] = draw.choice(
                    np.flatnonzero((tail == switch) & (fabric.kind[head] == Kind.SPINE))
                )
            elif fabric.kind[switch] == Kind.SPINE:
                out[row, column] = draw.choice(np.flatnonzero((tail == switch) & (head == home)))
    tables = Tables(out, "drawn tables")
    use = check_tables(fabric, tables)
    assert use.check.valid
    assert use.check.longer == use.check.turns == 0
    assert use.check.waits_in_circle is False
    assert use.destinations.sum() == sum(n for hops, n in use.check.hops.items() if hops == 3)
    traffic = all_to_all(fabric, Communicator(np.arange(fabric.num_gpus, dtype=np.int32)), 1e3, pxn=False)
    by_tables = solve(Network(fabric, "tables", tables=tables), traffic)
    assert by_tables.time >= solve(Network(fabric), traffic).time * (1 - 1e-9)
    up = fabric.role == 4
    np.testing.assert_allclose(
        by_tables.load[0::2][up].sum(), solve(Network(fabric), traffic).load[0::2][up].sum(), rtol=1e-9
    )
