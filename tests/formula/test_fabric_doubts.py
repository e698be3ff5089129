"""Fields of a network that do nothing are told, those that ask for two tiers of switches get them, and a
switch many times slower than its NICs is doubted."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright import fabric
from railwright.catalog import load_catalog
from railwright.spec import load_study, load_study_text, template, template_names
from railwright.spec.study import Cluster, ComputeNetwork, ServiceNetwork
from railwright.study.networks import network_doubts

ROOT = Path(__file__).parents[2]
CATALOG = load_catalog()
"""Eight servers of eight NICs: their 64 ports just fit one QM9700."""


def cluster(servers: int = 8, **network) -> Cluster:
    compute = ComputeNetwork(**{"family": "fat-tree", "switch": "qm9700", **network})
    return Cluster(servers=servers, server="dgx-h100", compute=compute)


def tiers(**network) -> tuple[int, int]:
    """(leaves, spines)."""
    made = fabric.size(fabric.order(cluster(**network), CATALOG))
    return made.leaves, made.spines


def told(**network) -> list[str]:
    return [text for _, text in fabric.doubts(cluster(**network), CATALOG)]


def test_what_fits_one_switch_takes_one():
    assert tiers() == (1, 0)
    assert not told()


def test_groups_of_two_servers_have_leaves_of_their_own_by_hand():
    """16 ports down a leaf; 2:1 leaves 8 up, over two spines 4 each."""
    asked = {"servers_per_group": 2, "oversubscription": 2.0, "spines": 2}
    assert tiers(**asked) == (4, 2)
    assert not told(**asked)
    made = fabric.count(fabric.build(cluster(**asked), CATALOG), CATALOG)
    assert (made.node_leaf, made.leaf_spine) == (64, 32)


def test_spines_that_are_named_are_built():
    """Two leaves of 32 ports down, 32 up: 8 to each of four spines."""
    assert tiers(spines=4) == (2, 4)


def test_a_group_of_all_servers_asks_for_no_second_tier():
    assert tiers(servers_per_group=8) == (1, 0)
    assert tiers(servers_per_group=20) == (1, 0)
    assert not told(servers_per_group=8)


def test_a_ratio_alone_keeps_the_one_switch_and_is_told():
    """Three switches with half the bandwidth between them would cost more and carry less."""
    assert tiers(oversubscription=2.0) == (1, 0)
    assert told(oversubscription=2.0) == [
        "oversubscription 2 does nothing: 64 ports fit one 'qm9700', and one switch has no uplinks; "
        "tiers: 2 makes leaves and spines of it."
    ]
    assert not told(oversubscription=2.0, tiers=2)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (
            {"tiers": 1, "spines": 2, "servers_per_group": 4},
            "spines 2 and servers_per_group 4 do nothing: 64",
        ),
        ({"family": "single-switch", "oversubscription": 1.5}, "families of leaves and spines (fat-tree"),
        (
            {"family": "rail-only", "spare_spines": 1},
            "spare_spines 1 does nothing: each rail has one 'qm9700'",
        ),
        ({"family": "rail-optimised", "cores": 4}, "cores 4 does nothing: two tiers of switches reach all"),
        ({"core_switch": "qm9700"}, "core_switch qm9700 does nothing: 64 ports fit one"),
    ],
)
def test_what_does_nothing_is_told_with_what_would(network, said):
    assert said in told(**network)[0]


HEAD = """
railwright: 1
name: two to one
cluster:
  servers: 8
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700, oversubscription: 2}
  oob: {family: fat-tree, switch: ethernet-1g-48, oversubscription: 3}
variants:
  - {name: Fat tree, set: {cluster.compute.family: fat-tree}}
  - {name: Rail-only, set: {cluster.compute.family: rail-only}}
sensitivity:
  - {name: Four to one, set: {cluster.compute.family: fat-tree, cluster.compute.oversubscription: 4}}
