"""DeepSpeed's ZeRO engine: what it holds, what it sends, and what it refuses."""

from __future__ import annotations

import pytest

from railwright.errors import PlanError
from railwright.model import count_parameters, load_model
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.checks.doubts import doubts
from railwright.training.checks.plan import refuse
from railwright.training.layers.communication import gradient_type
from railwright.training.layers.operators import operators_of
from railwright.training.layers.stages import stage_shapes
from railwright.training.memory.host_memory import host_memory
from railwright.training.memory.states import AT_STEP, COPY, GATHERED, PASSING, WAITING, state_parts
from railwright.training.passes.offload import host_link
from railwright.training.software.eras import Pace
from railwright.training.software.zero_engine import BUCKET, kept_ahead
from railwright.training.step.shards import ADDED, GRADIENTS, WEIGHTS
from training_cases import DENSE, MOE, changed, job, machine, priced, roofline

ENGINE = {"software": "deepspeed-2024", "unfused": ("rotary", "norm", "activation")}
PARAMETERS = float(count_parameters(DENSE).total)


UNITS = {
    (1e8,) * 100: 2 * 5e8,  # 0, 2e8, ... 8e8 parameters between their passes, not 1e9
    (1e9, 3e8, 3e8): 2 * 1e9,  # the largest unit while it works
    (1e8, 2e8): 2 * 3e8,
}
"""Parameters of units in the order of the forward pass -> bytes of those that are there at once."""


def engine(**layout: object) -> TrainingJob:
    return changed(job(**layout), **ENGINE)  # type: ignore[arg-type]


def states(ranks: int = 32, **layout: object) -> dict[str, float]:
    wanted = engine(**layout)
    (shape,) = stage_shapes(DENSE, wanted.layout)
    return state_parts(wanted, DENSE, shape, ranks)


@pytest.mark.parametrize(
    ("zero", "whole", "shared"), [(1, 2 + 2, 12), (2, 2, 2 + 12), (3, 0, 2 + 2 + 12)], ids=str
)
def test_states_are_those_of_deepspeeds_own_estimates(zero: int, whole: int, shared: int) -> None:
    """Bytes of a parameter on every rank, and over all of them: ZeRO (arXiv 1910.02054), section 3.1, figure
    1, and DeepSpeed's estimate_zero2_model_states_mem_needs, estimate_zero3_model_states_mem_needs."""
    parts = states(zero=zero)
    held = sum(parts[name] for name in ("weights", "gradients", "optimizer states"))
    assert held == pytest.approx(PARAMETERS * (whole + shared / 32))


@pytest.mark.parametrize(("zero", "left"), [(1, 2.0), (2, 0.0), (3, 0.0)])
def test_reduced_gradients_go_to_an_optimizer_on_the_host(zero: int, left: float) -> None:
    """offload_optimizer: shards of gradients lie there too (stage3.py, grad_partitions_flat_buffer)."""
    assert states(zero=zero, offload=("optimizer",))["gradients"] == left * PARAMETERS


def test_buckets_are_of_one_size_and_two_where_one_fills_while_the_other_is_sent() -> None:
    for zero in (1, 2):
        assert states(zero=zero)[WAITING] == 2 * 2.0 * BUCKET
        alone = changed(engine(zero=zero), overlap=Overlap(dp=False))
        (shape,) = stage_shapes(DENSE, alone.layout)
        assert state_parts(alone, DENSE, shape, 32)[WAITING] == 2.0 * BUCKET


def test_weights_stay_whose_backward_pass_comes_within_a_billion_parameters() -> None:
    """Between a unit's two passes those behind it run twice."""
    kept = {units: kept_ahead(units, [2 * size for size in units]) for units in UNITS}
    assert kept == pytest.approx(UNITS)
    assert states(zero=3)[GATHERED] == pytest.approx(2 * PARAMETERS)  # a small model: all of it
    assert states(zero=3, reshard=False)[GATHERED] == pytest.approx(2 * PARAMETERS)


def test_states_are_updated_in_groups_under_zero_3() -> None:
    """A group is a billion parameters of a rank's own (stage3.py, _create_fp16_sub_groups: partition_numel):
    all of 70 billion over 128 ranks are one, over 32 they are more."""
    assert states(zero=3)[COPY] == pytest.approx(4 * PARAMETERS / 32)
    large = changed(engine(zero=3), model="llama-3.1-70b")
    arch = load_model("llama-3.1-70b")
    (shape,) = stage_shapes(arch, large.layout)
    assert state_parts(large, arch, shape, 32)[COPY] == pytest.approx(4 * 1e9)
    assert state_parts(large, arch, shape, 128)[COPY] == pytest.approx(4 * count_parameters(arch).total / 128)


@pytest.mark.parametrize(
    ("zero", "ranks", "unfused", "bytes_more"),
    [
        # joined 2 and fp32 4; the optimizer has 2 less of gradients that went and 4 more of roots
        (2, 32, (), 6 / 32),
        (2, 32, ("optimizer",), 6 / 32),
        # gradients stay in one buffer
        (3, 32, (), 6 / 32),
        (3, 32, ("optimizer",), 8 / 32),
        # gradients of weights that others update went before: 2 - 2 / n
        (1, 2, (), 6 / 2 - 1),
        (1, 2, ("optimizer",), 6 / 2 - 1),
        (1, 32, (), 0.0),
    ],
)
def test_gradients_are_joined_before_they_become_fp32(
    zero: int, ranks: int, unfused: tuple[str, ...], bytes_more: float
) -> None:
    """What the step takes of a parameter beside passes' states (stage_1_and_2.py, step; stage3.py)."""
    wanted = changed(engine(zero=zero), unfused=unfused)
    (shape,) = stage_shapes(DENSE, wanted.layout)
    parts = state_parts(wanted, DENSE, shape, ranks)
    step = sum(parts.get(name, 0.0) for name in AT_STEP)
    assert step == pytest.approx(bytes_more * PARAMETERS, abs=1.0)


