"""Cable schedule and bill of materials, counted by hand; and how files are written."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from export_fabrics import SHIPPED, built, small_parts
from railwright import export, fabric
from railwright.errors import PlanError
from railwright.fabric import Role
from railwright.spec.study import CableLengths


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_cable_has_a_label_for_each_of_its_ends():
    """30 servers: cable 241 is the first up-link, from port 33 of leaf 1 (30 ports down, uplinks from 33)."""
    schedule = rows(export.render(built(30, "rail-optimised"), "cable-schedule")["cables.csv"])
    assert len(schedule) == 240 + 256
    assert schedule[240] == {
        "cable": "C000241",
        "label_a": "leaf-01:33 > spine-01:1",
        "label_b": "spine-01:1 > leaf-01:33",
        "device_a": "leaf-01",
        "port_a": "33",
        "device_b": "spine-01",
        "port_b": "1",
        "role": "leaf-spine",
        "rate_gbps": "400",
        "length_m": "30",
        "medium": "multimode",
    }


@pytest.mark.parametrize(
    ("length", "medium", "optics"),
    [
        ("0 m", "", 0),
        ("3 m", "copper", 0),
        ("3.5 m", "multimode", 2),
        ("50 m", "multimode", 2),
        ("51 m", "single-mode", 2),
    ],
)
def test_medium_follows_length(length, medium, optics):
    """Copper reaches 3 m and multimode fibre 50 m; a length of 0 is not planned yet."""
    metres = float(length.split()[0])
    f = built(2, "single-switch", lengths=CableLengths(node_leaf=length))
    schedule = rows(export.render(f, "cable-schedule")["cables.csv"])
    assert {r["medium"] for r in schedule} == {medium}
    assert {r["length_m"] for r in schedule} == {f"{metres:g}" if metres else ""}
    bill = rows(export.render(f, "bom")["bom.csv"])
    ends = sum(int(r["quantity"]) for r in bill if r["item"] == "optical cable ends")
    assert ends == 16 * optics


def test_bill_of_thirty_servers():
    """240 cables of 10 m and 256 of 30 m.  A QM9700 has two ports a cage, one module for both:
    15 cages down and 16 up on a leaf, 32 on a spine; 8 x 31 + 4 x 32 = 376, and one in each of 240 NICs."""
    bill = rows(export.render(built(30, "rail-optimised"), "bom")["bom.csv"])
    found = {(r["item"], r["part"]): int(r["quantity"]) for r in bill}
    assert found == {
        ("server", "dgx-h100"): 30,
        ("nic", "cx7-400"): 240,
        ("leaf switch", "qm9700"): 8,
        ("spine switch", "qm9700"): 4,
        ("cable", "400 Gb/s multimode, 10 m"): 240,
        ("cable", "400 Gb/s multimode, 30 m"): 256,
        ("transceiver module", "400 Gb/s a port, multimode"): 240,
        ("transceiver 2-port module", "400 Gb/s a port, multimode"): 376,
        ("optical cable ends", "400 Gb/s, multimode"): 992,
    }


@pytest.mark.parametrize(
    ("reserved", "asked"),
    [
        (0, {"family": "fat-tree"}),
        (7, {"family": "fat-tree"}),
        (7, {"family": "rail-optimised"}),
        (0, {"family": "dual-plane"}),
        (0, {"family": "rail-optimised", "switch": "sn5600", "breakout": 2, "nic_ports": 2}),
        (7, {"family": "fat-tree", "switch": "sn5600", "breakout": 2, "nic_ports": 2}),
        (
            0,
            {
                "family": "rail-optimised",
                "server": "dgx-1-v100",
                "switch": "sb7800",
                "spine_switch": "cs7520",
                "expand_directors": True,
            },
        ),
    ],
)
def test_the_bill_agrees_with_the_counts(reserved, asked):
    """Switches (a director is one), cables, optical ends, and a module in every cage or NIC port."""
    f = built(39, reserved_ports=reserved, **asked)
    counts = fabric.count(f, SHIPPED)
    bill = rows(export.render(f, "bom")["bom.csv"])

    def total(*items: str) -> int:
        return sum(int(r["quantity"]) for r in bill if r["item"] in items)

    if f.breakout == 1:
        assert total("cable") == counts.cables
    else:
        # 39 NIC ports on each of 16 rail leaves take 20 ports, the last leg hanging free.
        legs, spread = f.breakout * total("breakout cable"), f.family == "rail-optimised"
        assert total("cable") + legs == counts.cables + (16 if spread else reserved % 2)
    assert total("optical cable ends") == counts.optics
    assert total("leaf switch", "spine switch", "core switch", "director") == counts.switches
    if not reserved:
        modules = total("transceiver module", "transceiver 2-port module")
        assert modules == counts.cages + total("nic") * f.port_a[f.role == Role.NODE_LEAF].max()


def test_parts_the_catalogue_does_not_know_are_written_as_the_graph_has_them():
    """Without the user's catalogue: one port a cage, as many ports as are used, no maker."""
    f = built(8, "rail-optimised", "small", "tiny", small_parts(8), servers_per_group=4)
    assert "tiny" in export.render(f, "bom")["bom.csv"]
    discovered = export.render(f, "ibnetdiscover")["fabric.ibnetdiscover"]
    assert 'Switch\t8 "S-' in discovered
    assert "Unknown,unknown" in export.render(f, "netbox")["manufacturers.csv"]
    assert export.render(f, "cable-schedule") == export.render(f, "cable-schedule", catalog=small_parts(8))


