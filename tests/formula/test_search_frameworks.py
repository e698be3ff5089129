"""What frameworks run of a layout: in words, as masks over blocks, and as the limit of a search."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

from railwright.errors import PlanError, RailwrightError
from railwright.search import Space, search
from railwright.search.export import FORMS
from railwright.search.frameworks import CHOICES, FRAMEWORKS, framework_named, runs
from railwright.search.pricing import PASSING
from railwright.search.space import apply, blocks, setting_of
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from training_cases import DENSE, MOE, job, machine

MODULES = job().layout.recompute_modules


def lacks(name: str, **layout: Any) -> list[str]:
    return FRAMEWORKS[name].lacks(setting_of(job(batch=64, **layout)), MODULES)


@pytest.mark.parametrize(
    ("layout", "megatron", "torchtitan"),
    [
        ({"pipeline": 4}, "", ""),
        ({"pipeline": 4, "virtual_pipeline": 2}, "", ""),
        ({"pipeline": 4, "schedule": "gpipe"}, "schedule gpipe", ""),
        ({"pipeline": 4, "schedule": "zb-v"}, "schedule zb-v", ""),
        ({"pipeline": 4, "schedule": "zb-h1"}, "schedule zb-h1", "schedule zb-h1"),
        (
            {"pipeline": 4, "schedule": "zb-h1", "virtual_pipeline": 2},
            "schedule zb-h1 with virtual stages",
            "",
        ),
        ({"pipeline": 4, "schedule": "dualpipe"}, "schedule dualpipe", "schedule dualpipe"),
        ({"pipeline": 4, "schedule": "dualpipe-v"}, "schedule dualpipe-v", ""),
        ({"expert": 4, "overlap": Overlap(ep=True)}, "", "expert all-to-alls hidden"),
        (
            {"expert": 4, "pipeline": 2, "overlap": Overlap(ep=True)},
            "expert all-to-alls hidden in a pipeline without virtual stages",
            "expert all-to-alls hidden",
        ),
        (
            {"expert": 4, "zero": 3, "recompute": "full", "overlap": Overlap(ep=True)},
            "expert all-to-alls hidden beside sharded parameters; expert all-to-alls hidden where experts "
            "are computed again",
            "expert all-to-alls hidden",
        ),
        ({"tensor": 2, "sequence_parallel": True, "overlap": Overlap(tp=True)}, "", ""),
        (
            {"tensor": 2, "overlap": Overlap(tp=True)},
            "tensor parallelism hidden without sequence parallelism",
            "tensor parallelism without sequence parallelism",
        ),
        ({"context": 2, "context_kind": "all-to-all"}, "", "context parallelism over heads"),
        ({"overlap": Overlap(dp=False)}, "", "data parallelism that is not hidden"),
        (
            {"offload": ("activations",), "pipeline": 2},
            "activations offloaded beside a pipeline or recomputation",
            "activations offloaded",
        ),
    ],
    ids=str,
)
def test_what_each_framework_lacks(layout: dict[str, Any], megatron: str, torchtitan: str) -> None:
    assert "; ".join(lacks("megatron", **layout)) == megatron
    assert "; ".join(lacks("torchtitan", **layout)) == torchtitan


@pytest.mark.parametrize("form", ["megatron", "torchtitan"])
def test_an_export_says_in_a_comment_what_is_lacking(form: str) -> None:
    overlaps = [Overlap(), Overlap(ep=True, tp=True), Overlap(dp=False)]
    names = ["auto", "gpipe", "zb-h1", "zb-v", "dualpipe", "dualpipe-v"]
    told = 0
    for arch, name, overlap, tensor in product((DENSE, MOE), names, overlaps, (1, 2)):
        expert = 4 if arch is MOE else 1
        one = job(batch=64, schedule=name, pipeline=2, tensor=tensor, expert=expert, overlap=overlap)
        lines = FORMS[form][1](one, arch, 4)  # type: ignore[arg-type]
        comments = [line for line in lines if line.startswith("#")]
        missing = FRAMEWORKS[form].lacks(setting_of(one), MODULES)
        assert len(comments) >= bool(missing), missing
        told += bool(missing)
    assert told > 10


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_masks_of_blocks_are_what_is_lacking_of_each_layout(name: str) -> None:
    rng = random.Random(name)
    framework, axes = framework_named(name), {"offload": ((), ("activations",))}
    found, _ = blocks(Space(axes), job(batch=64), MOE, machine(2).network.fabric)
    for block in rng.sample(found, 60):
        timed, kept = runs(framework, block, MODULES)
        for _ in range(20):
            index = tuple(rng.randrange(n) for n in block.shape)
            x = int(np.ravel_multi_index(index[: len(PASSING)], block.shape[: len(PASSING)]))
            zero, offload, hidden, _ = index[len(PASSING) :]
            able = not framework.lacks(block.at(index), MODULES)
            assert able == (timed[x, zero, hidden] and kept[x, zero, offload]), block.at(index)


@pytest.mark.parametrize("name", ["megatron", "torchtitan"])
def test_a_search_finds_the_best_that_a_framework_runs(name: str) -> None:
    space = Space(
        {
            "tensor": (1, 2),
            "pipeline": (1, 2),
            "virtual_pipeline": (1, 2),
            "expert": (4,),
            "expert_tensor": (None,),
            "placement": ("packed",),
            "micro_batch": (1,),
            "recompute": ("none",),
            "zero": (1, 3),
            "overlap_pp": (True,),
            "overlap_dp": (True,),
        }
    )
    base, one = job(batch=32), machine(1)
    result = search(base, MOE, one, space, top=3, steps=0, framework=name)
    times = []
    for block in blocks(space, base, MOE, one.network.fabric)[0]:
        for index in np.ndindex(*block.shape):
            if not FRAMEWORKS[name].lacks(block.at(index), MODULES):
                times.append(_time(apply(base, block.at(index))))
    assert result.best[0].time == pytest.approx(min(times), rel=1e-9)
    assert not any(FRAMEWORKS[name].lacks(c.setting, MODULES) for c in (*result.best, *result.front))


def _time(one: TrainingJob) -> float:
    try:
        return simulate(one, MOE, machine(1), most_events=0).step_time
    except PlanError:
        return float("inf")


def test_a_best_layout_that_the_jobs_own_software_does_not_run_is_told() -> None:
    space = Space({"pipeline": (2,), "virtual_pipeline": (1,), "schedule": ("zb-v",), "tensor": (1,)})
    told = search(job(batch=64), DENSE, machine(1), space, top=1, steps=0).words[-1]
    assert told == (
        "Megatron-LM does not run the best one (schedule zb-v); of what it runs `--framework megatron` finds "
        "the best."
    )
    torch = job(batch=64).model_copy(update={"software": "fsdp-2024"})
    assert "does not run" not in search(torch, DENSE, machine(1), space, top=1, steps=0).words[-1]


def test_a_space_of_which_a_framework_runs_nothing_is_refused() -> None:
    space = Space({"pipeline": (2,), "schedule": ("zb-v",), "virtual_pipeline": (1,)})
    with pytest.raises(PlanError, match=r"Megatron-LM runs none of the [\d,]+ layouts of the space; give it"):
        search(job(batch=64), DENSE, machine(1), space, framework="megatron")
    with pytest.raises(RailwrightError, match=r"no framework 'megatorn'; did you mean 'megatron'"):
        search(job(batch=64), DENSE, machine(1), space, framework="megatorn")


def test_masks_look_only_at_the_axes_they_name() -> None:
    """Of numbers whether they are above 1: what is kept for one structure serves all alike."""
    settings = [setting_of(job(batch=64, pipeline=p, tensor=t)) for p, t in ((2, 2), (4, 4))]
    for framework in FRAMEWORKS.values():
        first, second = (framework.lacks(s, MODULES) for s in settings)
        assert first == second
    assert set(CHOICES) & set(PASSING) == {"sequence_parallel", "recompute", "overlap_tp", "overlap_ep"}
