"""A graph that says little (no parts, groups or catalogue records) is written without inventing anything."""

from __future__ import annotations

import pytest

from network_fabrics import make
from railwright import export
from railwright.catalog import load_catalog
from railwright.catalog.parts import Catalog
from railwright.errors import PlanError

NOTHING = Catalog({}, {}, {}, {})


@pytest.mark.parametrize("family", ["single-switch", "fat-tree", "rail-optimised", "rail-only"])
@pytest.mark.parametrize("catalog", [NOTHING, load_catalog()], ids=["no catalogue", "shipped"])
def test_every_format_writes_a_bare_graph_or_refuses_it(family, catalog):
    f = make(servers=4, gpus=2, family=family)
    refused = set()
    for name in export.EXPORTS:
        try:
            assert all(export.render(f, name, catalog=catalog).values())
        except PlanError:
            refused.add(name)
    assert refused - {"htsim"} == {"slurm-block"}


def test_what_is_not_known_is_said_or_left_out():
    f = make(servers=4, gpus=2)
    texts = {name: export.render(f, name, catalog=NOTHING) for name in ("bom", "nccl", "slurm", "simgrid")}
    assert "leaf switch,unknown,2" in texts["bom"]["bom.csv"]
    assert "nvlink" not in texts["nccl"]["nccl-topo.xml"]
    assert "Gres=gpu:unknown:2" in texts["slurm"]["slurm.conf"]
    assert "Count=2" in texts["slurm"]["gres.conf"]
    assert 'speed="1000000000f"' in texts["simgrid"]["platform.xml"]
