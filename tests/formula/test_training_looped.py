"""Experts that run one after the other (`unfused: [experts]`): their time, their launches, and what waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.compute import kernel_time
from railwright.errors import PlanError
from railwright.model import Cut, layer_operators, load_model
from railwright.model.operators.looped import KERNELS, SORTED, WAITED
from railwright.model.operators.recompute import SEARCH
from railwright.model.shape.architecture import Operator, Transformer
from railwright.spec.lora import Lora
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.lanes.tasks import Task, run
from railwright.training.passes.chain import FINDING, woven
from railwright.training.software.constants import constant
from railwright.training.software.eras import Pace
from railwright.training.software.host import launch_times
from training_cases import DENSE, LATENTS, MOE, changed, job, machine, priced

OPERATION, NATIVE = constant("host_operation_seconds"), constant("host_native_seconds")
H100 = machine().gpu
EXPERTS, ROWS = MOE.experts, 4096
LOOPED = Cut(unfused=("experts", "activation"))


def looped(wanted: TrainingJob, **other: object) -> TrainingJob:
    ours: dict[str, object] = {"software": "fsdp-2024-eager", "unfused": ("experts", "activation")}
    return changed(wanted, **(ours | other))


@pytest.mark.parametrize("name", ["experts up", "experts down", "experts up, weight gradient"])
def test_a_product_of_all_takes_as_long_as_those_of_each(name: str) -> None:
    layer = layer_operators(MOE, "moe", ROWS, ROWS, LOOPED)
    every = next(op for op in (*layer.forward, *layer.backward_weight) if op.name == name)
    one = replace(
        every, kind="gemm", flops=every.flops / EXPERTS, bytes=every.bytes / EXPERTS, batch=1, steps=1
    )
    assert kernel_time(every, H100) == pytest.approx(EXPERTS * kernel_time(one, H100))
    grouped = layer_operators(MOE, "moe", ROWS, ROWS)
    same = next(op for op in (*grouped.forward, *grouped.backward_weight) if op.name == name)
    assert (every.flops, every.bytes) == (same.flops, same.bytes)


def test_the_host_takes_an_operation_for_each_and_little_for_more_kernels_of_one() -> None:
    """Of an expert: a search, two gathers, three products, two of its activation, a product with its weights
    and a sum; and of all a mask in two and zeros.  Backward 17, less the two sums of gradients that the first
    expert has not."""
    layer = layer_operators(MOE, "moe", ROWS, ROWS, LOOPED)

    def inside(found: tuple[Operator, ...]) -> tuple[Operator, ...]:
        return tuple(op for op in found if op.name.startswith(("experts ", "expert r", "expert s")))

    experts = replace(layer, forward=inside(layer.forward), backward_input=inside(layer.backward_input))
    known = launch_times(experts, H100)
    searched, ordered = ((KERNELS[one] - 1) * NATIVE for one in (SEARCH, SORTED))
    assert known.forward == pytest.approx((10 * EXPERTS + 3) * OPERATION + EXPERTS * searched)
    assert known.input == pytest.approx((17 * EXPERTS - 2) * OPERATION + 2 * EXPERTS * ordered)
    # weights in one product with up, gate beside it, and down
    assert launch_times(layer, H100).weight == pytest.approx((3 * EXPERTS + 3) * OPERATION)
    assert (known.searches, known.search) == (EXPERTS, pytest.approx(WAITED * OPERATION))
    assert launch_times(layer_operators(MOE, "moe", ROWS, ROWS), H100).searches == 0


def test_the_gpu_waits_behind_every_search() -> None:
    """Two operations for each expert of each layer, forward and where the layer is computed again."""

    def waits(recompute: str) -> float:
        wanted = looped(job(gpus=8, batch=8, zero=1, recompute=recompute))
        # kernels so long that launching hides behind them
        result = simulate(wanted, MOE, machine(), predict=priced(1e15), kernel=lambda _: 1.0, pace=Pace())
        return result.exposed("host")

    once = MOE.layers * EXPERTS * WAITED * OPERATION
    assert waits("none") == pytest.approx(once)
    assert waits("full") == pytest.approx(2 * once)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_host_launches_an_expert_while_the_gpu_runs_it(recompute: str) -> None:
    """A forward layer takes its kernels or its launches, whichever is longer, and what it waits behind
    searches: shorter kernels never make it longer, where launches begin to last longer neither."""
    wanted = looped(job(gpus=1, batch=1, zero=1, recompute=recompute))

    def step(each: float) -> float:
        free = {"predict": priced(1e18, 0.0), "pace": Pace()}
        return simulate(wanted, MOE, machine(1), kernel=lambda op: each * op.launches, **free).step_time  # type: ignore[arg-type]

    takes = [step(each * 1e-6) for each in (1, 2, 4, 8, 8.5, 9, 9.5, 10, 11, 12, 16)]
    assert takes == sorted(takes)
    # kernels of a microsecond are run while the next ones are launched
    assert takes[0] == pytest.approx(step(1e-9), rel=1e-3)


def test_parameters_are_gathered_when_the_host_has_found_all_rows() -> None:
    # unit 1's come not beside all 3 s of unit 0 but beside the last one of them, and take until the fourth
    tasks = [
        Task("compute", "experts", "experts", 2.0, (), 0),
        Task("host", FINDING, "launch", 0.0, (0,), 0),
        Task("compute", "experts", "experts", 1.0, (0, 1), 0),
        Task("compute", "work", "mlp", 1.0, (2,), 1),
    ]
    gather = Task("dp", "dp parameters", "all_gather", 2.0, (), 1)
    for reached, takes in ((True, 5.0), (False, 4.0)):
        assert run(woven(tasks, (0, 1), {1: (gather,)}, {}, 1, reached=reached)).duration == takes


@pytest.mark.parametrize("ahead", [2, 3])
@pytest.mark.parametrize("pipeline", [1, 2])
def test_parameters_asked_for_earlier_come_no_earlier_behind_a_search(pipeline: int, ahead: int) -> None:
    # every layer has a search, so that a unit's gathers are issued behind that of the one before it
    def step(prefetch: int) -> float:
        one = job(zero=3, pipeline=pipeline, gpus=8, batch=32, overlap=Overlap(prefetch=prefetch))
        return simulate(looped(one), MOE, machine(1)).step_time

    assert step(ahead) == pytest.approx(step(1), rel=1e-12)


@pytest.mark.parametrize(
    ("arch", "wanted", "told"),
    [
        (MOE, {"dtype": "fp8"}, "in 16 bits, not in fp8"),
        (MOE, {"software": "fsdp-2025"}, "where nothing is compiled, and software fsdp-2025 is"),
        (MOE, {"expert": 2}, "layout.expert spreads over ranks"),
        (MOE, {"expert_tensor": 2, "tensor": 2}, "layout.expert_tensor cuts"),
        (MOE, {"tensor": 2, "expert_tensor": 1}, "layout.tensor cuts"),
        (MOE, {"expert_capacity": 1.0}, "expert_capacity drops and pads"),
        (MOE, {"schedule": "dualpipe", "pipeline": 2}, "of which schedule dualpipe has two at once"),
        (LATENTS, {}, "modelled without latents, which those of latent-8 have"),
        (replace(MOE, mlp_bias=True), {}, "modelled without biases"),
    ],
)
def test_where_no_such_loop_runs(arch: Transformer, wanted: dict[str, object], told: str) -> None:
    layout = ("expert", "tensor", "expert_tensor", "schedule", "pipeline")
    inside = {k: v for k, v in wanted.items() if k in layout}
    other = {k: v for k, v in wanted.items() if k not in inside}
    with pytest.raises(PlanError, match=told):
        simulate(looped(job(gpus=8, **inside), **other), arch, machine())


def test_a_dense_model_has_none() -> None:
    found = simulate(looped(job(gpus=8)), DENSE, machine()).warnings
    assert any("unfused experts does nothing: dense-8 is a dense model" in one for one in found)


@pytest.mark.parametrize(("sequence", "batch", "longer"), [(4096, 2, 3.1), (1024, 1, 7.9)])
def test_narrow_experts_take_several_times_as_long(sequence: int, batch: int, longer: float) -> None:
    """Adapters of Qwen3 30B: many kernels, each too short for a GPU (docs/training.md)."""
    arch, adapters = load_model("qwen3-30b-a3b"), Lora(rank=16, targets=("qkv", "attention output"))
    base = job(gpus=1, sequence=sequence, batch=batch, micro_batch=batch, zero=0, recompute="full")
    parts = ("rotary", "norm", "activation")
    each, grouped = (
        simulate(looped(base, lora=adapters, unfused=unfused), arch, machine(1), must_fit=False)
        for unfused in ((*parts, "experts"), parts)
    )
    assert each.step_time / grouped.step_time == pytest.approx(longer, abs=0.1)
    assert each.launch_share > 0.05
