"""What a job says for other layouts of its space is no mistake of one that a search chose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from railwright.model.shape.architecture import Transformer
from railwright.search import Space, search
from railwright.search.space.idle import without_idle
from railwright.spec.training import Overlap
from railwright.training import simulate
from training_cases import DENSE, MOE, changed, job, machine

SHARED = replace(MOE, shared_experts=1, shared_ffn=512)
ONE = {"tensor": (1,), "pipeline": (1,), "context": (1,), "micro_batch": (1,), "recompute": ("none",)}
IDLE: list[tuple[Transformer, dict[str, Any], dict[str, Any]]] = [
    # model, layout and overlap, fields of the job, that do nothing on one stage without any cut
    (DENSE, {"recompute_modules": ("layernorm",)}, {}),
    (DENSE, {"ends_as_layers": "both"}, {}),
    (DENSE, {"context_kind": "all-gather"}, {}),
    (DENSE, {"sequence_parallel": True}, {}),
    (DENSE, {"reshard": False, "reduce_each": False}, {}),
    (DENSE, {"overlap": Overlap(tp=True, prefetch=2)}, {}),
    (DENSE, {"zero": 0, "overlap": Overlap(gather=False)}, {}),
    (SHARED, {"overlap": Overlap(ep=True, shared=True)}, {}),
    (MOE, {}, {"expert_imbalance": 1.5, "expert_nodes": 1}),
    (MOE, {"dtype": "fp8_block"}, {"dispatch_dtype": "fp8"}),
]


@pytest.mark.parametrize(("arch", "layout", "fields"), IDLE, ids=lambda value: "")
def test_what_a_layout_gives_nothing_to_do_is_not_warned_of_and_changes_nothing(
    arch: Transformer, layout: dict[str, Any], fields: dict[str, Any]
) -> None:
    written = changed(job(**{"zero": 1, "batch": 64, **layout}), **fields)
    told = simulate(written, arch, machine(1), must_fit=False)
    assert any("nothing" in warning for warning in told.warnings)
    quiet = simulate(without_idle(written, arch), arch, machine(1), must_fit=False)
    assert not any("nothing" in warning for warning in quiet.warnings)
    assert (quiet.step_time, quiet.memory, quiet.shares) == (told.step_time, told.memory, told.shares)


def test_what_does_nothing_under_any_layout_is_still_warned_of() -> None:
    dense = without_idle(changed(job(), expert_imbalance=1.5), DENSE)
    assert any("expert_imbalance" in warning for warning in simulate(dense, DENSE, machine(1)).warnings)


@pytest.mark.parametrize("layout", [{"recompute_modules": ("layernorm",)}, {"ends_as_layers": "both"}])
def test_a_search_keeps_what_its_best_layout_does_not_use_and_is_silent_of_it(layout: dict[str, Any]) -> None:
    asked = job(batch=64, pipeline=2, recompute="selective", **layout)
    best = search(asked, DENSE, machine(1), Space(ONE), top=1, steps=0).best[0]
    assert not any("does nothing" in warning for warning in best.step.warnings)
    (name,) = layout
    assert getattr(best.job.layout, name) == layout[name]
