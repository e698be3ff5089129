"""Weights in host memory, as FSDP2's CPUOffloadPolicy keeps them: copies, waits, memory, refusals."""

from __future__ import annotations

import pytest

from railwright.errors import PlanError
from railwright.model import count_parameters
from railwright.spec.lora import Lora
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.lanes.critical import critical_path
from railwright.training.lanes.result import ADAM, StepResult
from railwright.training.lanes.tasks import Task, run
from railwright.training.memory.states import PASSING, STATES
from railwright.training.passes.chain import woven
from railwright.training.passes.offload import HOST_ADAM, HOST_SUM, host_link
from railwright.training.software.lora import adapter_parameters
from railwright.training.step.shards import launched_by_unit
from training_cases import DENSE, MOE, job, machine, priced

TOTAL = count_parameters(DENSE).total


def away(**fields: object) -> TrainingJob:
    fields.setdefault("offload", ("weights",))
    return job(zero=3, **fields).model_copy(update={"software": "fsdp-2025"})  # type: ignore[arg-type]


def seconds(step: StepResult, kind: str) -> tuple[float, float]:
    share = next((s for s in step.shares if s.kind == kind), None)
    return (share.busy, share.exposed) if share else (0.0, 0.0)


def test_a_units_shard_comes_before_its_gather_and_its_gradients_leave_behind_their_reduction() -> None:
    # by hand: copies of 1 s, gathers and reductions of 2 s, layers of 4 s; one unit ahead
    tasks = [Task("compute", "layer", "gemm", 4.0, (i - 1,) if i else (), 2 - i) for i in range(3)]
    order = (2, 1, 0)
    gathers = {u: (Task("dp", "g", "all_gather", 2.0, (), u),) for u in (1, 0)}
    reduces = {u: (Task("dp", "r", "reduce_scatter", 2.0, (), u),) for u in order}
    fetches = {u: Task("copy", "in", "copy", 1.0, (), u) for u in (1, 0)}
    returns = {u: Task("copy", "out", "copy", 1.0, (), u) for u in order}
    placed = run(woven(tasks, order, gathers, reduces, 1, fetches, returns))
    at = {(s.task.name, s.task.layer): (s.start, s.end) for s in placed.spans}
    assert at["in", 1] == (0, 1)
    assert at["g", 1] == (1, 3)
    # layer 0's shard is issued when layer 2 is over; its gather queues behind the reduction of that
    assert at["in", 0] == (4, 5)
    assert at["r", 2] == (4, 6)
    assert at["g", 0] == (6, 8)
    assert at["out", 2] == (6, 7)
    assert at["out", 0] == (14, 15)
    assert placed.duration == 15, "a pass is over when its last gradients are on the host"
    # where the host adds, it launches a unit only when the gradients of the one before are there
    held = run(woven(tasks, order, gathers, reduces, 1, fetches, returns, waiting="returned"))
    assert held.duration == 3 * (4 + 2 + 1)


def test_shards_cross_in_fp32_and_the_optimizer_runs_on_the_host() -> None:
    one, link = machine(1), host_link(machine(1))
    step = simulate(away(gpus=8, batch=8), DENSE, one, predict=priced(0.0), kernel=lambda _: 1e-2)
    # forward all, backward all but the head, whose unit was not dropped, and the embedding, which needs none
    ends = 2 * DENSE.vocab * DENSE.hidden
    copied = (TOTAL + (TOTAL - ends) + TOTAL) / 8 * 4 / link
    assert seconds(step, "copy")[0] == pytest.approx(copied, rel=1e-3)
    assert seconds(step, ADAM)[1] == pytest.approx(TOTAL / 8 * 8 * HOST_ADAM, rel=1e-6)
    assert sum(s.exposed for s in step.shares) == pytest.approx(step.step_time)


@pytest.mark.parametrize(("frozen", "byte"), [("fp32", 4), ("bf16", 2)])
def test_frozen_shards_cross_in_their_own_type(frozen: str, byte: int) -> None:
    """And lie on the host in it; adapters cross in fp32, and their gradients back."""
    lora = Lora(rank=16, frozen_dtype=frozen)  # type: ignore[arg-type]
    asked = away(gpus=8, batch=8).model_copy(update={"lora": lora})
    step = simulate(asked, DENSE, machine(1), predict=priced(0.0), kernel=lambda _: 1e-2)
    adapters = DENSE.layers * adapter_parameters(DENSE, "dense", Layout(), lora, apart=True)
    # forward all, backward all but the head's unit and the embedding's
    crossed = byte * (2 * TOTAL - 2 * DENSE.vocab * DENSE.hidden) + (4 + 4 + 4) * adapters
    assert seconds(step, "copy")[0] == pytest.approx(crossed / 8 / host_link(machine(1)), rel=1e-3)
    assert step.memory.host is not None
    weights, gradients = (step.memory.host.parts[name] for name in ("weights", "gradients"))
    # pinned by powers of two, as the adapters' tensors are
    assert weights / gradients == pytest.approx((byte * TOTAL + 4 * adapters) / (4 * adapters), rel=1e-3)


