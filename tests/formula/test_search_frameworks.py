"""What frameworks run of a layout: in words, as masks over blocks, and as the limit of a search."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from railwright.errors import PlanError, RailwrightError
from railwright.model.shape.architecture import LinearMixer, Transformer
from railwright.search import Space, search
from railwright.search.bounds.blocks import blocks
from railwright.search.bounds.pricing import PASSING
from railwright.search.exports.dispatcher import Hosts
from railwright.search.space.axes import Block, apply
from railwright.search.training.export import FORMS
from railwright.search.training.frameworks import CHOICES, FRAMEWORKS, framework_named, runs
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.layout.sizes import data_parallel
from search_cases import LATENT_EXPERTS, lacks
from training_cases import DENSE, MOE, changed, job, machine

WINDOWS = replace(DENSE, sliding_window=512, full_every=6)
SINKS = replace(MOE, sliding_window=512, full_every=2, attention_sinks=True)
LINEAR = replace(
    DENSE,
    pattern=("linear dense",) * 8,
    linear=LinearMixer("lightning", heads=16, value_dim=128, key_heads=16, key_dim=128, conv=0),
)

RING = "a ring of keys and values that is not hidden"


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
            "expert all-to-alls hidden where experts are computed again",
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
        ({"pipeline": 4, "overlap": Overlap(pp=False)}, "", "pipeline sends that are not hidden"),
        ({"context": 2, "overlap": Overlap(cp=False)}, RING, RING),
        ({"context": 2, "context_kind": "all-gather", "overlap": Overlap(cp=False)}, "", ""),
        (
            {"offload": ("activations",), "pipeline": 2},
            "activations offloaded beside a pipeline or recomputation",
            "activations offloaded",
        ),
    ],
    ids=str,
)
def test_what_each_framework_lacks(layout: dict[str, Any], megatron: str, torchtitan: str) -> None:
    arch = MOE if "expert" in layout else DENSE
    assert lacks("megatron", arch, **layout) == megatron
    assert lacks("torchtitan", arch, **layout) == torchtitan


SP = {"tensor": 2, "sequence_parallel": True}


@pytest.mark.parametrize(
    ("modules", "missing"),
    [(("ops",), ""), (("core_attn",), "recomputation of core_attn"), (("mlp", "layernorm"), "recomputation")],
)
def test_torchtitan_recomputes_by_operators_only(modules: tuple[str, ...], missing: str) -> None:
    """distributed/activation_checkpoint.py: 'op', or all of every n-th layer."""
    found = lacks("torchtitan", DENSE, zero=3, recompute="selective", recompute_modules=modules)
    assert found.startswith(missing)
    assert bool(found) == bool(missing)


@pytest.mark.parametrize(("data", "missing"), [(2, ""), (1, "weights offloaded that are not sharded")])
def test_torchtitan_offloads_weights_that_are_sharded(data: int, missing: str) -> None:
    """models/llama3/infra/parallelize.py: one rank has no FSDP, so no policy fetches its weights."""
    assert lacks("torchtitan", DENSE, data, zero=3, offload=("weights",)) == missing


ACCUMULATED = "gradients of parameters that are not sharded reduced once for several microbatches"
STATES = "zero 1 and 2, which shard gradients or optimizer states but not parameters"
UNCUT = "experts that are not cut beside tensor parallelism without expert parallelism"
WHOLE = "parameters that are not sharded beside other than data parallelism"
STAGED = "experts in fp8 beside a pipeline or context parallelism"
BY_TENSOR = "fp8 with a scale per tensor in latent attention beside tensor parallelism"


@pytest.mark.parametrize(
    ("arch", "data", "layout", "missing"),
    [
        (DENSE, 8, {"zero": 0, "batch": 8}, ""),
        # DistributedDataParallel reduces after every microbatch, we predict once
        (DENSE, 8, {"zero": 0}, ACCUMULATED),
        (DENSE, 8, {"zero": 0, "micro_batch": 8}, ""),
        (DENSE, 8, {"zero": 1}, STATES),
        (DENSE, 8, {"zero": 2}, STATES),
        (
            DENSE,
            8,
            {"pipeline": 2, "reduce_each": True},
            "gradients of a pipeline reduced after every microbatch",
        ),
        (
            DENSE,
            8,
            {"reduce_each": False},
            "sharded gradients reduced once for several microbatches without a pipeline",
        ),
        (DENSE, 8, {"reshard": False}, ""),
        (DENSE, 8, {"shard": 4}, ""),
        (DENSE, 8, {"shard": 2, "context": 4}, "parameters sharded over some context ranks of a sequence"),
        (DENSE, 8, {"shard": 8, "context": 4}, ""),
        (DENSE, 8, {"zero": 0, **SP}, WHOLE),
        (DENSE, 8, {"zero": 0, "pipeline": 2}, WHOLE),
        (DENSE, 8, {"zero": 0, "context": 2}, WHOLE),
        (MOE, 8, {"zero": 0, "expert": 4}, WHOLE),
        (DENSE, 1, SP, WHOLE),  # nothing to shard over, and 16 bits are FSDP's
        (DENSE, 8, {**SP, "overlap": Overlap(tp=True)}, ""),
        (MOE, 8, {"expert": 4, "dtype": "fp8"}, ""),
        (MOE, 8, {"pipeline": 2, "dtype": "fp8"}, STAGED),
        (MOE, 8, {"context": 2, "context_kind": "all-gather", "dtype": "fp8_rowwise"}, STAGED),
        (DENSE, 8, {"pipeline": 2, "dtype": "fp8"}, ""),
        (MOE, 8, {"pipeline": 2, "dtype": "mxfp8"}, ""),
        (DENSE, 8, {**SP, "dtype": "mxfp8"}, "compiled mxfp8 beside tensor parallelism"),
        (LATENT_EXPERTS, 8, {**SP, "dtype": "fp8"}, BY_TENSOR),
        (LATENT_EXPERTS, 8, {**SP, "dtype": "fp8_rowwise"}, ""),
        (MOE, 8, {"pipeline": 2, "schedule": "dualpipe-v", "expert": 4}, ""),
        (
            MOE,
            8,
            {"pipeline": 2, "schedule": "dualpipe-v", "expert": 4, "recompute": "full"},
            "DualPipeV with expert parallelism and recomputation",
        ),
        (SINKS, 8, {"context": 2}, "context parallelism beside attention sinks"),
        (MOE, 8, {**SP, "expert_tensor": 1}, UNCUT),
        (MOE, 8, {**SP, "expert_tensor": 1, "expert": 4}, ""),
        (MOE, 8, {**SP, "expert_tensor": 2}, ""),
        (DENSE, 8, {"expert_tensor": 1, **SP}, ""),
        # two microbatches
        (DENSE, 8, {"pipeline": 4, "batch": 16}, "1F1B with fewer microbatches than stages"),
        (DENSE, 8, {"pipeline": 4, "batch": 16, "schedule": "gpipe"}, ""),
        (DENSE, 8, {"pipeline": 4, "batch": 16, "schedule": "auto", "virtual_pipeline": 2}, ""),
        (DENSE, 8, {"pipeline": 2, "batch": 16}, ""),
    ],
    ids=str,
)
def test_what_torchtitan_refuses(arch: Transformer, data: int, layout: dict[str, Any], missing: str) -> None:
    """Its parallelize functions, converters and DualPipeV at the commit that the export names."""
    assert lacks("torchtitan", arch, data, **layout) == missing


@pytest.mark.parametrize("kind", ["ring", "all-gather", "all-to-all"])
def test_windows_and_sinks_over_context_ranks_as_transformer_engine_has_them(kind: str) -> None:
    """Sliding windows: heads swapped or keys gathered; a learned sink: heads swapped."""
    windows, sinks = (lacks("megatron", arch, context=2, context_kind=kind) for arch in (WINDOWS, SINKS))
    ring = "context parallelism by rings with sliding windows"
    assert windows == (ring if kind == "ring" else "")
    heads = "context parallelism with attention sinks other than over heads"
    assert sinks == ("" if kind == "all-to-all" else heads)
    assert not lacks("megatron", DENSE, context=2, context_kind=kind)
    chunked = replace(WINDOWS, window_chunked=True)
    assert not lacks("megatron", chunked, context=2, context_kind=kind)


@pytest.mark.parametrize("form", ["megatron", "torchtitan"])
def test_an_export_says_in_a_comment_what_is_lacking(form: str) -> None:
    overlaps = [Overlap(), Overlap(ep=True, tp=True), Overlap(dp=False)]
    names = ["auto", "gpipe", "zb-h1", "zb-v", "dualpipe", "dualpipe-v"]
    told = 0
    for arch, name, overlap, tensor in product((DENSE, MOE), names, overlaps, (1, 2)):
        expert = 4 if arch is MOE else 1
        one = job(batch=64, schedule=name, pipeline=2, tensor=tensor, expert=expert, overlap=overlap)
        lines = FORMS[form][1](one, arch, Hosts(4))  # type: ignore[arg-type]
        comments = [line for line in lines if line.startswith("#")]
        missing = FRAMEWORKS[form].lacks(one, arch, 4)
        assert len(comments) >= bool(missing), missing
        told += bool(missing)
    assert told > 10


SHARED = {"shard": (None, 2, 8), "reshard": (True, False), "reduce_each": (True, False), "context": (1, 4)}


@cache
def _blocks(kind: str) -> tuple[TrainingJob, list[Block]]:
    """A job and the blocks of its space, which no framework changes."""
    axes = {"offload": ((), ("activations",))}
    base = job(batch=64, sequence=8192 if kind == "groups" else 1024)
    base = changed(base, expert_nodes=2) if kind == "one copy" else base
    space = Space(axes | SHARED if kind == "groups" else axes, fsdp=kind == "fsdp")
    return base, blocks(space, base, MOE, machine(2).network.fabric)[0]


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("kind", ["all", "groups", "one copy", "fsdp"])
def test_masks_of_blocks_are_what_is_lacking_of_each_layout(name: str, kind: str) -> None:
    rng = random.Random(name)
    framework, (base, found) = framework_named(name), _blocks(kind)
    for block in rng.sample(found, 60):
        timed, kept = runs(framework, block, base, MOE)
        for _ in range(20):
            index = tuple(rng.randrange(n) for n in block.shape)
            x = int(np.ravel_multi_index(index[: len(PASSING)], block.shape[: len(PASSING)]))
            zero, offload, *hidden = index[len(PASSING) :]
            able = not framework.lacks(apply(base, block.at(index)), MOE, block.data)
            assert able == (timed[x, zero, *hidden] and kept[x, zero, offload]), block.at(index)


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
    base, room = job(batch=32), machine(1)
    result = search(base, MOE, room, space, top=3, steps=0, framework=name)
    base, space = FRAMEWORKS[name].job(base), FRAMEWORKS[name].space(space)
    times = []
    for block in blocks(space, base, MOE, room.network.fabric)[0]:
        for index in np.ndindex(*block.shape):
            if not FRAMEWORKS[name].lacks(apply(base, block.at(index)), MOE, block.data):
                times.append(_time(apply(base, block.at(index))))
    assert result.best[0].time == pytest.approx(min(times), rel=1e-9)
    for one in (*result.best, *result.front):
        data = data_parallel(one.job, machine(1).network.fabric)
        assert not FRAMEWORKS[name].lacks(one.job, MOE, data)


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
    space = Space({"zero": (3,), "tensor": (1,), "pipeline": (1,), "context": (1,), "recompute": ("none",)})
    torch = job(batch=64).model_copy(update={"software": "fsdp-2024"})
    words = search(torch, DENSE, machine(1), space, top=1, steps=0).words
    assert not any("does not run" in word for word in words)


@pytest.mark.parametrize(
    ("arch", "asked", "told"),
    [
        (LINEAR, {}, "Megatron-LM runs no layout of this job, for what it lacks: layers with lightning."),
        (
            DENSE,
            {"software": "fsdp-2025", "optimizer": "muon"},
            "torchtitan 0.2 runs no layout of this job, for what it lacks: optimizer muon.",
        ),
    ],
    ids=["model", "optimizer"],
)
def test_a_job_of_which_a_framework_runs_nothing_is_told_so(
    arch: Transformer, asked: dict[str, Any], told: str
) -> None:
    """`--framework` would find nothing, however a layout is chosen: the reason is the model or the job."""
    space = Space({"zero": (1,), "tensor": (1,), "pipeline": (1,), "context": (1,), "recompute": ("none",)})
    words = search(changed(job(batch=64), **asked), arch, machine(1), space, top=1, steps=0).words
    assert words[-1] == told


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_plain_job_is_run_in_some_layout(name: str) -> None:
    for arch in (DENSE, MOE, LATENT_EXPERTS, WINDOWS, SINKS):
        assert FRAMEWORKS[name].lacks_always(job(batch=64, pipeline=2, schedule="gpipe"), arch) == []


@pytest.mark.parametrize(("dispatch", "told"), [("fp8", True), ("bf16", False)])
def test_what_keeps_a_framework_from_spreading_experts_is_told(dispatch, told) -> None:
    """Megatron-LM sends tokens in 16 bits: of a job that sends 8 it runs only layouts without an exchange."""
    space = Space({"pipeline": (1,), "context": (1,), "tensor": (1,), "expert": (1, 2), "zero": (1,)})
    asked = job(batch=64, dtype="fp8_block").model_copy(update={"dispatch_dtype": dispatch})
    words = search(asked, MOE, machine(1), space, top=1, steps=0, framework="megatron").words
    wanted = (
        "Megatron-LM runs no layout of this job with expert above 1, for what it lacks: tokens dispatched in "
        "8 bits. Of a job that does without, the search tries them too."
    )
    assert (wanted in words) == told
    assert any("with expert above 1" in text for text in words) == told


def test_a_space_of_which_a_framework_runs_nothing_is_refused() -> None:
    space = Space({"pipeline": (2,), "schedule": ("zb-v",), "virtual_pipeline": (1,)})
    with pytest.raises(
        PlanError, match=r"Megatron-LM runs none of the [\d,]+ layouts of the space; it lacks schedule"
    ):
        search(job(batch=64), DENSE, machine(1), space, framework="megatron")
    with pytest.raises(RailwrightError, match=r"no framework 'megatorn'; did you mean 'megatron'"):
        search(job(batch=64), DENSE, machine(1), space, framework="megatorn")


def test_masks_look_only_at_the_axes_they_name() -> None:
    """Of numbers whether they are 1, 2 or more: what is kept for one structure serves all alike."""
    jobs = [job(batch=64, pipeline=n, tensor=n, context=n) for n in (3, 4)]
    for framework in FRAMEWORKS.values():
        first, second = (framework.lacks(one, MOE, 8) for one in jobs)
        assert first == second
    passing = {"sequence_parallel", "recompute", "overlap_tp", "overlap_ep", "overlap_cp"}
    assert set(CHOICES) & set(PASSING) == passing
