"""Laws that hold for every layout: instants, lanes, work and traffic are conserved however a job is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.model.shape.architecture import Operator, Transformer
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.lanes.result import StepResult
from railwright.training.layout.placement import place
from railwright.training.passes.lockstep import WAIT
from training_cases import DENSE, MOE, job, machine, priced, roofline
from training_laws import adds_up, one_thing_at_a_time

EVEN = {kind: replace(arch, vocab=32768) for kind, arch in (("dense", DENSE), ("moe", MOE))}
"""A vocabulary that needs no padding under any tensor parallelism here."""

overlaps = st.builds(
    Overlap,
    dp=st.booleans(),
    tp=st.booleans(),
    ep=st.booleans(),
    pp=st.booleans(),
    cp=st.booleans(),
    prefetch=st.sampled_from([0, 1, 3]),
)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[TrainingJob, Transformer]:
    """Any layout of a small model on 32 GPUs that can work."""
    tensor = draw(st.sampled_from([1, 2, 4]))
    context = draw(st.sampled_from([1, 2, 4]))
    pipeline = draw(st.sampled_from([1, 2, 3 if tensor == context == 1 else 2]))
    gpus = 24 if pipeline == 3 else 32
    data = gpus // (tensor * context * pipeline)
    moe = draw(st.booleans())
    inside = draw(st.sampled_from([e for e in (1, 2, 4) if tensor % e == 0])) if moe else None
    ranks = gpus // pipeline // (inside or tensor)
    expert = draw(st.sampled_from([e for e in (1, 2, 4, 8) if ranks % e == 0])) if moe else 1
    folded = ["zb-h1", "zb-v", "dualpipe-v"]
    schedule = draw(
        st.sampled_from(
            {1: ["auto"], 2: ["auto", "gpipe", "dualpipe", *folded]}.get(pipeline, ["auto", *folded])
        )
    )
    zero = draw(st.sampled_from([0, 1, 2] if schedule not in ("auto", "gpipe") else [0, 1, 2, 3]))
    count = draw(st.sampled_from([2 * pipeline, 4 * pipeline]))
    shared = zero == 3 and expert == 1 and inside in (None, tensor) and data > 1
    wanted = job(
        overlap=draw(overlaps),
        gpus=gpus,
        batch=data * count,
        tensor=tensor,
        context=context,
        context_kind=draw(st.sampled_from(["ring", "all-gather"])),
        pipeline=pipeline,
        schedule=schedule,
        expert=expert,
        expert_tensor=inside,
        sequence_parallel=draw(st.booleans()),
        zero=zero,
        reshard=draw(st.booleans()),
        reduce_each=draw(st.booleans()),
        shard=draw(st.sampled_from([None, 2])) if shared else None,
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
    )
    return wanted, EVEN["moe" if moe else "dense"]


def stepped(wanted: TrainingJob, arch: Transformer, bandwidth: float) -> StepResult:
    return simulate(wanted, arch, machine(4), predict=priced(bandwidth), kernel=roofline)


@settings(max_examples=60)
@given(jobs(), st.sampled_from([5e9, 50e9]))
def test_every_instant_belongs_to_one_share(drawn: tuple[TrainingJob, Transformer], bandwidth: float) -> None:
    result = stepped(*drawn, bandwidth)
    adds_up(result)
    assert result == stepped(*drawn, bandwidth)


@settings(max_examples=30)
@given(jobs())
def test_one_lane_of_one_rank_does_one_thing_at_a_time(drawn: tuple[TrainingJob, Transformer]) -> None:
    one_thing_at_a_time(stepped(*drawn, 50e9))


@settings(max_examples=30)
@given(jobs())
def test_a_free_network_costs_nothing(drawn: tuple[TrainingJob, Transformer]) -> None:
    assert stepped(*drawn, 0.0).exposed_share == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=40)
@given(jobs(), st.sampled_from([5e9, 50e9]))
def test_twice_the_bandwidth_is_never_slower(
    drawn: tuple[TrainingJob, Transformer], bandwidth: float
) -> None:
    slow, fast = stepped(*drawn, bandwidth), stepped(*drawn, 2 * bandwidth)
    # Where launching decides, a forward pass that ends sooner leaves the host less of a start on the backward
    # one, which GPipe may run much later.
    launched = any(share.kind == "host" and share.exposed for share in fast.shares)
    assert fast.step_time <= slow.step_time * (1 + (1e-3 if launched else 1e-9))


def flops_over_all_gpus(wanted: TrainingJob, arch: Transformer) -> float:
    """Seconds of compute at one flop/s, over all GPUs; a free network slows none of it."""

    def counted(operator: Operator) -> float:
        return operator.flops

    result = simulate(wanted, arch, machine(4), predict=priced(0.0), kernel=counted, most_events=10**7)
    layout = wanted.layout
    idle = ("bubble", WAIT)
    per_stage = sum(
        e.end - e.start for e in result.timeline.events if e.lane == "compute" and e.kind not in idle
    )
    return per_stage * (wanted.gpus or 32) / layout.pipeline


@settings(max_examples=40)
@given(jobs())
def test_the_work_is_the_same_however_it_is_cut(drawn: tuple[TrainingJob, Transformer]) -> None:
    wanted, arch = drawn
    plain = job(gpus=1, batch=wanted.global_batch)
    # Without sequence parallelism every tensor rank routes all tokens.
    shared = {"recompute": "none", "sequence_parallel": True}
    same = wanted.model_copy(update={"layout": wanted.layout.model_copy(update=shared)})
    assert flops_over_all_gpus(same, arch) == pytest.approx(flops_over_all_gpus(plain, arch), rel=1e-6)


@settings(max_examples=40)
@given(jobs())
def test_every_kind_of_group_covers_every_gpu_once(drawn: tuple[TrainingJob, Transformer]) -> None:
    wanted, _ = drawn
    groups = place(wanted, machine(4).network.fabric)
    kinds = ["tp", "cp", "ep", "etp", "dp", "expert_dp", "shard", "copies", "pp"]
    if wanted.layout.pipeline == 2:
        kinds += ["embedding", "mirror"]
    for kind in kinds:
        members = sorted(int(g) for c in groups.of(kind) for g in c.gpus)  # type: ignore[arg-type]
        assert members == list(range(wanted.gpus or 32)), kind


@pytest.mark.parametrize("arch", [DENSE, MOE], ids=["dense", "moe"])
def test_named_defaults_change_nothing(arch: Transformer) -> None:
    wanted = {"tensor": 2, "pipeline": 2, "expert": 2 if arch is MOE else 1, "batch": 64}
    plain = stepped(job(**wanted), arch, 50e9)  # type: ignore[arg-type]
    inside = {"expert_tensor": 2} if arch is MOE else {}
    named = job(**wanted, context=1, schedule="1f1b", layers_per_stage=(4, 4), zero=1, **inside)  # type: ignore[arg-type]
    assert stepped(named, arch, 50e9).step_time == plain.step_time
    fragment = named.model_copy(update={"servers": (0, 1, 2, 3), "gpus_per_server": 8})
    assert stepped(fragment, arch, 50e9).step_time == plain.step_time
