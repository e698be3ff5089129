"""Copies of what tensor ranks gather and scatter where the batch comes first: which, and how large."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model.shape.architecture import Operator
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.layers.along_sequence import copies_rows
from railwright.training.layers.operators import operators_of
from training_cases import DENSE, MOE, changed, job, machine, priced

ROWS = 2 * 512 * DENSE.hidden * 2
"""All rows of a microbatch in 16 bits. [byte]"""


def asked(
    software: str = "fsdp-2025", dtype: str = "bf16", tp: bool = False, **layout: object
) -> TrainingJob:
    parallel = {"tensor": 4, "sequence_parallel": True, "zero": 3, "overlap": Overlap(tp=tp), **layout}
    wanted = job(batch=64, micro_batch=2, sequence=512, **parallel)  # type: ignore[arg-type]
    return changed(wanted, software=software, dtype=dtype)


def copies(found: tuple[Operator, ...]) -> dict[str, float]:
    """Bytes moved beside which product, over those of all rows."""
    return {op.name.removesuffix(", backward"): op.bytes / ROWS for op in found if " rows" in op.name}


QKV, OUT = "qkv projection, gathered rows", "output projection, scattered rows"
UP, DOWN = "mlp up, gathered rows", "mlp down, scattered rows"


def test_each_gather_is_copied_behind_it_and_each_reduction_before() -> None:
    """Once read and once written; backward the other way round."""
    layer = operators_of(asked(), DENSE, "dense", machine().gpu)
    assert copies(layer.forward) == dict.fromkeys((QKV, OUT, UP, DOWN), 2)
    assert copies(layer.backward_input) == dict.fromkeys((DOWN, UP, OUT, QKV), 2)
    assert not copies(layer.backward_weight)
    assert not copies(layer.recomputed)


def test_asynchronous_tensor_parallelism_adds_partial_sums_where_a_product_hides_them() -> None:
    """Those of several products added up are reduced in the open."""
    layer = operators_of(asked(tp=True), DENSE, "dense", machine().gpu)
    assert copies(layer.forward) == {QKV: 2, OUT: 1, UP: 2, DOWN: 1}
    assert copies(layer.backward_input) == dict.fromkeys((DOWN, UP, OUT, QKV), 2)
    plain = operators_of(asked(tp=True), replace(DENSE, gated=False), "dense", machine().gpu)
    assert copies(plain.backward_input) == {DOWN: 2, UP: 1, OUT: 2, QKV: 2}


@pytest.mark.parametrize(("dtype", "gathered"), [("fp8", 1), ("fp8_rowwise", 2), ("mxfp8", 2)])
def test_what_is_gathered_in_8_bits_is_copied_in_8(dtype: str, gathered: float) -> None:
    layer = operators_of(asked(dtype=dtype), DENSE, "dense", machine().gpu)
    assert copies(layer.forward) == {QKV: gathered, OUT: 2, UP: gathered, DOWN: 2}
    assert copies(layer.backward_input) == {DOWN: gathered, UP: 2, OUT: gathered, QKV: 2}


def test_operators_that_run_again_alone_gather_again_and_scatter_nothing() -> None:
    wanted = asked(recompute="selective", recompute_modules=("ops",))
    assert copies(operators_of(wanted, DENSE, "dense", machine().gpu).recomputed) == {QKV: 2, UP: 2}


def test_a_layer_that_runs_again_whole_leaves_out_its_last_reduction() -> None:
    """Nobody reads it: of four copies forward three are made again."""
    found = {}
    for how in ("none", "full"):
        wanted = asked(recompute=how, zero=0)
        step = simulate(wanted, DENSE, machine(1), predict=priced(0), kernel=of_copies, must_fit=False)
        found[how] = step.step_time
    assert found["full"] / found["none"] == pytest.approx((4 + 4 + 3) / (4 + 4))


def of_copies(op: Operator) -> float:
    """A second for every copy, and nothing for all else."""
    return 1.0 if " rows" in op.name else 0.0


def test_megatron_s_tensors_and_whole_rows_are_not_copied() -> None:
    assert copies_rows(asked())
    for other in (asked("megatron-2025"), asked("fsdp-2023"), asked("xla-2025"), asked(tensor=1)):
        assert not copies_rows(other)
    assert not copies_rows(asked(sequence_parallel=False))


def test_rows_of_routed_experts_are_not_among_them() -> None:
    layer = operators_of(asked(), MOE, "moe", machine().gpu)
    assert set(copies(layer.forward)) == {QKV, OUT}
