"""InfiniBand dumps of one small fabric, as the real tools printed it (ibsim, OpenSM, infiniband-diags 44)."""

from dataclasses import replace
from pathlib import Path

import pytest

from asbuilt_wirings import cables
from railwright.asbuilt.read import read, read_names, read_tables, recognised

DATA = Path(__file__).parent.parent / "data" / "asbuilt"
FORMS = {
    "small.topology": "ibnetdiscover",
    "small.grouped": "ibnetdiscover",
    "small.ports": "ibnetdiscover-ports",
    "small.iblinkinfo": "iblinkinfo",
    "small.iblinkinfo-l": "iblinkinfo",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_one_fabric_is_the_same_wiring(form):
    told, reference = read(DATA / form), read(DATA / "small.topology")
    assert recognised(DATA / form) == FORMS[form]
    assert told.nodes == reference.nodes
    assert told.links == reference.links


def test_the_small_fabric_is_as_it_was_cabled():
    wiring = read(DATA / "small.topology")
    assert cables(wiring) == sorted(
        [(f"leaf-0{k}", port, f"server-0{port} mlx5_{k - 1}", 1) for k in (1, 2) for port in (1, 2)]
        + [("leaf-01", 3, "server-03 mlx5_0", 1), ("leaf-02", 3, "server-03 mlx5_0", 2)]
        + [(f"leaf-0{k}", 4 + n, "spine-01", 2 * k - 2 + n) for k in (1, 2) for n in (1, 2)]
    )
    nodes = {node.name: node for node in wiring.nodes}
    assert (nodes["server-03 mlx5_0"].ports, nodes["server-03 mlx5_0"].host) == (2, "server-03")
    assert nodes["leaf-01"].ports == 8
    assert all((link.width, link.speed, link.rate, link.up) == (4, "SDR", 1e9, True) for link in wiring.links)
    assert wiring.notes == ()
    assert wiring.source == "small.topology (ibnetdiscover)"


def test_ports_that_are_down_and_links_that_could_run_faster_are_told():
    notes = read(DATA / "small.iblinkinfo").notes
    assert any("10 ports are down" in note and "leaf-01 ports 4, 7-8" in note for note in notes)
    assert any("20 ports run below" in note and "Could be 10.0 Gbps" in note for note in notes)


def test_switches_only_leaves_hosts_described_nowhere():
    wiring = read(DATA / "small.iblinkinfo-switches")
    assert cables(wiring) == cables(read(DATA / "small.topology"))
    assert any("5 devices" in note and "(host)" in note for note in wiring.notes)


def test_escapes_and_carriage_returns_change_nothing(tmp_path):
    text = (DATA / "small.iblinkinfo").read_text()
    coloured = text.replace("==(", "\x1b[31m==(").replace(")==>", ")==>\x1b[0m").replace("\n", "\r\n")
    path = tmp_path / "coloured"
    path.write_text(coloured, newline="")
    assert replace(read(path), source="") == replace(read(DATA / "small.iblinkinfo"), source="")


def test_utf16_of_a_windows_terminal_is_read(tmp_path):
    path = tmp_path / "wide"
    path.write_text((DATA / "small.topology").read_text(), encoding="utf-16")
    assert read(path).links == read(DATA / "small.topology").links


def edited(tmp_path, old, new, form="small.topology"):
    text = (DATA / form).read_text()
    assert text.count(old) == 1, "the edit must change one place"
    path = tmp_path / form
    path.write_text(text.replace(old, new))
    return read(path)


def line_of(old, form="small.topology"):
    return (DATA / form).read_text().split(old)[0].count("\n") + 1


def test_a_cable_told_differently_from_its_two_ends_is_a_contradiction(tmp_path):
    old = '[5]\t"S-0000000000200002"[3]\t\t# "spine-01"'
    wiring = edited(tmp_path, old, old.replace("[3]", "[7]"))
    note = next(note for note in wiring.notes if "contradicts itself" in note)
    other = line_of('[3]\t"S-0000000000200001"[5]')
    assert "leaf-02 port 5 goes to spine-01 port 7" in note
    assert f"line {line_of(old)}" in note
    assert f"line {other}" in note


def test_a_speed_told_differently_keeps_the_slower(tmp_path):
    old = '[5]\t"S-0000000000200002"[3]\t\t# "spine-01" lid 4 4xSDR'
    faster = edited(tmp_path, old, old.replace("SDR", "QDR"))
    assert {link.speed for link in faster.links} == {"SDR"}
    assert any("4x QDR" in note and "4x SDR" in note for note in faster.notes)
    both = (DATA / "small.topology").read_text().replace("4xSDR", "4xNDR")
    path = tmp_path / "ndr"
    path.write_text(both)
    assert {link.rate for link in read(path).links} == {50e9}


def test_a_cable_told_from_one_end_is_kept_and_noted(tmp_path):
    old = '[5]\t"S-0000000000200002"[3]\t\t# "spine-01" lid 4 4xSDR\n'
    wiring = edited(tmp_path, old, "")
    assert len(wiring.links) == 10
    assert any("one end of this cable is missing" in note for note in wiring.notes)


def test_a_switch_that_is_never_described_becomes_a_node_with_a_note(tmp_path):
    text = (DATA / "small.topology").read_text()
    blocks = text.split("\n\n")
    path = tmp_path / "missing"
    path.write_text("\n\n".join(b for b in blocks if 'Switch\t8 "S-0000000000200002"' not in b))
    wiring = read(path)
    assert cables(wiring) == cables(read(DATA / "small.topology"))
    assert any("spine-01" in note and "described nowhere (switch)" in note for note in wiring.notes)


def test_a_cut_off_dump_gives_what_it_has_and_says_so(tmp_path):
    text = (DATA / "small.topology").read_text()
    path = tmp_path / "cut"
    path.write_text(text[: text.index('"leaf-01" lid 1')])
    wiring = read(path)
    assert 0 < len(wiring.links) < 10
    assert any("cut off or damaged" in note for note in wiring.notes)


def test_chassis_and_aggregation_nodes(tmp_path):
    def switch(guid, name, image, ports):
        return (
            f"vendid=0x2c9\ndevid=0xd2f0\nsysimgguid={image}\nswitchguid=0x{guid}({guid})\n"
            f'Switch\t41 "S-{guid:0>16}"\t\t# "{name}" enhanced port 0 lid 5 lmc 0\n' + ports + "\n"
        )

    up = '[1]\t"S-000000000000a002"[21]\t\t# "L01" lid 6 4xHDR\n'
    down = '[21]\t"S-000000000000a001"[1]\t\t# "S01" lid 5 4xHDR\n'
    sharp = '[41]\t"H-000000000000a009"[1](a009)\t\t# "Mellanox Technologies Aggregation Node"'
    sharp += " lid 9 4xHDR\n"
    path = tmp_path / "director"
    path.write_text(
        "Chassis 1 (guid 0xabc)\n\n" + switch("a001", "S01", "0xaa", up + sharp)
        + switch("a002", "L01", "0xaa", down)
        + "Non-Chassis Nodes\n\n" + switch("a003", "alone", "0xbb", "")
    )  # fmt: skip
    nodes = {node.name: node for node in read(path).nodes}
    assert nodes["S01"].system == nodes["L01"].system == "0xabc"
    assert (nodes["alone"].system, nodes["alone"].model) == ("", "Quantum")
    assert nodes["Mellanox Technologies Aggregation Node"].kind == "aggregation"
    path.write_text(
        path.read_text().replace("Chassis 1 (guid 0xabc)\n", "").replace("Non-Chassis Nodes\n", "")
    )
    nodes = {node.name: node for node in read(path).nodes}
    assert nodes["S01"].system == nodes["L01"].system == "0xaa", (
        "the system image says it where no chassis is told"
    )


def test_a_node_name_map_wins_over_the_dump(tmp_path):
    names = tmp_path / "names"
    names.write_text('# ours\n0x0000000000200002 "core-9"\n0x100004\t"gpu-7 mlx5_0"\n0xdead "nobody"\n')
    assert recognised(names) == "node-names"
    assert read_names(names)["0x0000000000100004"] == "gpu-7 mlx5_0"
    wiring = read(DATA / "small.topology", names=names)
    called = {node.name: node for node in wiring.nodes}
    assert called["core-9"].key == "0x0000000000200002"
    assert called["gpu-7 mlx5_0"].host == "gpu-7", "node GUID of the two-port adapter"
    assert any("1 of 3 entries" in note for note in wiring.notes)


@pytest.mark.parametrize("form", ["small.fts", "small.lfts"])
def test_forwarding_tables_route_every_lid(form):
    tables = read_tables(DATA / form)
    wiring = read(DATA / "small.topology")
    switches = {node.key: node for node in wiring.nodes if node.kind == "switch"}
    assert set(tables.ports) == set(switches)
    assert tables.notes == ()
    ends = {(k.a, k.a_port): k.b for k in wiring.links} | {(k.b, k.b_port): k.a for k in wiring.links}
    index = wiring.index()
    for lid, key in tables.keys.items():
        for start in switches:
            here, hops = start, 0
            while (port := tables.port(here, lid)) > 0:
                here, hops = wiring.nodes[ends[index[here], port]].key, hops + 1
                assert hops <= 4, "a route may not run in circles"
            owner = wiring.nodes[index[here]]
            assert key in (owner.key, f"0x{int(owner.key, 16) + 1:016x}"), "the route ends at the LID's owner"
    assert tables.port("0x0000000000200000", 999) == -1


def test_a_table_that_is_cut_off_says_so(tmp_path):
    path = tmp_path / "cut"
    path.write_text((DATA / "small.fts").read_text()[:700])
    assert any("cut off" in note for note in read_tables(path).notes)