"""


def test_variants_rows_and_networks_beside_compute_are_told_and_leaving_spines_out_is_not_blamed():
    found = network_doubts(load_study_text(HEAD))
    assert [text.split(" do")[0] for text in found] == [
        "cluster.oob: oversubscription 3",
        "cluster.compute ('Fat tree'): oversubscription 2",
        "cluster.compute ('Four to one'): oversubscription 4",
    ]


@pytest.mark.parametrize(
    ("network", "times"),
    [
        (
            {"switch": "ethernet-25g-48"},
            "sends 400 Gb/s a port, 16 times as much as a port of switch 'ethernet",
        ),
        ({"switch": "sn3700c"}, "4 times as much as a port of switch 'sn3700c' (100 Gb/s), at which its"),
        ({"breakout": 4}, "4 times as much as a part of a port of 'qm9700' (100 Gb/s)"),
    ],
)
def test_a_switch_many_times_slower_than_its_nics_is_doubted(network, times):
    """The likeliest typo of a study: eight DGX H100 on a 25 Gb/s switch were 'correct'."""
    found = told(servers=2, family="rail-optimised", **network)
    assert times in found[0]
    assert found[0].endswith(f"is another {'breakout' if 'breakout' in network else 'switch'} meant?")
    assert not told(servers=1, **network), "nothing crosses it"


@pytest.mark.parametrize("network", [{}, {"breakout": 2}, {"switch": "qm8700"}])
def test_one_generation_between_nic_and_switch_is_a_choice(network):
    """NICs of 400 Gb/s on ports of 400 and 200."""
    assert not told(servers=2, **network)


def test_nics_that_no_gpu_sends_through_are_told_with_what_would_be_meant(tmp_path):
    """Twice the NICs were cables and switches that changed no prediction, and nothing said so."""
    own = tmp_path / "own.yaml"
    own.write_text("servers: {many: {like: dgx-h100, nics: 16}}\n")
    catalog = load_catalog(own)
    compute = ComputeNetwork(family="fat-tree", switch="qm9700")
    asked = Cluster(servers=8, server="many", compute=compute)
    ((section, text),) = fabric.doubts(asked, catalog)
    assert section == "cluster.compute"
    assert "16 NICs for 8 GPUs" in text
    assert "8 of them carry nothing" in text
    # What the warning says to write is taken, has as many ports, and is warned of no more.
    written = text.split("under catalog, ")[1].removesuffix(".").replace(", and servers", "\nservers")
    own.write_text(f"{written}\n".replace("like: many", "like: dgx-h100"))
    meant = load_catalog(own)
    pair = Cluster(servers=8, server="ours", compute=compute)
    assert not fabric.doubts(pair, meant)
    assert fabric.count(fabric.build(pair, meant), meant).node_leaf == 8 * 16
    assert not fabric.doubts(asked.model_copy(update={"servers": 1}), catalog), "nothing crosses it"


def test_networks_beside_compute_are_doubted_by_the_rate_that_is_written():
    service = ServiceNetwork(family="single-switch", switch="ethernet-1g-48", rate="25 Gb/s")
    found = fabric.doubts(cluster().model_copy(update={"oob": service}), CATALOG)
    assert [section for section, _ in found] == ["cluster.oob"]
    assert "25 times as much as a port" in found[0][1]


def test_a_slow_switch_of_a_variant_is_told_whatever_its_family():
    text = HEAD.replace("family: rail-only", "family: rail-only, cluster.compute.switch: ethernet-25g-48")
    assert "cluster.compute ('Rail-only'): NIC 'cx7-400'" in " ".join(network_doubts(load_study_text(text)))


@pytest.mark.parametrize("name", template_names())
def test_no_starter_says_what_does_nothing(name):
    assert not network_doubts(load_study_text(template(name)))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_no_example_says_what_does_nothing(path):
    assert not network_doubts(load_study(path))
