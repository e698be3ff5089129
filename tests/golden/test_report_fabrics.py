"""Real fabrics drawn: from one server to 32,768 GPUs, each readable and quick."""

import re
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from railwright.catalog import load_catalog
from railwright.fabric import Kind, build
from railwright.report.drawings.boxes import boxes_of
from railwright.report.drawings.fabric import draw_fabric
from railwright.spec import load_study
from railwright.spec.study import Cluster, ComputeNetwork, Fault


def fabric(servers, server, family, switch, faults=(), **network):
    compute = ComputeNetwork(family=family, switch=switch, **network)
    return build(Cluster(servers=servers, server=server, compute=compute, faults=faults), load_catalog())


CLOS_32K = {
    "spine_switch": "arista-7800-576",
    "servers_per_group": 2,
    "tiers": 3,
    "groups_per_pod": 128,
    "core_oversubscription": 7.0,
    "spines": 16,
    "spare_spines": 2,
}

CASES = {
    "one server": (fabric, (1, "dgx-h100", "single-switch", "qm9700"), {}),
    "30 servers on rails": (fabric, (30, "dgx-h100", "rail-optimised", "qm9700"), {}),
    "127 servers on rails": (
        fabric,
        (127, "dgx-h100", "rail-optimised", "qm9700"),
        {"servers_per_group": 32},
    ),
    "512 servers, 3 tiers": (
        fabric,
        (512, "dgx-h100", "rail-optimised", "qm9700"),
        {"servers_per_group": 32},
    ),
    "32,768 GPUs": (fabric, (4096, "hgx-h100", "fat-tree", "th4-400g"), CLOS_32K),
}


@pytest.mark.alone
@pytest.mark.parametrize("name", CASES)
def test_a_drawing_is_small_quick_and_well_formed(name):
    make, arguments, options = CASES[name]
    made = make(*arguments, **options)
    started = time.perf_counter()
    text = draw_fabric(made, name="f", title=name)
    assert time.perf_counter() - started < 3.0
    assert len(text) < 150_000
    ElementTree.fromstring(text)


def test_each_server_of_30_has_one_cable_to_each_rail_s_leaf():
    text = draw_fabric(fabric(30, "dgx-h100", "rail-optimised", "qm9700"), name="f", title="t")
    for server in (1, 30):
        tips = re.findall(
            rf"<title>server-{server:02d} to (leaf-\d\d) \(rail (\d)\): 1 cable of 400 Gb/s</title>", text
        )
        assert tips == [(f"leaf-{rail:02d}", f"{rail}") for rail in range(1, 9)]
    assert text.count(": 8 cables of 400 Gb/s</title>") == 8 * 4


def test_32k_gpus_are_16_pods_of_256_servers():
    boxes, _ = boxes_of(fabric(4096, "hgx-h100", "fat-tree", "th4-400g", **CLOS_32K))
    labels = [box.label for box in boxes]
    assert labels.count("× 256") == 16, "servers of a pod"
    assert labels.count("× 128") == 16, "racks of a pod"
    assert labels.count("× 18") == 16, "cluster switches of a pod"
    assert len(boxes) == 3 * 16 + 18
    columns = [[box.centre for box in boxes if box.label == label] for label in ("× 256", "× 128", "× 18")]
    assert columns[0] == pytest.approx(columns[1])
    assert columns[0] == pytest.approx(columns[2])


def test_a_failed_leaf_among_units_is_the_only_failed_box():
    made = fabric(
        127, "dgx-h100", "rail-optimised", "qm9700", (Fault(element="leaf-11"),), servers_per_group=32
    )
    failed = [box.name for box in boxes_of(made)[0] if box.state]
    assert failed == ["leaf-11 (rail 3)"]


def test_a_group_of_one_bears_its_number_and_no_text_leaves_its_box():
    """384 servers in racks of 2 under a leaf each: '× 1' would say nothing of a leaf."""
    network = {"servers_per_group": 2, "spine_switch": "arista-7800-576", "spare_spines": 2}
    made = fabric(384, "hgx-h100", "clos", "th4-400g", **network)
    boxes, _ = boxes_of(made)
    leaves = [box.label for box in boxes if box.kind == Kind.LEAF]
    assert leaves == ["01", "02", "03", "04", "05", "06", "07", "08", "… 183 more", "192"]
    shown = re.findall(r'class="box-name"[^>]*>([^<]*)<', draw_fabric(made, name="f", title="t"))
    assert "+366" in shown
    assert "… 366 more" not in shown


def test_narrow_boxes_are_all_bare_rather_than_numbered_up_to_nine():
    """16 leaves over each of two boxes of servers: the first nine would have room for their digit."""
    study = load_study(Path(__file__).parents[2] / "examples" / "dual-plane-hpn.yaml")
    made = build(study.cluster, load_catalog())
    shown = re.findall(r'class="box-name"[^>]*>([^<]*)<', draw_fabric(made, name="f", title="t"))
    assert shown.count("× 128") == 2
    assert not {str(n) for n in range(1, 10)} & set(shown)
