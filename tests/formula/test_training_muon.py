"""Muon: its matrices, its products, who updates what, its memory, its exchanges and its refusals."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.errors import PlanError
from railwright.model import bundled_models, layer_parameters, load_model
from railwright.model.counts.matrices import Matrix, layer_matrices, whole_matrices
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.mixers import projected
from railwright.model.shape.pattern import PARTS, kinds_present
from railwright.reliability.checkpointing import checkpoint_size
from railwright.spec.lora import Lora
from railwright.spec.training import Muon, TrainingJob
from railwright.training import simulate
from railwright.training.lanes.result import StepResult
from railwright.training.optimizer.muon import MatrixGroup, iterated, iteration_bytes, operators, spread
from railwright.training.software.constants import constant
from railwright.training.software.eras import pace_of
from railwright.training.whatif.changes import what_ifs
from training_cases import DENSE, MOE, changed, job, machine, priced

FREE = priced(0.0)
GATED = replace(MOE, shared_experts=1, shared_ffn=2048, shared_gate=True)


def by_muon(muon: Muon | None = None, **layout: object) -> TrainingJob:
    return changed(job(**layout), optimizer="muon", muon=muon or Muon())


def step(one: TrainingJob, arch: Transformer = DENSE, servers: int = 1, **how: object) -> StepResult:
    return simulate(one, arch, machine(servers), must_fit=False, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", bundled_models())
def test_matrices_are_all_of_a_layer_but_its_vectors(name: str) -> None:
    arch = load_model(name)
    for kind in kinds_present(arch):
        held = sum(m.size * m.count for m in layer_matrices(arch, kind))
        if PARTS[kind].mixer == "linear" and arch.linear and arch.linear.kind == "mamba2":
            # Adam's: the product in front of the state, many in one
            held += arch.hidden * projected(arch.linear)
        # norms, biases, sinks, gains and convolutions
        assert 0 <= layer_parameters(arch, kind).total - held <= 2e-3 * held


@given(rows=st.integers(1, 300), columns=st.integers(1, 300), steps=st.integers(1, 12))
def test_a_step_is_three_products_of_the_smaller_side(rows: int, columns: int, steps: int) -> None:
    """X X' and its product with X: 2 s^2 l FLOPs each; the square of X X': 2 s^3."""
    small, large = sorted((rows, columns))
    *products, update = operators(Matrix("one", rows, columns, ""), 1, Muon(steps=steps))
    assert sum(op.flops for op in products) == 4 * small**2 * large + 2 * small**3
    assert update.flops == 0


@pytest.mark.parametrize(("mode", "iterated_over"), [("duplicated", 1), ("blockwise", 4), ("distributed", 4)])
def test_what_an_update_reads_and_writes_of_a_weight(mode: str, iterated_over: int) -> None:
    """Kernel by kernel in fp32, of what is made orthogonal: its norm (read), divided by it (read, written),
    cast to 16 bits and back; of a rank's own: decayed, momentum (gradient and it read, it written), scaled
    twice, master (it and the update read, it written), 16-bit weight."""
    made = 4 + (4 + 4) + (4 + 2) + (2 + 4)
    own = (4 + 4) + (4 + 4 + 4) + 2 * (4 + 4) + (4 + 4 + 4) + (4 + 2)
    update = operators(Matrix("one", 512, 2048, "rows"), 4, Muon(tp_mode=mode))[-1]  # type: ignore[arg-type]
    assert update.bytes == 512 * 2048 * (made / iterated_over + own / 4)


@pytest.mark.parametrize(
    ("mode", "cut", "sides"),
    [
        ("duplicated", "rows", (512, 2048)),
        ("duplicated", "columns", (512, 2048)),
        ("blockwise", "rows", (512, 512)),  # 2048 / 4 by 512
        ("blockwise", "columns", (128, 2048)),
        ("distributed", "rows", (512, 512)),
        ("distributed", "columns", (2048, 128)),  # squared along the side that is whole
        ("distributed", "", (512, 2048)),
    ],
)
def test_what_a_tensor_parallel_rank_makes_orthogonal(
    mode: str, cut: str, sides: tuple[float, float]
) -> None:
    assert iterated(Matrix("one", 2048, 512, cut), 4, mode) == sides  # type: ignore[arg-type]


@given(
    counts=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 9)), min_size=1, max_size=4),
    ranks=st.integers(1, 40),
)
def test_the_fullest_rank_has_at_most_one_matrix_more_than_the_mean(
    counts: list[tuple[int, int]], ranks: int
) -> None:
    matrices = tuple(
        (Matrix(f"{i}", 64 * side, 64 * side, ""), count) for i, (count, side) in enumerate(counts)
    )
    busiest, fullest = spread(MatrixGroup(matrices, 1, "tp", ranks))
    mean = sum(m.size * count for m, count in matrices) / ranks
    assert mean <= fullest * (1 + 1e-12)
    assert all(0 <= own <= count for own, (_, count) in zip(busiest, matrices, strict=True))
    cost = [m.rows**3 for m, _ in matrices]
    load = sum(own * each for own, each in zip(busiest, cost, strict=True))
    total = sum(count * each for (_, count), each in zip(matrices, cost, strict=True))
    assert total / ranks <= load * (1 + 1e-12) <= total / ranks + 2 * max(cost)


def test_equal_matrices_go_round() -> None:
    one = Matrix("one", 8, 8, "")
    for count, ranks in ((7, 3), (6, 3), (2, 5), (100, 7)):
        assert spread(MatrixGroup(((one, count),), 1, "tp", ranks))[0] == (ceil(count / ranks),)


def added(muon: Muon, flop: float) -> float:
    """What Muon adds to a step on 8 GPUs, where only products take time, `flop` seconds per FLOP."""

    def products(op: Operator) -> float:
        return op.flops * flop if op.phase == "optimizer" else 0.0

    times = [step(one, predict=FREE, kernel=products).step_time for one in (by_muon(muon), job())]
    return times[0] - times[1]


SIDES = [(1024, 1024), (256, 1024), (256, 1024), (1024, 1024), (1024, 8192), (1024, 4096)]
"""Queries, keys, values, output, gate and up, down: 8 layers on 8 ranks, so each has one of either."""


@pytest.mark.parametrize("steps", [5, 10])
def test_the_step_ends_with_the_rank_that_has_most_to_do(steps: int) -> None:
    products = sum(steps * (4 * s**2 * n + 2 * s**3) for s, n in SIDES)
    assert added(Muon(steps=steps), flop=1e-9) == pytest.approx(1e-9 * products, rel=1e-9)


def test_small_matrices_take_what_launching_them_takes() -> None:
    """One call of the era's and 24 operations in a row for each, whatever they multiply."""
    pace = pace_of(job(), machine(1).gpu)
    each = constant("host_operation_seconds") * (pace.host + 24)
    assert added(Muon(), flop=0.0) == pytest.approx(len(SIDES) * each, rel=1e-9)


