"""Laws of memory: nothing is lost or counted twice, and less work per GPU never needs more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.errors import PlanError
from railwright.model import count_parameters
from railwright.model.shape.architecture import Transformer
from railwright.training.checks.plan import check
from railwright.training.lanes.result import Memory
from railwright.training.layers.stages import stage_shapes
from railwright.training.layout.in_flight import held_sets
from railwright.training.layout.schedule import orders_of, route_of
from railwright.training.memory.peak import SYSTEM, peak_memory
from railwright.training.memory.states import state_parts
from training_cases import DENSE, MOE, in_flight, job, machine

SIZES = (1, 2, 4)


def peak(arch: Transformer, **fields: object) -> Memory:
    """Peak memory of a job on 32 GPUs; PlanError where its layout cannot be."""
    wanted = job(**{"batch": 128, **fields})  # type: ignore[arg-type]
    fabric = machine(4).network.fabric
    check(wanted, arch, fabric)
    return peak_memory(wanted, arch, fabric, 80e9)


@settings(max_examples=60)
@given(
    st.sampled_from([DENSE, MOE]),
    st.sampled_from(SIZES),
    st.sampled_from(SIZES),
    st.sampled_from((1, 2)),
    st.sampled_from(SIZES),
)
def test_ranks_together_hold_every_weight_once(
    arch: Transformer, tensor: int, pipeline: int, chunks: int, expert: int
) -> None:
    # one copy of the model: the tensor ranks of all stages; experts are spread over `expert` data ranks
    chunks = chunks if pipeline > 1 else 1
    layout = job(
        tensor=tensor,
        pipeline=pipeline,
        virtual_pipeline=chunks,
        expert=expert if arch.is_moe else 1,
    ).layout
    shapes = stage_shapes(arch, layout)
    dense = sum(s.dense_total for s in shapes) * tensor
    experts = sum(s.expert_total for s in shapes) * tensor * layout.expert
    replicated = dense + experts - count_parameters(arch).total
    norms = (arch.norms_per_layer * arch.layers + 1) * arch.hidden
    routers = arch.layers * arch.hidden * arch.experts
    assert replicated == pytest.approx((tensor - 1) * (norms + routers), rel=1e-9, abs=1.0)


@settings(max_examples=40)
@given(st.sampled_from([DENSE, MOE]), st.sampled_from((1, 2, 8, 32)))
def test_shards_of_all_ranks_add_up(arch: Transformer, ranks: int) -> None:
    whole, parts = (job(zero=z) for z in (0, 1))
    (shape,) = stage_shapes(arch, whole.layout)
    states = [state_parts(j, arch, shape, ranks)["optimizer states"] for j in (whole, parts)]
    assert states[1] * ranks == pytest.approx(states[0])


@settings(max_examples=60)
@given(
    st.sampled_from([DENSE, MOE]),
    st.sampled_from(("bf16", "fp16", "fp8", "mxfp8", "nvfp4")),
    st.sampled_from(SIZES),
    st.sampled_from(("none", "selective", "full")),
    st.sampled_from((0, 1, 2, 3)),
)
def test_less_per_gpu_never_needs_more(
    arch: Transformer, dtype: str, pipeline: int, recompute: str, zero: int
) -> None:
    fields = {"dtype": dtype, "pipeline": pipeline, "recompute": recompute, "zero": zero}
    base = peak(arch, **fields)
    assert peak(arch, **{**fields, "micro_batch": 2}).total >= base.total
    assert peak(arch, **{**fields, "sequence": 2048}).total >= base.total
    assert peak(arch, **{**fields, "context": 2}).total <= base.total + 0.69e9  # one more communicator
    if zero < 3:
        gathered = peak(arch, **{**fields, "zero": 3}).parts.get("gathered weights", 0.0)
        assert peak(arch, **{**fields, "zero": 3}).total - gathered <= base.total * (1 + 1e-9)
    if recompute == "none":
        for modules in (("core_attn",), ("moe_act",), ("layernorm",)):
            some = peak(arch, **{**fields, "recompute": "selective", "recompute_modules": modules})
            assert some.parts.get("activations", 0) <= base.parts.get("activations", 0) * (1 + 1e-9)


@settings(max_examples=60)
@given(
    st.sampled_from([DENSE, MOE]),
    st.sampled_from((1, 2, 3)),
    st.sampled_from(SIZES),
    st.sampled_from(("auto", "gpipe", "zb-h1")),
    st.sampled_from(("megatron-2021", "megatron-2025", "fsdp-2024")),
)
def test_more_shards_and_more_recomputation_never_need_more(
    arch: Transformer, zero: int, pipeline: int, schedule: str, software: str
) -> None:
    fabric = machine(4).network.fabric

    def held(gpus: int, recompute: str, micro_batch: int = 1) -> float:
        # as many microbatches on any number of GPUs
        one = job(
            gpus=gpus,
            batch=8 * gpus * micro_batch // pipeline,
            micro_batch=micro_batch,
            pipeline=pipeline,
            schedule=schedule,
            zero=zero,
            recompute=recompute,
        ).model_copy(update={"software": software})
        memory = peak_memory(one, arch, fabric, 80e9)
        return max(stage.total - stage.parts[SYSTEM] for stage in memory.stages)

    by_shards = [held(gpus, "none") for gpus in (8, 16, 32)]
    assert by_shards == sorted(by_shards, reverse=True)
    # a layer that runs again whole holds its output
    output = 2 * 1024 * arch.hidden
    assert held(16, "full") - output <= held(16, "selective") <= held(16, "none") <= held(16, "none", 2)


@settings(max_examples=80)
@given(
    st.sampled_from(("1f1b", "interleaved", "gpipe", "zb-h1", "zb-v", "dualpipe", "dualpipe-v")),
    st.sampled_from((2, 4, 8)),
    st.integers(1, 6),
)
def test_held_sets_meet_the_count_of_passes_in_flight(name: str, stages: int, rounds: int) -> None:
    chunks = 2 if name == "interleaved" else 1
    wanted = job(pipeline=stages, virtual_pipeline=chunks, schedule=name)
    count = 2 * stages * rounds
    for order in orders_of(wanted, count):
        sets = held_sets(order, route_of(wanted.layout).chunks)
        assert max(map(sum, sets)) == in_flight(order)


def test_a_layout_that_cannot_be_is_refused_before_memory() -> None:
    with pytest.raises(PlanError):
        peak(DENSE, tensor=3)
