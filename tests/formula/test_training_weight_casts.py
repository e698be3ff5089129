"""Weights in 8 or 4 bits are made once a step, by the first forward pass of each chunk: what Transformer
Engine's kernels move (pytorch/module/base.py, get_weight_workspace)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import load_catalog
from railwright.model import layer_parameters
from railwright.model.operators.cut import Cut
from railwright.model.shape.architecture import Operator
from railwright.model.shape.pattern import layer_kinds
from railwright.spec.lora import Lora
from railwright.spec.training import Layout, Overlap
from railwright.training import simulate
from railwright.training.lanes.tasks import Task
from railwright.training.layers.weight_casts import NAME, made_bytes, making
from railwright.training.software.eras import Pace
from training_cases import DENSE, MOE, changed, job, machine, priced, roofline

GPUS = {name: load_catalog().gpus[name] for name in ("h100-sxm", "b200-sxm")}
BLOCK, FOUR = 1 + 4 / 128**2, 0.5 + 1 / 16


@pytest.mark.parametrize(
    ("dtype", "fields", "gpu", "moved"),
    [
        ("bf16", {}, "h100-sxm", 0),
        # gathered in 8 bits: the transpose alone, which Blackwell's products do not want
        ("fp8", {}, "h100-sxm", 1 + 1),
        ("fp8", {}, "b200-sxm", 0),
        # 16 bits beside them: read, both copies written; with a scale found at once read twice
        ("fp8", {"fp8_param_gather": False, "amax_over": "stage"}, "h100-sxm", 2 + 1 + 1),
        ("fp8", {"fp8_param_gather": False, "amax_over": "stage"}, "b200-sxm", 2 + 1),
        ("fp8", {"fp8_param_gather": False, "amax_over": "none"}, "h100-sxm", 2 + 2 + 1 + 1),
        # nobody gathers them without the distributed optimizer, which keeps 16 bits
        ("fp8", {"layout": Layout(zero=0), "amax_over": "stage"}, "h100-sxm", 2 + 1 + 1),
        ("mxfp8", {}, "b200-sxm", 2 + 2 * (1 + 1 / 32)),
        ("fp8_block", {}, "h100-sxm", 2 + 2 * BLOCK),
        ("nvfp4", {}, "b200-sxm", 2 + 2 + 2 * FOUR),
        ("nvfp4", {"layout": Layout(zero=3)}, "b200-sxm", 2 + 2 + 2 * FOUR),
        ("mxfp8", {"layout": Layout(zero=3)}, "b200-sxm", 0),
    ],
)
def test_what_a_weight_costs_once_a_step(
    dtype: str, fields: dict[str, object], gpu: str, moved: float
) -> None:
    wanted = changed(job(dtype=dtype), **fields)
    assert made_bytes(wanted, GPUS[gpu], 8) == pytest.approx(moved)


@pytest.mark.parametrize(
    ("dtype", "fields", "moved"),
    [
        ("fp8", {}, 0),
        ("fp8", {"fp8_param_gather": False, "amax_over": "stage"}, 2 + 1),
        ("mxfp8", {}, 0),
        ("mxfp8", {"fp8_param_gather": False}, 2 + 2 * (1 + 1 / 32)),
        ("nvfp4", {}, 2 + 2 + 2 * FOUR),
    ],
)
def test_frozen_weights_stay_where_they_have_8_bits_alone(
    dtype: str, fields: dict[str, object], moved: float
) -> None:
    wanted = changed(job(dtype=dtype), lora=Lora(rank=8), **fields)
    assert made_bytes(wanted, GPUS["b200-sxm"], 8) == pytest.approx(moved)


def test_others_cast_in_every_pass() -> None:
    assert made_bytes(job(dtype="fp8", zero=3), GPUS["h100-sxm"], 8) == 0
    for software in ("fsdp-2025", "xla-2025"):
        assert made_bytes(changed(job(dtype="fp8"), software=software), GPUS["h100-sxm"], 8) == 0


@pytest.mark.parametrize(("pipeline", "virtual"), [(1, 1), (2, 1), (4, 1), (4, 2)])
def test_every_stage_s_weights_are_on_the_first_microbatch_s_way(pipeline: int, virtual: int) -> None:
    """It finds no stage whose weights are made before it comes, so a step is longer by all of them,
    however many stages there are."""
    wanted = job(dtype="fp8", batch=64, pipeline=pipeline, virtual_pipeline=virtual)

    def seconds(free: bool) -> float:
        def kernel(operator: Operator) -> float:
            return 0.0 if free and operator.name == NAME else roofline(operator)

        run = simulate(wanted, DENSE, machine(4), predict=priced(0.0), kernel=kernel, pace=Pace(host=0.0))
        return run.step_time

    each = layer_parameters(DENSE, layer_kinds(DENSE)[0], Cut(tp=1)).dense
    whole = DENSE.layers * roofline(Operator(NAME, "memory", 0.0, 2 * each, "bf16"))
    longer = seconds(free=False) - seconds(free=True)
    if virtual == 1:
        assert longer == pytest.approx(whole, rel=1e-6)
    else:  # the last piece's wait for another microbatch
        assert 0.8 * whole < longer <= whole


def test_it_is_once_a_step() -> None:
    def made(batch: int) -> int:
        wanted = job(dtype="fp8", batch=batch, pipeline=2)
        run = simulate(wanted, DENSE, machine(4), predict=priced(50e9), kernel=roofline)
        return sum(NAME in event.name for event in run.timeline.events)

    assert made(32) == made(128) == DENSE.layers


@pytest.mark.parametrize(
    "layout",
    [
        {"overlap": Overlap(ep=True)},
        {"pipeline": 2, "virtual_pipeline": 2, "overlap": Overlap(ep=True)},
        {"pipeline": 4, "schedule": "dualpipe", "batch": 256},
        {"pipeline": 2, "schedule": "zb-h1"},
        {"pipeline": 2, "zero": 2},
    ],
    ids=str,
)
def test_so_it_is_beside_backward_passes(layout: dict[str, object]) -> None:
    wanted = job(dtype="fp8", expert=4, **layout)
    run = simulate(wanted, MOE, machine(4), predict=priced(50e9), kernel=roofline)
    made = [event.name.split(",")[0] for event in run.timeline.events if NAME in event.name]
    twice = 2 if layout.get("schedule") == "dualpipe" else 1
    assert sorted(made) == sorted(f"layer {i} {NAME}" for i in range(1, MOE.layers + 1) for _ in range(twice))


def test_a_layer_s_weights_come_before_what_it_computes() -> None:
    tasks = [
        Task("compute", "embedding", "embedding", 1.0),
        Task("tp", "gather", "all_gather", 1.0, (0,), 0),
        Task("compute", "attention", "attention", 1.0, (1,), 0),
        Task("compute", "mlp", "mlp", 1.0, (2,), 1),
    ]
    found = making(tasks, [0.5, 0.25])
    assert [(t.name, t.duration, t.after) for t in found] == [
        ("embedding", 1.0, ()),
        ("gather", 1.0, (0,)),
        (NAME, 0.5, ()),
        ("attention", 1.0, (1,)),
        (NAME, 0.25, ()),
        ("mlp", 1.0, (3,)),
    ]


def test_a_mixture_makes_the_experts_of_its_gpu() -> None:
    moe = replace(DENSE, experts=8, experts_per_token=2, expert_ffn=4096)
    counted: list[float] = []

    def kernel(operator: Operator) -> float:
        if operator.name == NAME:
            counted.append(operator.bytes)
        return roofline(operator)

    simulate(job(dtype="fp8", expert=4), moe, machine(4), predict=priced(50e9), kernel=kernel)
    layer = layer_parameters(moe, layer_kinds(moe)[0], Cut(tp=1, ep=4, expert_tp=None))
    assert set(counted) == {2 * (layer.dense + layer.expert)}
