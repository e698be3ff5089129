"""What the export room writes is read back cable for cable, whichever format carried it, and fast enough."""

import time
from functools import cache
from pathlib import Path

import pytest

from railwright.asbuilt.read import read, recognised
from railwright.catalog import load_catalog
from railwright.export import render
from railwright.fabric import build
from railwright.fabric.graph import Role
from railwright.spec import load_study, override

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "mixtral-240-h100.yaml"
SERVERS = 75
FORMS = {
    "ibnetdiscover": ("fabric.ibnetdiscover", "ibnetdiscover"),
    "ibnetdiscover-ports": ("fabric.ports", "ibnetdiscover-ports"),
    "ibsim": ("fabric.net", "ibnetdiscover"),
    "cvt": ("p2p.csv", "cable-sheet"),
    "cable-schedule": ("cables.csv", "cable-sheet"),
}


@cache
def fabric():
    """75 servers of 8 H100: 600 adapters, rail-optimised."""
    study = override(load_study(EXAMPLE), {"cluster.servers": SERVERS})
    return build(study.cluster, load_catalog())


def designed():
    """Both ends of every cable, as (device, port)."""
    f = fabric()
    ends = set()
    for c in range(f.num_cables):
        if f.role[c] >= Role.NODE_LEAF:
            pair = (
                (f.device_name(int(f.a[c])), int(f.port_a[c])),
                (f.device_name(int(f.b[c])), int(f.port_b[c])),
            )
            ends.add(frozenset(pair))
    return ends


def told(wiring):
    def name(i):
        node = wiring.nodes[i]
        return (
            f"{node.host}/nic-{node.adapter.split('_')[-1].split('-')[-1]}"
            if node.kind == "host"
            else node.name
        )

    return {frozenset(((name(k.a), k.a_port), (name(k.b), k.b_port))) for k in wiring.links}


@pytest.mark.alone
@pytest.mark.parametrize("form", FORMS)
def test_a_600_adapter_fabric_comes_back_cable_for_cable(tmp_path, form):
    file, known = FORMS[form]
    path = tmp_path / file
    path.write_text(render(fabric(), form)[file])
    read(path)  # first use compiles the patterns
    start = time.perf_counter()
    wiring = read(path)
    seconds = time.perf_counter() - start
    assert recognised(path) == known
    assert told(wiring) == designed()
    assert wiring.notes == ()
    assert seconds < 1.0, "600 adapters are read in well under a second"
    if form not in ("cvt", "ibsim"):
        assert {link.rate for link in wiring.links} == {50e9}
