"""Full recomputation of the first layers of every stage: what runs again, what is kept, what is waited for.

Megatron-LM d98e8a64, core/recompute.py, checkpointed_forward: with 'block' the first `recompute_num_layers`
layers of each block (a stage, or a virtual one) are checkpointed one by one, the others not at all.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.pattern import Layer
from railwright.spec.training import Lora, Overlap, RecomputeModule, TrainingJob
from railwright.traces.step import step_trace
from railwright.training import peak_memory, simulate
from railwright.training.lanes.result import StepResult
from railwright.training.layers.stages import stage_shapes
from railwright.training.memory.activations import layer_kept_parts, stage_activations
from railwright.training.memory.cached import cached
from railwright.training.memory.peak import SYSTEM
from railwright.training.software.eras import Pace
from training_cases import DENSE, MOE, changed, job, machine, priced, roofline

FABRIC, CAPACITY = machine(4).network.fabric, 80e9
MTP = replace(MOE, mtp_layers=1, layers=7)
DEEP = replace(DENSE, layers=9)
LONG = replace(MOE, layers=16)

LAYOUTS: list[tuple[Transformer, int, dict[str, object]]] = [
    (DENSE, 8, {}),
    (DENSE, 4, {"tensor": 4, "sequence_parallel": True, "pipeline": 2}),
    (DENSE, 2, {"pipeline": 2, "virtual_pipeline": 2}),
    (DENSE, 2, {"pipeline": 4, "schedule": "zb-h1"}),
    (DENSE, 2, {"pipeline": 2, "schedule": "zb-v"}),
    (DENSE, 8, {"zero": 3}),
    (DEEP, 3, {"pipeline": 4}),
    (MOE, 4, {"expert": 4, "pipeline": 2}),
    (MOE, 2, {"expert": 4, "pipeline": 2, "schedule": "dualpipe-v"}),
    (MOE, 2, {"expert": 4, "pipeline": 2, "virtual_pipeline": 2, "overlap": Overlap(ep=True)}),
]
"""Models, layers of the largest piece, and layouts."""


def some(layers: int | None, **what: object) -> TrainingJob:
    """A job that computes so many layers of every piece again; 0, which a study cannot say, for none."""
    one = job(**{"batch": 128, **what}, recompute="full")  # type: ignore[arg-type]
    return changed(one, layout=one.layout.model_copy(update={"recompute_layers": layers}))


def none(**what: object) -> TrainingJob:
    return job(**{"batch": 128, **what})  # type: ignore[arg-type]


def step(wanted: TrainingJob, arch: Transformer) -> StepResult:
    return simulate(wanted, arch, machine(4), predict=priced(50e9), kernel=roofline)


@pytest.mark.parametrize(("arch", "most", "layout"), LAYOUTS, ids=[str(one[2]) for one in LAYOUTS])
def test_no_layer_is_none_and_all_layers_are_full_to_the_last_digit(
    arch: Transformer, most: int, layout: dict[str, object]
) -> None:
    for layers, same in ((0, none(**layout)), (most, some(None, **layout))):
        ours, theirs = step(some(layers, **layout), arch), step(same, arch)
        assert ours.step_time == theirs.step_time
        assert ours.shares == theirs.shares
        assert ours.memory == theirs.memory
        assert ours.collectives == theirs.collectives


@pytest.mark.parametrize("layers", [1, 3, 8])
def test_every_layer_that_is_computed_again_adds_its_forward_pass(layers: int) -> None:
    # a second forward for each layer's product, all else free: 8, and one more for each that runs again
    def seconds(op: Operator) -> float:
        return float(op.name == "mlp up")

    wanted = some(layers, batch=32, overlap=Overlap(dp=False))
    found = simulate(wanted, DENSE, machine(4), predict=priced(0), kernel=seconds, pace=Pace())
    busy = next(share.busy for share in found.shares if share.kind == "compute")
    assert busy == pytest.approx(8 + layers)


def test_layers_are_counted_in_every_virtual_stage() -> None:
    # 8 layers in 4 pieces of two: of each the first again, half of all reductions of a second forward pass
    cut = {"tensor": 4, "pipeline": 2, "virtual_pipeline": 2}

    def reductions(wanted: TrainingJob) -> int:
        return sum(one.count for one in step(wanted, DENSE).collectives if one.purpose == "tp all-reduce")

    least, most = reductions(none(**cut)), reductions(some(None, **cut))
    assert 2 * reductions(some(1, **cut)) == least + most


def test_uneven_stages_compute_their_first_layers_again_and_short_ones_all() -> None:
    # 9 layers on 4 stages are 2, 3, 2, 2; three of each are all of them
    assert step(some(3, pipeline=4), DEEP).memory == step(some(None, pipeline=4), DEEP).memory
    kept, whole = (sum(layer_kept_parts(none(), DENSE, "dense", how).values()) for how in ("full", "none"))
    wanted = some(2, pipeline=4)
    held = [stage_activations(wanted, DEEP, shape).chunks[0] for shape in stage_shapes(DEEP, wanted.layout)]
    assert held == [2 * kept, 2 * kept + whole, 2 * kept, 2 * kept]


def test_a_layer_that_runs_again_finds_those_behind_it_gone() -> None:
    # stage 0 of two holds two passes; before a layer runs again its own pass has freed the layers behind it
    shape = stage_shapes(DENSE, none(pipeline=2).layout)[0]
    whole = sum(layer_kept_parts(none(), DENSE, "dense", "none").values())
    entry = 2.0 * 1024 * 1024

    def work(layers: int) -> tuple[float, float]:
        beside = stage_activations(some(layers, pipeline=2), DENSE, shape).layer_backward
        return tuple(beside.get(f"{name}layer being recomputed", 0.0) for name in ("", "output of the "))  # type: ignore[return-value]

    assert work(4) == (whole - entry, entry)
    # one layer behind: it held as much as the one at work holds beyond its input, which is counted
    assert work(3) == (0.0, 0.0)
    assert work(1) == (0.0, 0.0)


@pytest.mark.parametrize(("modules", "kind"), [(("mlp",), None), (("moe",), "moe"), (("mlp", "moe"), "moe")])
def test_dense_layers_in_front_of_experts_run_again_when_those_are_gone(
    modules: tuple[RecomputeModule, ...], kind: Layer | None
) -> None:
    """One dense layer before seven of experts: what it has computed again is less than these held."""
    arch = replace(MOE, dense_layers=1)
    wanted = job(recompute="selective", recompute_modules=modules)
    (shape,) = stage_shapes(arch, wanted.layout)
    assert shape.chunks[0].layers == ("dense", *["moe"] * 7)
    found = stage_activations(wanted, arch, shape).layer_backward.get("layer being recomputed", 0.0)
    if kind is None:
        assert not found
        return
    kept, whole = (sum(layer_kept_parts(wanted, arch, kind, h).values()) for h in ("selective", "none"))
    assert found == pytest.approx(whole - kept)


def test_extra_prediction_layers_keep_all() -> None:
    # Megatron-LM, multi_token_prediction.py: 'block' is not supported there, and skipped
    last = stage_shapes(MTP, none(pipeline=2).layout)[-1]
    assert len(last.chunks[0].layers) == 3
    kept, whole = (sum(layer_kept_parts(none(), MTP, "moe", how).values()) for how in ("full", "none"))
    few, full = (stage_activations(some(n, pipeline=2), MTP, last).chunks[0] for n in (2, None))
    assert few - full == pytest.approx(whole - kept)


def test_the_host_waits_for_counts_where_layers_are_computed_again() -> None:
    # one microbatch, kernels that take no time: a wait in each layer forward; backward one for all layers
    # that keep what they have, and one in each that routes its tokens again
    free = {"predict": priced(1e18, 0.0), "kernel": lambda operator: 1e-12, "pace": Pace()}

    def waits(layers: int) -> int:
        one = some(layers, batch=32, expert=8, overlap=Overlap(dp=False))
        found = simulate(one, MOE, machine(4), **free)  # type: ignore[arg-type]
        return len({event.start for event in found.timeline.events if event.lane == "host"})

    assert [waits(n) for n in (0, 1, 5, 8)] == [8 + 1, 8 + 1 + 1, 8 + 1 + 5, 8 + 8]


def test_launches_of_layers_that_keep_all_are_in_time_before_tokens_are_routed_again() -> None:
    # the host's time is the sum of its waits: nothing of a layer is launched twice or left out
    free = {"predict": priced(1e18, 0.0), "kernel": lambda operator: 1e-12, "pace": Pace()}

    def host(layers: int) -> float:
        one = some(layers, batch=32, expert=8, overlap=Overlap(dp=False))
        return simulate(one, MOE, machine(4), **free).exposed("host")  # type: ignore[arg-type]

    assert host(4) == pytest.approx((host(0) + host(8)) / 2, rel=1e-9)


@pytest.mark.parametrize("software", ["megatron-2025", "megatron-2022", "fsdp-2024"])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(
    ("arch", "layout", "near"),
    [
        (DENSE, {}, 0.004),
        (DENSE, {"pipeline": 2}, 0.004),
        (DENSE, {"pipeline": 2, "schedule": "gpipe"}, 0.004),
        (DENSE, {"pipeline": 2, "schedule": "zb-h1"}, 0.004),
        (DEEP, {"pipeline": 2}, 0.004),
        (MOE, {"expert": 4}, 0.012),
        (MOE, {"expert": 4, "pipeline": 2}, 0.012),
        (LONG, {"expert": 4, "pipeline": 2, "schedule": "dualpipe"}, 0.012),
        (LONG, {"expert": 4, "pipeline": 2, "schedule": "dualpipe-v"}, 0.012),
        (LONG, {"expert": 4, "pipeline": 2, "virtual_pipeline": 2, "overlap": Overlap(ep=True)}, 0.012),
    ],
)
def test_tensors_at_their_most_are_what_memory_adds_up(
    arch: Transformer, layout: dict[str, object], near: float, layers: int, software: str
) -> None:
    """As near as without recomputation: 0.5 % with dense layers, 0.8 with experts; full is up to 1.8."""
    wanted = changed(
        some(layers, sequence=4096, micro_batch=2, batch=2 * 32 * 12, **layout), software=software
    )
    for stage in peak_memory(wanted, arch, FABRIC, CAPACITY).stages:
        found = cached(wanted, arch, FABRIC, stage.stage)
        assert found is not None
        assert found.allocated == pytest.approx(stage.total - stage.parts[SYSTEM], rel=near)


def test_adapters_of_layers_that_keep_all_run_once() -> None:
    lora = Lora(rank=8, targets=("mlp up",))

    def busy(layers: int) -> float:
        def seconds(op: Operator) -> float:
            return float(op.name == "mlp up adapter in")

        one = changed(some(layers, batch=32), lora=lora)
        found = simulate(one, DENSE, machine(4), predict=priced(0), kernel=seconds, pace=Pace())
        return next(share.busy for share in found.shares if share.kind == "compute")

    assert [busy(n) for n in (0, 3, 8)] == pytest.approx([8, 8 + 3, 16])


def test_a_trace_has_what_runs_again_of_those_layers_alone() -> None:
    # attention and MLP of 3 of 8 layers, in each of 8 microbatches on the first rank
    made, _ = step_trace(some(3, batch=64, zero=1), DENSE, machine(1))
    names = [node.name for node in made.nodes(0) if "recomputed" in node.name]
    assert len(names) == 2 * 3 * 8
