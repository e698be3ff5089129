"""Forwarding tables that real tools printed, on the links of the machine as built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from railwright.asbuilt import infer, to_fabric
from railwright.asbuilt.read import read, read_tables
from railwright.asbuilt.routing import gaps, machine_owners, out_links, with_lids
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.network import Tables
from railwright.network.routing.tables import destination_name, destinations
from railwright.network.routing.tables_check import check_tables

DATA = Path(__file__).parent.parent / "data" / "asbuilt"
MACHINE = infer(read(DATA / "small.topology"))
FABRIC = to_fabric(MACHINE, load_catalog())


@pytest.mark.parametrize("form", ["small.lfts", "small.fts"])
def test_a_dump_becomes_links_of_the_machine_and_delivers_everywhere(form: str) -> None:
    """3 servers, 6 NIC ports, 2 leaves, 1 spine: 6 ways inside a leaf, 6 over the spine."""
    out, notes = out_links(read_tables(DATA / form), FABRIC, machine_owners(MACHINE, FABRIC))
    assert notes == ()
    assert gaps(FABRIC, out) == ()
    assert out.shape == (3, 6)
    check = check_tables(FABRIC, Tables(out)).check
    assert (check.valid, check.hops, check.longer, check.waits_in_circle) == (True, {1: 6, 3: 6}, 0, False)


def test_every_entry_leaves_by_the_port_that_the_dump_says() -> None:
    tables = read_tables(DATA / "small.lfts")
    owners = machine_owners(MACHINE, FABRIC)
    out, _ = out_links(tables, FABRIC, owners)
    first = FABRIC.num_devices - len(out)
    column = {
        (int(FABRIC.a[c]), int(FABRIC.port_a[c])): i for i, c in enumerate(destinations(FABRIC).tolist())
    }
    entries = 0
    for key in tables.ports:
        for lid, guid in tables.keys.items():
            if guid in owners and owners[guid][1]:
                link = int(out[owners[key][0] - first, column[owners[guid]]])
                cable, back = divmod(link, 2)
                ends = [(int(FABRIC.a[cable]), int(FABRIC.port_a[cable]))]
                ends.append((int(FABRIC.b[cable]), int(FABRIC.port_b[cable])))
                assert ends[back] == (owners[key][0], tables.port(key, lid))
                entries += 1
    assert entries == out.size


def test_lids_of_the_machines_dump_stand_in_for_those_the_tables_do_not_tell() -> None:
    tables = read_tables(DATA / "small.fts")
    owners = machine_owners(MACHINE, FABRIC)
    whole, _ = out_links(tables, FABRIC, owners)
    nameless = replace(tables, keys={})
    with pytest.raises(PlanError, match="adapters is of this fabric"):
        out_links(nameless, FABRIC, owners)
    out, _ = out_links(with_lids(nameless, MACHINE), FABRIC, owners)
    told = (out >= 0).any(axis=0)
    np.testing.assert_array_equal(out[:, told], whole[:, told])
    # ibnetdiscover tells one LID of an adapter with two ports here.
    assert told.sum() >= 5


def test_a_switch_without_a_table_and_an_adapter_without_a_route_are_named() -> None:
    tables = read_tables(DATA / "small.lfts")
    owners = machine_owners(MACHINE, FABRIC)
    spine = next(key for key, name in tables.names.items() if name == "spine-01")
    lid, guid = next((lid, guid) for lid, guid in tables.keys.items() if owners.get(guid, (0, 0))[1])
    cut = replace(
        tables,
        ports={key: row for key, row in tables.ports.items() if key != spine},
        keys={k: g for k, g in tables.keys.items() if k != lid},
    )
    out, _ = out_links(cut, FABRIC, owners)
    missing = next(
        c for c in destinations(FABRIC).tolist() if (FABRIC.a[c], FABRIC.port_a[c]) == owners[guid]
    )
    told = gaps(FABRIC, out)
    assert told[0] == "1 switches have no table: spine-01"
    assert destination_name(FABRIC, missing).split(" port")[0] in told[1]
    check = check_tables(FABRIC, Tables(out)).check
    assert check.failures == {"no route": 6 + 2 - 1}
    assert any("spine-01 has no route to" in example or "leaf" in example for example in check.examples)


def test_tables_of_another_machine_are_refused() -> None:
    owners = {f"0xdead{i:012x}": (device, 0) for i, device in enumerate(range(FABRIC.num_devices))}
    with pytest.raises(PlanError, match="none of its 3 switches is of this fabric, by GUID"):
        out_links(read_tables(DATA / "small.lfts"), FABRIC, owners)
