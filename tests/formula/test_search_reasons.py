"""Why a share of the best layout's step is another than of the one as written."""

from __future__ import annotations

from railwright.model.shape.architecture import Transformer
from railwright.search.space.axes import setting_of
from railwright.search.training.reasons import reason
from railwright.search.training.result import Candidate
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from training_cases import DENSE, MOE, job, machine

LONG: dict[str, int] = {"sequence": 4096, "batch": 64}
SP: dict[str, object] = {"tensor": 2, "sequence_parallel": True}


def simulated(one: TrainingJob, arch: Transformer = DENSE) -> Candidate:
    return Candidate(setting_of(one), one, simulate(one, arch, machine(2)), 0.0, 0.0)


def why(kind: str, own: TrainingJob, best: TrainingJob, arch: Transformer = DENSE) -> str:
    return reason(kind, simulated(own, arch), simulated(best, arch))


def test_compute_beside_which_parameters_are_gathered_takes_longer() -> None:
    """From zero 1 to 3, and back; once a step is beside few passes, and what is not hidden beside none."""
    once, always = (job(zero=zero, **LONG) for zero in (1, 3))
    gathered = "slowed by gathers of parameters"
    assert f"it is {gathered} beside it" in why("compute", once, always)
    assert f"it is no longer {gathered}" in why("compute", always, once)
    shown = job(zero=3, overlap=Overlap(dp=False), **LONG)
    assert gathered not in why("compute", once, shown)
    assert why("compute", job(zero=0, **LONG), once) == ""


def test_hidden_tensor_ranks_are_not_blamed_alone() -> None:
    own, best = job(**SP, **LONG), job(zero=3, overlap=Overlap(tp=True), **SP, **LONG)
    told = why("compute", own, best)
    assert "it is slowed by tensor-parallel communication beside it" in told
    assert "it is slowed by gathers of parameters beside it" in told


def test_gradients_of_every_microbatch_are_reduced_beside_compute_where_there_are_several() -> None:
    told = "it is slowed by reductions of every microbatch's gradients beside it"
    assert told in why("compute", job(zero=1, **LONG), job(zero=2, **LONG))
    one = {"sequence": 4096, "batch": 16}
    assert told not in why("compute", job(zero=1, **one), job(zero=2, **one))


def test_a_bubble_of_pairs_is_not_explained_by_the_form_of_1f1b() -> None:
    """Two passes at once fill and drain a pipeline otherwise: the form says 1 / (2 x 8) = 6.2 % too."""
    staged: dict[str, object] = {"pipeline": 2, "virtual_pipeline": 2, "expert": 4, **LONG}
    alone, paired = job(**staged), job(overlap=Overlap(ep=True), **staged)
    told = why("bubble", job(expert=4, **LONG), paired, MOE)
    assert "(p - 1)" not in told
    assert "stages are 2 instead of 1" in told
    assert "passes run in pairs" in told
    assert "passes no longer run in pairs" in why("bubble", paired, alone, MOE)


def test_a_bubble_of_uneven_stages_is_not_explained_by_the_form() -> None:
    """Six layers before two: the second stage waits for the first in every microbatch, the first hardly."""
    even, uneven = (job(pipeline=2, layers_per_stage=sizes, **LONG) for sizes in (None, (6, 2)))
    assert "(p - 1) / (v m) is 1 / (1 x 8) = 12.5% instead of 0 (one stage)" in why(
        "bubble", job(**LONG), even
    )
    assert why("bubble", job(**LONG), uneven) == (
        "stages are 2 instead of 1, microbatches are 8 instead of 4"
    )
