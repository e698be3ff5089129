"""Layouts that differ in placement alone share nothing of their passes where these cross other links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import load_catalog
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import NcclSettings
from railwright.search import Space, search
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.spec.training import Overlap
from training_cases import DENSE, job


@pytest.mark.parametrize("placements", [("packed", "spread"), ("spread", "packed")])
def test_context_groups_are_priced_where_they_are_placed(placements: tuple[str, ...]) -> None:
    """Context groups of two servers, packed under one leaf of each rail or spread over thin spines."""
    network = ComputeNetwork(
        family="rail-optimised", switch="qm9700", servers_per_group=2, oversubscription=8
    )
    cluster = Cluster(servers=4, server="dgx-h100", compute=network)
    machine = Machine.of(cluster, load_catalog(), NcclSettings())
    wide = replace(DENSE, layers=2, hidden=4096, heads=32, kv_heads=32, head_dim=128, ffn=14336)
    base = job(batch=8, sequence=32768, context=16, context_kind="all-gather", overlap=Overlap(cp=False))
    axes = {
        "tensor": (1,), "context": (16,), "context_kind": ("all-gather",), "pipeline": (1,),
        "micro_batch": (1,), "sequence_parallel": (False,), "recompute": ("none",), "zero": (1,),
        "overlap_tp": (False,), "overlap_cp": (False,), "overlap_pp": (True,), "overlap_dp": (False,),
    }  # fmt: skip
    alone = {}
    for one in placements:
        (alone[one],) = search(base, wide, machine, Space({**axes, "placement": (one,)})).best
    assert alone["spread"].step.step_time > 1.1 * alone["packed"].step.step_time
    for found in search(base, wide, machine, Space({**axes, "placement": placements})).best:
        assert found.bound <= found.step.step_time
        assert found.bound == pytest.approx(alone[found.setting["placement"]].bound, rel=1e-6)
