"""Hosts of a dump that are called or cut otherwise than the design's servers: trays, racks, ports of NICs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from asbuilt_changes import cable, instead, wrong
from railwright import fabric
from railwright.asbuilt import fabric_names, punch_list, to_fabric, to_wiring
from railwright.asbuilt.compare_plan import alike
from railwright.asbuilt.read import read
from railwright.asbuilt.trays import as_in_dump
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.export import render
from railwright.fabric import Kind, Role
from railwright.fabric.trays import host_of_nic
from railwright.spec.study import Cluster, ComputeNetwork

CATALOG = load_catalog()


@pytest.mark.parametrize(("family", "servers"), [("dual-plane", 2), ("rail-optimised", 1)])
def test_adapters_called_as_linux_does_are_one_note_beside_more_switches(family, servers):
    """16 adapters under 18 switches that bear the names of the design: one naming, not 16 renamed devices."""
    compute = ComputeNetwork(family=family, switch="sn5600-400g")
    cluster = Cluster(servers=servers, server="dgx-h100", compute=compute)
    design = to_wiring(fabric.build(cluster, CATALOG), CATALOG)
    nodes = tuple(
        replace(n, adapter=n.adapter.replace("nic-", "mlx5_")) if n.kind == "host" else n
        for n in design.nodes
    )
    (found,) = punch_list(replace(design, nodes=nodes), design)
    assert (found.kind, found.severity, found.element) == ("own names", "note", f"{8 * servers} devices")


def rack_names(wiring, rename):
    """The wiring with other host names: `rename` of a server's number, from 0."""
    nodes = tuple(
        replace(n, host=rename(int(n.host.removeprefix("server-")) - 1)) if n.kind == "host" else n
        for n in wiring.nodes
    )
    return replace(wiring, nodes=nodes)


def test_hosts_numbered_within_their_racks_are_all_servers_of_the_machine():
    """'r1n1' to 'r10n1', four a rack: 37 servers as a fabric, and each the design's in its order; hosts that
    have other adapters are none of them."""
    compute = ComputeNetwork(family="rail-optimised", switch="qm9700")
    cluster = Cluster(servers=37, server="dgx-h100", compute=compute)
    design = to_wiring(fabric.build(cluster, CATALOG), CATALOG)
    machine = rack_names(design, lambda i: f"r{i // 4 + 1}n{i % 4 + 1}")
    assert to_fabric(machine, CATALOG).num_servers == 37
    one, two = cable(machine, "leaf-01", 2), cable(machine, "leaf-02", 30)
    wrong_ends = {one: replace(one, a=two.a), two: replace(two, a=one.a)}
    (found,) = wrong(punch_list(instead(machine, wrong_ends), design))
    assert (found.kind, found.severity) == ("rail mismatch", "fault")
    assert "r1n2/nic-0" in found.element
    assert "r8n2/nic-1" in found.element
    few = {f"gpu4-{i}": range(4) for i in range(3)}
    assert alike({**few, **{f"gpu8-{i}": range(8) for i in range(2)}}) == list(few)


def test_a_rack_whose_trays_are_hosts_is_the_rack_of_the_design():
    """Four NVL72: 72 hosts of four adapters in the dump, four servers of 72 in the drawing."""
    compute = ComputeNetwork(family="rack-rails", switch="q3400-ra", nics_per_tray=4)
    drawn = fabric.build(Cluster(servers=4, server="gb300-nvl72", compute=compute), CATALOG)
    design = to_wiring(drawn, CATALOG)
    in_trays = []
    for node in design.nodes:
        if node.kind == "host":
            host, place = host_of_nic(node.host, int(node.adapter.removeprefix("nic-")), 72, 72)
            node = replace(node, host=host, adapter=f"mlx5_{place}")
        in_trays.append(node)
    dump = replace(design, nodes=tuple(in_trays))
    assert wrong(punch_list(dump, as_in_dump(design, drawn, dump))) == []
    assert as_in_dump(design, drawn, design) == design


def nvl72(servers: int):
    """NVL72 racks, four rails: the design, and its dump with trays as hosts, as its export has them."""
    compute = ComputeNetwork(family="rack-rails", switch="q3400-ra", nics_per_tray=4)
    drawn = fabric.build(Cluster(servers=servers, server="gb300-nvl72", compute=compute), CATALOG)
    return drawn, as_hosts(drawn, lambda rack, tray: f"server-{rack + 1:02d}-tray-{tray + 1:02d}")