def test_weights_and_gradients_go_to_the_host_and_back_in_16_bits() -> None:
    """offload_param: a rank's weights and gradients of one unit are on the GPU, 2 + 2 bytes; on the host
    2 + 4 of weights and 2 + 4 of gradients lie beside 8 of moments, a GPU's rounded up to powers of two."""
    wanted = engine(zero=3, offload=("weights",))
    (shape,) = stage_shapes(DENSE, wanted.layout)
    parts = state_parts(wanted, DENSE, shape, 32)
    assert parts["weights"] == parts["gradients"] == 0
    assert parts[PASSING] == pytest.approx(4 * (DENSE.vocab + 1) * DENSE.hidden / 32)  # the head and its norm
    step = simulate(wanted, DENSE, machine(4), predict=priced(50e9), kernel=roofline, most_events=100_000)
    link = host_link(machine(4))
    took = {event.name: event.end - event.start for event in step.timeline.events if event.lane == "copy"}
    one = 2 * shape.dense[0][0] / 32 / link
    assert took[f"layer 1 {WEIGHTS}, microbatch 1"] == pytest.approx(one)
    assert took[f"layer 1 {GRADIENTS}, microbatch 1"] == pytest.approx(one)
    assert took[f"layer 1 {ADDED}, microbatch 2"] == pytest.approx(2 * one)  # the sum comes and goes
    on_host = host_memory(wanted, DENSE, machine(4).network.fabric, machine(4).server)
    assert on_host is not None
    of_gradients, of_weights = on_host.parts["gradients"], on_host.parts["weights"]
    assert of_gradients / of_weights == pytest.approx(3)
    assert on_host.parts["master weights"] / of_weights == pytest.approx(2)


def test_gradients_have_the_type_of_weights() -> None:
    assert gradient_type(engine()) == "bf16"
    assert gradient_type(changed(engine(), dtype="fp16")) == "fp16"
    assert gradient_type(changed(engine(), gradient_dtype="fp32")) == "fp32"


@pytest.mark.parametrize(("zero", "moved"), [(1, 6.0), (2, 8.0), (3, 4.0)])
def test_gradients_are_divided_and_copied_before_they_are_sent(zero: int, moved: float) -> None:
    """Bytes of a weight of the MLP, larger than ZeRO-3's bucket of hidden squared, behind its product."""
    operators = operators_of(engine(zero=zero), DENSE, "dense", machine().gpu)
    product, after = (op for op in operators.backward_weight if op.name.startswith("mlp down"))
    assert (product.kind, after.kind) == ("gemm", "memory")
    assert after.bytes == pytest.approx(moved * DENSE.ffn * DENSE.hidden)


@pytest.mark.parametrize(("zero", "count"), [(1, 1), (2, 2)])
def test_zero_1_and_2_reduce_all_and_gather_behind_the_step(zero: int, count: int) -> None:
    """All-reduces of all gradients, once or in each of two microbatches, and gathers that nothing hides."""
    slow = Pace(host=8.0)
    step = simulate(engine(zero=zero), DENSE, machine(4), predict=priced(50e9), kernel=roofline, pace=slow)
    sizes = {"all_reduce": 0.0, "all_gather": 0.0}
    for one in step.collectives:
        sizes[one.prediction.op] += one.count * one.prediction.size
    assert sizes == pytest.approx({"all_reduce": 2 * count * PARAMETERS, "all_gather": 2 * PARAMETERS})
    gathered = sum(one.prediction.time for one in step.collectives if one.prediction.op == "all_gather")
    exposed = next(share.exposed for share in step.shares if share.kind == "dp")
    assert exposed == pytest.approx(gathered)  # launches take longer than all reductions


def test_zero_3_gathers_twice_and_scatters_beside_compute() -> None:
    step = simulate(engine(zero=3), DENSE, machine(4), predict=priced(50e9), kernel=roofline)
    assert {one.prediction.op for one in step.collectives} == {"all_gather", "reduce_scatter"}


@pytest.mark.parametrize(
    ("layout", "fields", "words"),
    [
        ({"tensor": 2}, {}, "set layout.tensor to 1"),
        ({"pipeline": 2}, {}, "set layout.pipeline to 1"),
        ({"context": 2}, {}, "set layout.context_kind to all-to-all"),
        ({"zero": 0}, {}, "set it to the stage of its zero_optimization"),
        ({"zero": 3, "reduce_each": False}, {}, "leave layout.reduce_each out"),
        ({"zero": 3}, {"dtype": "fp8"}, "whose weights are in bf16 or fp16"),
        ({"zero": 2, "offload": ("weights",)}, {}, "zero: 2 shards none; set zero to 3"),
    ],
    ids=str,
)
def test_what_the_engine_is_not_known_to_do_is_refused(
    layout: dict[str, object], fields: dict[str, object], words: str
) -> None:
    with pytest.raises(PlanError) as no:
        refuse(changed(engine(**layout), **fields), DENSE, machine().network.fabric)
    assert words in str(no.value)


def test_experts_stay_on_every_rank() -> None:
    with pytest.raises(PlanError, match=r"set layout\.expert to 1"):
        refuse(engine(expert=2, zero=3), MOE, machine().network.fabric)


def test_modules_that_are_not_said_to_be_eager_are_told() -> None:
    told = [one for one in doubts(changed(engine(zero=3), unfused=()), DENSE, 1) if "modules" in one]
    assert len(told) == 1
    assert not [one for one in doubts(engine(zero=3), DENSE, 1) if "runs the modules" in one]
