"""What the allocator holds for a job: its tensors are those that `memory` adds up, and none leaks."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from statistics import NormalDist

import pytest

from railwright.model.architecture import Transformer
from railwright.model.pattern import Layer
from railwright.search import Space, search
from railwright.search.allocator import Allocations
from railwright.search.dispatcher import Hosts
from railwright.search.explain import explain
from railwright.search.export import export
from railwright.search.result import Candidate
from railwright.search.space import setting_of
from railwright.spec.lora import Lora, LoraTarget
from railwright.spec.training import Overlap, TrainingJob
from railwright.study.evaluate import with_reserved
from railwright.study.result import JobResult
from railwright.training import simulate
from railwright.training.allocator import MIB, Allocator
from railwright.training.cached import (
    Reserved,
    _plans,
    cached,
    crowded,
    is_held,
    relies_on_growth,
    reserved,
)
from railwright.training.kept import layer_kept
from railwright.training.memory import GIB, SYSTEM, peak_memory
from railwright.training.replay import Replay
from railwright.training.replay_deepspeed import DeepSpeedReplay, _reached
from railwright.training.schedule import order_name, route_of, schedule
from railwright.training.stages import stage_shapes
from training_cases import DENSE, MOE, job, machine, priced

FABRIC = machine(4).network.fabric
CAPACITY = 80e9
DENSE_MODEL = "qwen3-8b"
"""A bundled model, where a study names one."""


def wide(**layout: object) -> TrainingJob:
    """Sequences long enough for activations to count."""
    return job(gpus=32, sequence=4096, batch=128, micro_batch=2, **layout)


LAYOUTS: list[tuple[Transformer, dict[str, object]]] = [
    (DENSE, {}),
    (DENSE, {"zero": 1}),
    (DENSE, {"zero": 3}),
    (DENSE, {"tensor": 4, "sequence_parallel": True}),
    (DENSE, {"tensor": 4, "zero": 1, "recompute": "full"}),
    (DENSE, {"pipeline": 4, "zero": 1}),
    (DENSE, {"pipeline": 4, "virtual_pipeline": 2}),
    (DENSE, {"pipeline": 4, "schedule": "zb-h1"}),
    (DENSE, {"pipeline": 4, "schedule": "zb-v"}),
    (DENSE, {"pipeline": 4, "schedule": "gpipe"}),
    (DENSE, {"pipeline": 4, "schedule": "gpipe", "recompute": "full"}),
    (DENSE, {"schedule": "gpipe", "recompute": "full"}),
    (DENSE, {"context": 2, "context_kind": "all-to-all"}),
    (DENSE, {"recompute": "selective", "recompute_modules": ("mlp",)}),
    (MOE, {"expert": 8, "zero": 1}),
    (MOE, {"expert": 4, "pipeline": 2, "recompute": "selective", "recompute_modules": ("moe_act",)}),
]
CASES = [(era, *one) for one in LAYOUTS for era in ("megatron-2025", "megatron-2022", "fsdp-2024")]
CASES += [
    ("megatron-2025", MOE, {"pipeline": 4, "schedule": name, "expert": 4})
    for name in ("dualpipe", "dualpipe-v")
]
CASES += [
    ("megatron-2025-unfused", arch, {"recompute": again, "pipeline": 2, **some})
    for arch, some in ((DENSE, {}), (MOE, {"expert": 8}))
    for again in ("none", "full")
]
CASES += [
    ("megatron-2025", DENSE, {"recompute": again, "pipeline": stages, "offload": ("activations",), **some})
    for again in ("none", "full")
    for stages in (1, 4)
    for some in ({}, {"offload_layers": 3})
]
# a forward and a backward pass together, each with a layer on its way
CASES += [
    (
        "megatron-2025",
        MOE,
        {"pipeline": 2, "schedule": "dualpipe-v", "expert": 4, "offload": ("activations",)},
    )
]


@pytest.mark.parametrize(
    ("software", "arch", "layout"),
    CASES,
    ids=lambda value: value.name if isinstance(value, Transformer) else str(value),
)
def test_tensors_at_their_most_are_what_memory_adds_up(
    software: str, arch: Transformer, layout: dict[str, object]
) -> None:
    """Two countings that share sizes only: sums of parts at four moments, and every tensor in its order."""
    wanted = wide(**layout).model_copy(update={"software": software})
    total = peak_memory(wanted, arch, FABRIC, CAPACITY)
    for stage in total.stages:
        found = cached(wanted, arch, FABRIC, stage.stage)
        assert found is not None
        assert found.allocated == pytest.approx(stage.total - stage.parts[SYSTEM], rel=0.02)
        assert found.allocated <= found.reserved <= 2 * found.allocated


@pytest.mark.parametrize("targets", [("qkv",), ("attention output",), ("mlp up", "mlp down")])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(("arch", "near"), [(DENSE, 0.002), (MOE, 0.03)])
def test_inputs_of_frozen_products_are_neither_kept_nor_computed_again(
    targets: tuple[LoraTarget, ...], recompute: str, arch: Transformer, near: float
) -> None:
    # without a weight gradient nothing frees the second product's input beside the gradients around it
    wanted = wide(pipeline=2, recompute=recompute, expert=4 if arch.is_moe else 1)
    for dtype in ("bf16", "mxfp8"):
        one = wanted.model_copy(update={"lora": Lora(rank=8, targets=targets), "dtype": dtype})
        total = peak_memory(one, arch, FABRIC, CAPACITY).stages[0]
        found = cached(one, arch, FABRIC, 0)
        assert found is not None
        assert found.allocated == pytest.approx(total.total - total.parts[SYSTEM], rel=near)


def test_frozen_weights_have_no_copy() -> None:
    """Only weights that train lie in a distributed optimizer's buffer."""
    wanted = wide(zero=1).model_copy(update={"lora": Lora(rank=8)})
    total = peak_memory(wanted, DENSE, FABRIC, CAPACITY)
    found = cached(wanted, DENSE, FABRIC, 0)
    assert found is not None
    assert found.allocated == pytest.approx(total.total - total.parts[SYSTEM], rel=0.03)
    replay = Replay(
        wanted,
        DENSE,
        stage_shapes(DENSE, wanted.layout, wanted.lora)[0],
        32,
        {("dense", True): _plans(wanted, DENSE, "dense")},
        Allocator(),
    )
    replay.start()
    weights = replay.states["weights"]
    assert weights < replay.memory.most_allocated < 1.2 * weights


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("pipeline", [1, 4])
@pytest.mark.parametrize("software", ["megatron-2025", "megatron-2021"])
def test_a_step_leaves_nothing_behind_but_the_optimizers_moments(
    software: str, pipeline: int, dtype: str
) -> None:
    wanted = wide(pipeline=pipeline, tensor=2, zero=1).model_copy(
        update={"software": software, "dtype": dtype}
    )
    layout = wanted.layout
    order = schedule(pipeline, route_of(layout).chunks, 12, order_name(wanted))[0]
    shape = stage_shapes(DENSE, layout)[0]
    kind: Layer = "dense"
    replay = (DeepSpeedReplay if software == "megatron-2021" else Replay)(
        wanted, DENSE, shape, 4, {(kind, True): _plans(wanted, DENSE, kind)}, Allocator()
    )
    replay.start()
    held = []
    for step in range(3):
        for unit in order:
            replay.run(unit)
        assert not replay.flights
        replay.update(step)
        held.append(replay.memory.allocated)
    # a block keeps up to 1 MiB that it is not worth splitting off
    assert held == pytest.approx([held[0]] * 3, abs=len(replay.weights) * MIB)


