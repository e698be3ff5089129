"""How long building takes: `benchmarks/fabric.py` measures it, here it must only keep its bars."""

from __future__ import annotations

import time
from dataclasses import fields

import numpy as np
import pytest

from railwright import fabric
from railwright.catalog import load_catalog
from railwright.spec.study import Cluster, ComputeNetwork

CATALOG = load_catalog()


@pytest.mark.alone
@pytest.mark.parametrize("family", ["rail-optimised", "fat-tree", "dual-plane"])
@pytest.mark.parametrize(("servers", "switch", "seconds"), [(1024, "qm9700", 0.5), (16384, "th5-400g", 3.0)])
def test_building_keeps_its_bars(family, servers, switch, seconds):
    """1,024 servers in half a second; 131,072 GPUs in three tiers in 3 s and a gigabyte."""
    network = ComputeNetwork(family=family, switch=switch)
    cluster = Cluster(servers=servers, server="dgx-h100", compute=network)
    fabric.build(cluster.model_copy(update={"servers": 3}), CATALOG)  # Imports are not building.
    begin = time.perf_counter()
    f = fabric.build(cluster, CATALOG)
    assert time.perf_counter() - begin <= seconds
    assert f.num_gpus == 8 * servers
    arrays = [v for field in fields(f) if isinstance(v := getattr(f, field.name), np.ndarray)]
    assert sum(a.nbytes for a in arrays) <= 1e9