def test_one_rank_holds_one_moment_for_matrices_and_two_for_the_rest() -> None:
    one = replace(DENSE, tied_embeddings=True)
    matrices = whole_matrices(one)
    states = step(changed(by_muon(), gpus=1, global_batch=8), one).memory.parts["optimizer states"]
    by_adam = step(changed(job(), gpus=1, global_batch=8), one).memory.parts["optimizer states"]
    assert by_adam - states == pytest.approx(4 * matrices, rel=1e-12)


def test_states_of_a_rank_are_whole_matrices() -> None:
    """Two data-parallel ranks of a stage of one layer: the fuller one has the largest matrix at least."""
    found = step(by_muon(pipeline=4, tensor=1), replace(DENSE, layers=4))
    assert found.memory.parts["optimizer states"] >= 8 * 1024 * 8192
    mean = step(job(pipeline=4, tensor=1), replace(DENSE, layers=4)).memory.parts["optimizer states"]
    assert found.memory.parts["optimizer states"] < mean  # one moment less outweighs it here


@pytest.mark.parametrize("arch", [DENSE, MOE, GATED], ids=["dense", "moe", "shared"])
@pytest.mark.parametrize("mode", ["duplicated", "blockwise", "distributed"])
def test_exchanges_of_tensor_parallel_ranks_are_exposed(arch: Transformer, mode: str) -> None:
    layout = {"tensor": 4, "sequence_parallel": True}
    adam = {s.kind: s.exposed for s in step(job(**layout), arch).shares}
    found = step(by_muon(Muon(tp_mode=mode), **layout), arch)  # type: ignore[arg-type]
    shares = {s.kind: s.exposed for s in found.shares}
    assert sum(shares.values()) == pytest.approx(found.step_time, rel=1e-9)
    more = shares["tp"] - adam["tp"]
    if mode == "blockwise":
        assert more == pytest.approx(0.0, abs=1e-12)
    else:
        assert more > 0
        spans = [e for e in found.timeline.events if "momentum of Muon" in e.name]
        assert sum(e.end - e.start for e in spans if e.rank == 0) == pytest.approx(more, rel=1e-9)
        told = [u for u in found.collectives if "momentum of Muon" in u.purpose]
        assert sum(u.count * u.prediction.time for u in told) == pytest.approx(more, rel=1e-9)


