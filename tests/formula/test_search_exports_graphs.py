"""CUDA graphs of a whole step in exports: which experts one can hold."""

from __future__ import annotations

from typing import Any

import pytest

from export_cases import exported
from railwright.model.shape.architecture import Transformer
from railwright.search.training.frameworks import FRAMEWORKS
from railwright.training.checks.doubts import doubts
from training_cases import DENSE, MOE, changed, job

REFUSED = "CUDA graphs of the step beside experts without fixed capacities (expert_capacity)"


@pytest.mark.parametrize(
    ("arch", "asked", "written", "told"),
    [
        (DENSE, {}, True, ""),
        (MOE, {"expert_capacity": 1.0}, True, ""),
        (MOE, {}, False, "# CUDA graphs of step: refused, beside experts without fixed capacities"),
        (
            MOE,
            {"expert_nodes": 1},
            True,
            "# CUDA graphs of the step hold dropless experts with HybridEP alone",
        ),
    ],
    ids=["dense", "capacity", "dropless", "one copy"],
)
def test_a_graph_of_the_step_holds_no_dispatch_that_tokens_decide(
    arch: Transformer, asked: dict[str, Any], written: bool, told: str
) -> None:
    """Megatron-LM, docs/user-guide/features/cuda_graph.md: "MoE expert dispatch involves dynamic shapes and
    cannot be captured", but for fixed capacities and HybridEP's paged stash."""
    one = changed(job(expert=4 if arch.is_moe else 1), cuda_graphs=("step",), **asked)
    text = exported((arch, one), "megatron")
    assert ("--cuda-graph-impl full_iteration" in text) == written
    assert ("--no-check-for-nan-in-loss-and-grad" in text) == written
    assert told in text
    assert ("cuda_graph_impl='full_iteration'" in exported((arch, one), "nemo")) == written
    assert FRAMEWORKS["megatron"].lacks(one, arch, 8) == ([] if written else [REFUSED])
    warned = [line for line in doubts(one, arch, 8) if line.startswith("cuda_graphs is predicted as asked")]
    assert len(warned) == (not written)