@pytest.mark.parametrize("layers", [None, 6])
@pytest.mark.parametrize("again", ["none", "full"])
def test_passes_that_take_turns_have_a_layer_each_on_its_way(again: str, layers: int | None) -> None:
    wanted = wide(expert=4, offload=("activations",), offload_layers=layers, recompute=again)
    wanted = wanted.model_copy(update={"overlap": Overlap(ep=True)})
    total = peak_memory(wanted, MOE, FABRIC, CAPACITY)
    found = cached(wanted, MOE, FABRIC, 0)
    assert found is not None
    assert found.allocated == pytest.approx(total.total - total.parts[SYSTEM], rel=0.02)


def test_a_forward_pass_beside_a_backward_one_holds_one_more_layer() -> None:
    wanted = wide(expert=4)
    beside = wanted.model_copy(update={"overlap": Overlap(ep=True)})
    assert order_name(beside) == "paired"
    totals = [peak_memory(one, MOE, FABRIC, CAPACITY) for one in (wanted, beside)]
    for one, total in zip((wanted, beside), totals, strict=True):
        found = cached(one, MOE, FABRIC, 0)
        assert found is not None
        assert found.allocated == pytest.approx(total.total - total.parts[SYSTEM], rel=0.02)
    layer = layer_kept(wanted, MOE, "moe")
    assert 0 <= totals[1].total - totals[0].total <= layer