def test_without_a_distributed_optimizer_every_rank_updates_all() -> None:
    shared, alone = (step(by_muon(zero=zero)).step_time for zero in (1, 0))
    adam, adam_alone = (step(job(zero=zero)).step_time for zero in (1, 0))
    assert alone - adam_alone > 4 * (shared - adam)


def test_tensor_parallel_blocks_are_the_least_work() -> None:
    times = {
        mode: step(by_muon(Muon(tp_mode=mode), tensor=4, sequence_parallel=True)).step_time  # type: ignore[arg-type]
        for mode in ("duplicated", "blockwise")
    }
    assert times["blockwise"] <= times["duplicated"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"layout": {"zero": 3}}, "layout.zero 3 cuts matrices into pieces; choose 1"),
        ({"layout": {"zero": 2}}, "layout.zero 2 cuts matrices into pieces; choose 1"),
        ({"layout": {"offload": ("optimizer",)}}, "layout.offload optimizer runs Adam on the host"),
        ({"lora": Lora(rank=8)}, "lora trains thin adapters"),
        ({"moment_dtype": "bf16"}, "moment_dtype bf16 is Adam's"),
        ({"master": "remainder"}, "master remainder is Adam's"),
    ],
    ids=str,
)
def test_what_muon_cannot_run_with(asked: dict[str, object], sentence: str) -> None:
    layout = asked.pop("layout", {})
    with pytest.raises(PlanError, match=f"case: optimizer muon .*{sentence}"):
        step(changed(by_muon(**layout), **asked))  # type: ignore[arg-type]


def test_settings_that_do_nothing_are_told() -> None:
    assert "muon does nothing: optimizer is adam." in step(changed(job(), muon=Muon(steps=9))).warnings
    foreign = step(changed(by_muon(), software="fsdp-2025")).warnings
    assert any("priced as Megatron-LM runs it; software fsdp-2025 has none" in one for one in foreign)


def test_a_checkpoint_has_one_moment_less() -> None:
    assert checkpoint_size(job(), DENSE) - checkpoint_size(by_muon(), DENSE) == 4 * whole_matrices(DENSE)


def test_what_adam_would_take_is_asked() -> None:
    asked = {w.name: w.step for w in what_ifs(by_muon(), DENSE, machine(1))}
    with_adam = asked["Adam instead of Muon"]
    assert with_adam is not None
    assert with_adam.step_time == step(job()).step_time
    assert "Adam instead of Muon" not in {w.name for w in what_ifs(job(), DENSE, machine(1))}


@pytest.mark.parametrize(("rows", "columns"), [(1024, 1024), (1024, 8192)])
def test_an_iteration_holds_a_normal_form_or_its_squares(rows: int, columns: int) -> None:
    # fp32 and 16 bits of a matrix; or twice 16 bits of it and of two squares of its shorter side
    matrix = Matrix("one", rows, columns, "rows")
    size = rows * columns
    alone = max(6 * size, 4 * size + 4 * 1024**2)
    assert iteration_bytes((MatrixGroup(((matrix, 3),), 1, "tp", 4),), "duplicated") == alone
    # tensor ranks gather it: fp32 of their part, and of the whole
    gathered = iteration_bytes((MatrixGroup(((matrix, 3),), 4, "tp", 4),), "duplicated")
    assert gathered == alone + 8 * matrix.size