def as_hosts(drawn, called):
    """The dump of racks whose trays are called so: `called(rack, tray)`, from 0."""
    nodes = []
    design = to_wiring(drawn, CATALOG)
    for node in design.nodes:
        if node.kind == "host":
            rack, nic = int(node.host.removeprefix("server-")) - 1, int(node.adapter.removeprefix("nic-"))
            host, adapter = called(rack, nic // 4), f"mlx5_{nic % 4}"
            node = replace(node, name=f"{host} {adapter}", host=host, adapter=adapter)
        nodes.append(node)
    return replace(design, nodes=tuple(nodes))


def test_trays_of_racks_are_servers_of_the_fabric():
    """Two NVL72: 36 hosts of four adapters are two servers of 72 GPUs with NVLink between all of them."""
    drawn, dump = nvl72(2)
    built = to_fabric(dump, CATALOG, "gb300-nvl72")
    assert (built.num_servers, built.gpus_per_server, built.family) == (2, 72, "rack-rails")
    cables = drawn.role >= Role.NODE_LEAF
    for column in ("kind", "server", "rail", "nic_of_gpu"):
        assert getattr(built, column).tolist() == getattr(drawn, column).tolist(), column
    ends = ("a", "port_a", "b", "port_b")
    assert [getattr(built, end)[built.role >= Role.NODE_LEAF].tolist() for end in ends] == [
        getattr(drawn, end)[cables].tolist() for end in ends
    ]
    names = fabric_names(dump, built)
    assert names["server-02/nic-71"] == "server-02-tray-18/mlx5_3"
    # Hosts that are called trays are those of a rack of as many adapters, told or not.
    assert to_fabric(dump, CATALOG).num_servers == 2


@pytest.mark.parametrize(
    ("called", "racks"),
    [
        (lambda rack, tray: f"r{rack + 1}n{tray + 1}", ("r1n", "r2n")),
        (lambda rack, tray: f"nid{rack * 18 + tray:04d}", ("nid0000…nid0017", "nid0018…nid0035")),
    ],
    ids=["by rack", "in turn"],
)
def test_hosts_of_any_name_are_trays_where_the_server_is_a_rack(called, racks):
    """Nothing but `server` tells that four adapters are a tray's: without it they are a server's."""
    drawn, _ = nvl72(2)
    dump = as_hosts(drawn, called)
    built = to_fabric(dump, CATALOG, "gb300-nvl72")
    names = fabric_names(dump, built)
    assert (names["server-01"], names["server-02"]) == racks
    assert names["server-02/nic-5"] == f"{called(1, 1)}/mlx5_1"
    assert names["server-02-tray-02"] == called(1, 1)
    assert to_fabric(dump, CATALOG).num_servers == 36


def test_a_tray_that_a_dump_lacks_is_missing_from_its_rack():
    """Tray 5 of rack 1 does not boot: four NICs without a cable.  Hosts in one number do not say which."""
    drawn, dump = nvl72(2)
    built = to_fabric(lacking(dump, "server-01-tray-05"), CATALOG)
    assert built.num_servers == 2
    nics = built.devices(Kind.NIC)
    assert [i for i, n in enumerate(nics.tolist()) if n not in built.a[built.role == Role.NODE_LEAF]] == [
        16, 17, 18, 19,
    ]  # fmt: skip
    assert any("the dump lacks 1 of these trays" in note for note in built.notes)
    in_turn = lacking(as_hosts(drawn, lambda rack, tray: f"nid{rack * 18 + tray:04d}"), "nid0004")
    with pytest.raises(PlanError, match="35 hosts like 'nid0000' fill no whole racks of 18 trays"):
        to_fabric(in_turn, CATALOG, "gb300-nvl72")


def lacking(dump, host):
    """The dump without a host and its cables."""
    gone = {i for i, node in enumerate(dump.nodes) if node.host == host}
    number = {old: new for new, old in enumerate(i for i in range(len(dump.nodes)) if i not in gone)}
    links = [replace(k, a=number[k.a], b=number[k.b]) for k in dump.links if not {k.a, k.b} & gone]
    return replace(
        dump, nodes=tuple(n for i, n in enumerate(dump.nodes) if i not in gone), links=tuple(links)
    )


@pytest.mark.parametrize(("format_", "file"), [("cvt", "p2p.csv"), ("ibnetdiscover", "fabric.ibnetdiscover")])
def test_ports_of_a_nic_may_be_adapters_of_their_own(tmp_path, format_, file):
    """13 servers of eight NICs with two ports: 16 adapters of one port each on the point-to-point sheet,
    as Linux shows them, and eight of two ports in the export's dump; both are the design."""
    compute = ComputeNetwork(family="dual-plane", switch="qm9700")
    drawn = fabric.build(Cluster(servers=13, server="dgx-h100", compute=compute), CATALOG)
    (tmp_path / file).write_text(render(drawn, format_)[file])
    dump = read(tmp_path / file)
    assert wrong(punch_list(dump, as_in_dump(to_wiring(drawn, CATALOG), drawn, dump))) == []