def test_files_are_written_into_a_folder_or_as_named(tmp_path):
    f = built(2, "single-switch")
    assert export.write(f, "slurm", tmp_path / "new" / "slurm") == [
        tmp_path / "new" / "slurm" / name for name in export.EXPORTS["slurm"].files
    ]
    (one,) = export.write(f, "bom", tmp_path / "mine.csv", "My study")
    assert one == tmp_path / "mine.csv"
    assert one.read_text() == export.render(f, "bom", "My study")["bom.csv"]
    assert export.write(f, "bom", tmp_path) == [tmp_path / "bom.csv"]


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path):
    f = built(2, "single-switch")
    (tmp_path / "slurm.conf").write_text("mine")
    with pytest.raises(PlanError, match=r"slurm\.conf' exists already and is not overwritten; remove it or"):
        export.write(f, "slurm", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["slurm.conf"]
    assert (tmp_path / "slurm.conf").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanError, match="cannot write"):
        export.write(built(2, "single-switch"), "slurm", tmp_path / "file" / "inside")


def test_an_unknown_format_names_the_nearest():
    with pytest.raises(
        PlanError, match=r"no export format 'slrum'; did you mean 'slurm'.*known are cable-schedule"
    ):
        export.render(built(2, "single-switch"), "slrum")


def test_every_format_writes_the_files_its_row_names():
    f = built(40, "rail-optimised")
    rack = built(2, "fat-tree", "gb200-nvl72")
    for name, row in export.EXPORTS.items():
        texts = export.render(rack if name == "slurm-block" else f, name)
        wanted = [n for n in row.files if "*" not in n]
        assert [n for n in texts if n in wanted] == wanted, name
        assert len(texts) == len(wanted) or "netbox" in name


def test_a_study_name_cannot_break_a_comment():
    """A name with a line break, quotes and '---' stays inside its line in every format, and XML is XML."""
    f = built(2, "single-switch")
    for name in export.EXPORTS:
        try:
            texts = export.render(f, name, 'a "name"\nNodeName=evil --- <x> & \x07 y')
        except PlanError:
            continue
        for text in texts.values():
            assert not any(line.startswith("NodeName=evil") for line in text.splitlines()), name
            if text.startswith("<"):
                ElementTree.fromstring(text)


def test_lanes_inside_a_director_are_not_pulled():
    """A graph that draws a director's modules marks their links as backplane: nobody buys those."""
    f = built(40, "rail-optimised")
    drawn = replace(f, directors=1)
    assert len(rows(export.render(drawn, "cable-schedule")["cables.csv"])) == 320
    assert export.render(drawn, "ibnetdiscover") == export.render(f, "ibnetdiscover")