def test_later_microbatches_wait_for_what_the_host_adds() -> None:
    def copied(batch: int, **fields: object) -> float:
        asked = away(gpus=8, batch=batch, **fields)
        step = simulate(asked, DENSE, machine(1), predict=priced(0.0), kernel=lambda _: 1e-2)
        return seconds(step, "copy")[0]

    more = copied(16) - 2 * copied(8)
    assert more == pytest.approx(TOTAL / 8 * 8 * HOST_SUM, rel=1e-3)
    assert copied(16, reduce_each=False) < copied(16)


def test_units_are_launched_as_the_host_gets_to_them() -> None:
    """Where it waits for every unit's gradients it launches none before: 4 s of launches of a pass beside 3
    and 1 s of compute are 3 and 1 s, the second behind what the first returns."""
    tasks = [
        Task("compute", "layer 1", "mlp", 3.0, (), 1),
        Task("compute", "layer 0", "mlp", 1.0, (0,), 0),
        Task("host", "launching", "launch", 4.0),
        Task("compute", "end", "wait", 0.0, (1, 2)),
    ]
    found = launched_by_unit(tasks, (1, 0, -1))
    assert [(t.name, t.layer, t.duration, t.after) for t in found] == [
        ("launching", 1, 3.0, ()),
        ("layer 1", 1, 3.0, ()),
        ("launching", 0, 1.0, ()),
        ("layer 0", 0, 1.0, (1,)),
        ("end", -1, 0.0, (3, 2)),
    ]

    def step(each: float) -> float:
        asked = away(gpus=8, batch=32)
        kernel = {"kernel": lambda op: each * 1e-6 * op.launches, "predict": priced(0.0)}
        return simulate(asked, MOE, machine(1), **kernel).step_time  # type: ignore[arg-type]

    takes = [step(each) for each in (1, 4, 7, 8, 9, 10, 12, 16)]
    assert takes == sorted(takes)


def test_long_layers_hide_the_copies_and_short_ones_do_not() -> None:
    long, short = (
        simulate(away(gpus=8, batch=8), DENSE, machine(1), predict=priced(0.0), kernel=lambda _, s=s: s)
        for s in (1e-2, 1e-7)
    )
    busy, exposed = seconds(long, "copy")
    # the first unit of the forward pass and the last gradients have nothing to hide behind
    assert 0 < exposed < 0.4 * busy
    assert seconds(short, "copy")[1] > 0
    nothing, usual = (
        simulate(away(gpus=8, batch=8, overlap=Overlap(dp=hidden)), DENSE, machine(1), kernel=lambda _: 1e-3)
        for hidden in (False, True)
    )
    assert nothing.step_time > usual.step_time
    path = critical_path(nothing.timeline)
    assert path is not None
    assert sum(part.seconds for part in path.parts) == pytest.approx(nothing.step_time, rel=1e-2)


def test_the_gpu_keeps_what_is_gathered_and_one_units_shards() -> None:
    kept = simulate(away(gpus=8, batch=8, offload=()), DENSE, machine(1)).memory
    gone = simulate(away(gpus=8, batch=8), DENSE, machine(1)).memory
    assert gone.total < kept.total
    assert STATES not in gone.parts
    assert "weights" not in gone.parts
    assert "gradients" not in gone.parts
    end = DENSE.vocab * DENSE.hidden
    assert gone.parts[PASSING] == pytest.approx(10 * end / 8, rel=1e-3)
    assert gone.host is not None
    assert set(gone.host.parts) == {"weights", "gradients", "moments"}
    # 4 + 4 pinned, by each weight's next power of two, and 8 that are not
    asked = 16 * TOTAL
    assert asked < gone.host.total < 2 * asked


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"software": "megatron-2025"}, "Transformer Engine does nothing any more"),
        ({"software": "megatron-2021"}, "Set software to fsdp-2026"),
        ({"software": "fsdp-2023"}, "Composer refuses"),
        ({"software": "xla-2025"}, "no step is known"),
        ({"zero": 1}, "set zero to 3"),
        ({"offload": ("weights", "activations")}, "leave activations out"),
    ],
)
def test_what_no_software_does_is_refused_with_what_would(asked: dict[str, object], said: str) -> None:
    software = asked.pop("software", "fsdp-2025")
    layout = {"zero": 3, "offload": ("weights",), **asked}
    with pytest.raises(PlanError, match=said):
        simulate(job(**layout).model_copy(update={"software": software}), DENSE, machine(1))


def test_an_optimizer_beside_weights_is_told_to_do_nothing() -> None:
    step = simulate(away(gpus=8, batch=8, offload=("weights", "optimizer")), DENSE, machine(1))
    assert any("does nothing beside weights" in said for said in step.warnings)
    assert step.step_time == simulate(away(gpus=8, batch=8), DENSE, machine(1)).step_time