@pytest.mark.parametrize("hidden", [False, True])
def test_a_wide_embeddings_gradient_comes_beside_what_is_held_then(hidden: bool) -> None:
    arch = replace(MOE, vocab=2_000_000)
    wanted = wide(expert=8, pipeline=2, virtual_pipeline=2)
    wanted = wanted.model_copy(update={"overlap": Overlap(ep=hidden)})
    stage = peak_memory(wanted, arch, FABRIC, CAPACITY).stages[0]
    assert stage.moment == "embedding backward"
    found = cached(wanted, arch, FABRIC, 0)
    assert found is not None
    assert found.allocated == pytest.approx(stage.total - stage.parts[SYSTEM], rel=0.01)


def test_segments_that_grow_hold_less_in_holes() -> None:
    wanted = wide(zero=1)
    plain = cached(wanted, DENSE, FABRIC, 0, expandable=False)
    growing = cached(wanted, DENSE, FABRIC, 0, expandable=True)
    assert plain is not None
    assert growing is not None
    assert growing.reserved - growing.allocated < plain.reserved - plain.allocated


def test_jax_has_an_allocator_of_its_own() -> None:
    wanted = wide(zero=3).model_copy(update={"software": "xla-2025"})
    assert cached(wanted, DENSE, FABRIC, 0) is None
    assert reserved(wanted, DENSE, FABRIC, peak_memory(wanted, DENSE, FABRIC, CAPACITY)) is None


def test_the_fullest_gpu_and_a_warning_where_holes_do_not_fit() -> None:
    wanted = wide(pipeline=4, zero=1)
    memory = peak_memory(wanted, DENSE, FABRIC, CAPACITY)
    held = reserved(wanted, DENSE, FABRIC, memory)
    assert held is not None
    each = [cached(wanted, DENSE, FABRIC, stage) for stage in range(4)]
    assert held.reserved == max(one.reserved for one in each if one is not None)
    assert (held.retries, held.short) == (0, 0.0)
    assert crowded(held, CAPACITY) == ""
    # a GPU that has room for the tensors and not for all holes
    tight = held.reserved + held.system - held.holes / 2
    squeezed = reserved(wanted, DENSE, FABRIC, peak_memory(wanted, DENSE, FABRIC, tight))
    assert squeezed is not None
    assert squeezed.retries > 0
    told = crowded(squeezed, tight)
    assert f"wants {(held.reserved + held.system) / GIB:.1f} GiB of the {tight / GIB:.1f} GiB" in told
    assert ("expandable_segments:True" in told) == (squeezed.growing < squeezed.reserved)


def test_stages_that_hold_and_run_the_same_are_replayed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of GPipe's stages but the ends; 1F1B's hold one pass less each."""
    replayed = []

    def counted(*args: object, **options: object) -> object:
        replayed.append(args[3])
        return cached(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("railwright.training.cached.cached", counted)
    for schedule_, stages in (("gpipe", [7, 1, 0, 7]), ("1f1b", [7, 6, 5, 4, 3, 2, 1, 0, 0])):
        wanted = wide(pipeline=8, schedule=schedule_)
        replayed.clear()
        held = reserved(wanted, DENSE, FABRIC, peak_memory(wanted, DENSE, FABRIC, CAPACITY))
        assert replayed == stages
        each = [cached(wanted, DENSE, FABRIC, stage) for stage in range(8)]
        assert held is not None
        assert held.reserved == max(one.reserved for one in each if one is not None)


def test_what_is_missing_is_told() -> None:
    held = Reserved(3, int(80 * GIB), int(6 * GIB), int(75 * GIB), 3 * GIB, 4, 2 * GIB)
    assert crowded(held, 79 * GIB) == (
        "tensors fit, but PyTorch's allocator wants 83.0 GiB of the 79.0 GiB of a GPU of stage 3, 6.0 GiB of "
        "them for holes between tensors: 2.0 GiB are missing by this replay, which is good to some 5 %. With "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True it wants 78.0 GiB."
    )


def test_weights_that_reach_into_a_ranks_share() -> None:
    # 4 ranks of 25: the third has 50 to 75
    assert _reached([40.0, 20.0, 10.0, 30.0], 4) == [(20.0, 10.0), (10.0, 10.0), (30.0, 5.0)]
    assert _reached([60.0, 40.0], 1) == [(60.0, 60.0), (40.0, 40.0)]


def test_a_study_tells_what_the_allocator_holds_and_warns() -> None:
    wanted = wide(pipeline=4, zero=1)
    step = simulate(wanted, DENSE, machine(4), predict=priced(0.0))
    held = reserved(wanted, DENSE, FABRIC, step.memory)
    assert held is not None
    study = wanted.model_copy(update={"model": DENSE_MODEL})
    roomy = with_reserved(JobResult("case", step), study, machine(4))
    assert roomy.reserved is not None
    assert roomy.step is step
    tight = replace(step, memory=replace(step.memory, capacity=roomy.reserved.reserved + 1e9))
    crowd = with_reserved(JobResult("case", tight), study, machine(4))
    assert crowd.step is not None
    assert [w for w in crowd.step.warnings if w.startswith("tensors fit, but PyTorch's allocator wants")]
    nothing = JobResult("case", None, "no")
    assert with_reserved(nothing, study, machine(4)) is nothing


def test_a_search_says_what_the_allocator_holds_of_its_best_layouts() -> None:
    space = Space({"tensor": (1, 2), "pipeline": (1, 2), "recompute": ("none",), "placement": ("packed",)})
    wanted = job(gpus=8, sequence=4096, batch=64, micro_batch=2)
    found = search(wanted, DENSE, machine(1), space, top=2, steps=0)
    assert found.own is not None
    for one in (*found.best, *found.front, found.own):
        stage = one.step.memory.stage
        again = cached(one.job, DENSE, machine(1).network.fabric, stage)
        assert one.held is not None
        assert again is not None
        assert (one.held.stage, one.held.reserved) == (stage, again.reserved)
    best = found.best[0]
    assert "allocator" not in export(best, DENSE, Hosts(8), "megatron")
    assert not any("allocator" in sentence for sentence in found.words)


GROWS = Reserved(3, int(80 * GIB), int(6 * GIB), int(75 * GIB), 3 * GIB, 4, 2 * GIB)
"""83 GiB with segments of fixed sizes, of which two are missing of 79 GiB; 78 with segments that grow."""


def test_what_fits_with_segments_that_grow_relies_on_them() -> None:
    assert relies_on_growth(GROWS, 79 * GIB)
    assert is_held(GROWS, 79 * GIB)
    # one GiB less and neither kind of segments fits
    assert not relies_on_growth(GROWS, 77 * GIB)
    assert not is_held(GROWS, 77 * GIB)
    # unused segments that go back are enough
    assert is_held(replace(GROWS, short=0.0), 77 * GIB)
    assert not relies_on_growth(GROWS, 84 * GIB)
    # nothing is known of an allocator that is not PyTorch's
    assert is_held(None, 1.0)


@pytest.mark.parametrize(
    ("form", "graphs", "line"),
    [
        ("megatron", (), "# it relies on: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ("nemo", (), "    PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True',"),
        (
            "torchtitan",
            (),
            "# it relies on: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (run_train.sh does)",
        ),
        ("study", (), "# it relies on: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        (
            "megatron",
            ("attention",),
            "# it relies on: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True NCCL_GRAPH_REGISTER=0",
        ),
        ("nemo", ("attention",), "    NCCL_GRAPH_REGISTER='0',"),
    ],
)
def test_an_export_sets_what_its_layout_relies_on(form: str, graphs: tuple[str, ...], line: str) -> None:
    """As a setting where the framework takes variables of the environment, else as a comment."""
    wanted = job(gpus=8).model_copy(update={"cuda_graphs": graphs})
    step = simulate(wanted, DENSE, machine(1), predict=priced(0.0))
    tight = replace(step, memory=replace(step.memory, capacity=79 * GIB))
    one = Candidate(setting_of(wanted), wanted, tight, 0.0, 0.0, GROWS)
    lines = export(one, DENSE, Hosts(8), form).splitlines()
    assert line in lines
    wants = "# tensors fit, but PyTorch's allocator wants 83.0 GiB of the 79.0 GiB"
    assert any(told.startswith(wants) for told in lines)
    roomy = replace(one, held=replace(GROWS, reserved=GROWS.growing, short=0.0, retries=0))
    assert "expandable_segments" not in export(roomy, DENSE, Hosts(8), form)
    assert explain(None, "", one, 79 * GIB)[-1].endswith("it wants 78.0 GiB. Its export sets that.")


@pytest.mark.parametrize(
    ("retries", "said"), [(0, "in the first step"), (1, "once a step"), (2, "2 times a step")]
)
def test_how_often_memory_ends(retries: int, said: str) -> None:
    held = Reserved(0, int(80 * GIB), int(6 * GIB), int(80 * GIB), 3 * GIB, retries, 0.0)
    assert f": memory ends {said}, and the GPU waits while unused segments go back." in crowded(
        held, 82 * GIB
    )


def test_layouts_that_differ_in_where_ranks_are_and_what_is_hidden_hold_the_same() -> None:
    """So one replay is enough for all of them (`search.allocator`); other axes change what is held."""
    base = wide(pipeline=2, context=2, zero=1)
    same = {"placement": "spread", "context_kind": "all-gather"}
    memory = peak_memory(base, DENSE, FABRIC, CAPACITY)
    held = reserved(base, DENSE, FABRIC, memory)
    moved = wide(pipeline=2, context=2, zero=1, **same).model_copy(
        update={"overlap": Overlap(tp=True, dp=False, pp=False, cp=False)}
    )
    allocations = Allocations(base, DENSE, FABRIC, CAPACITY)
    assert reserved(moved, DENSE, FABRIC, peak_memory(moved, DENSE, FABRIC, CAPACITY)) == held
    first = allocations.held(setting_of(base), base)
    assert allocations.held(setting_of(moved), moved) is first
    for other in (
        wide(pipeline=2, context=2, zero=3),
        wide(pipeline=2, context=2, zero=1, context_kind="all-to-all"),
    ):
        assert allocations.held(setting_of(other), other) != first


def test_stages_far_from_full_are_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """1F1B's later stages hold less: of a GPU of which the first takes all, those above three quarters."""
    base = wide(pipeline=8)
    full = peak_memory(base, DENSE, FABRIC, CAPACITY)
    looked = []

    def told(*args: object) -> None:
        looked.extend(args[4])  # type: ignore[arg-type]

    monkeypatch.setattr("railwright.search.allocator.reserved", told)
    Allocations(base, DENSE, FABRIC, full.total).held(setting_of(base), base)
    assert looked == [stage.stage for stage in full.stages if stage.total >= 0.75 * full.total]
    assert full.stage in looked
    assert len(looked) < 8
    looked.clear()
    Allocations(base, DENSE, FABRIC, 2 * full.total).held(setting_of(base), base)
    assert looked == [full.stage]


@pytest.mark.parametrize("inside", [1, 2, 4])
def test_rows_of_experts_vary_as_much_as_those_that_are_routed_to_them(inside: int) -> None:
    # 2 ranks of `inside` tensor ranks each, of which one routes 1/4 of 2 x 4096 tokens to 2 experts: binomial
    wanted = wide(tensor=4, expert=2, expert_tensor=inside, sequence_parallel=True)
    made = [
        sum(op.makes.get("expert input", 0.0) for op in plan.tensors.operators)
        for plan in _plans(wanted, MOE, "moe")
    ]
    rows = 2 * inside * (2 * 4096 / 4) * 2
    most = NormalDist(1.0, sqrt((2 - 1) / rows)).inv_cdf(13 / 14)
    assert max(made) / (sum(made) / len(made)) == pytest.approx(most, rel=1e-9)
