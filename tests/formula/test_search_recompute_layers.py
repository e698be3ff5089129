"""How many layers of a stage are computed again, as an axis: its values by depth, its words, its exports."""

from __future__ import annotations

from typing import Any

import pytest

from railwright.errors import PlanError, SpecError
from railwright.search import Space, search
from railwright.search.bounds.blocks import blocks
from railwright.search.training.export import Hosts, export
from railwright.search.training.frameworks import FRAMEWORKS
from railwright.search.training.result import Candidate
from railwright.spec.training import TrainingJob
from railwright.training import peak_memory, simulate
from railwright.training.checks.fitting import check_memory
from search_cases import ALTERNATING
from training_cases import DENSE, job, machine

FABRIC = machine(1).network.fabric
PLAIN: dict[str, list[Any]] = {
    "tensor": [1],
    "schedule": ["auto"],
    "zero": [1],
    "micro_batch": [1],
    "overlap_dp": [True],
    "overlap_pp": [True],
}


def found(
    wanted: TrainingJob, arch: Any = DENSE, **axes: list[Any]
) -> list[tuple[int, Any, tuple[Any, ...]]]:
    """(stages, layers again, values of `recompute`) of every block of a space."""
    space = Space.of({**PLAIN, **axes})
    made, _ = blocks(space, wanted, arch, FABRIC)
    return [(b.structure["pipeline"], b.structure["recompute_layers"], b.of("recompute")) for b in made]


def test_words_stand_for_numbers_of_the_largest_piece() -> None:
    # 8 layers on one stage, on two and on four; all of a piece is no number but the default
    every = found(job(batch=16), pipeline=[2, 4], virtual_pipeline=[1], recompute=["full"],
                  recompute_layers=[None, "every"])  # fmt: skip
    assert [(p, n) for p, n, _ in every] == [(2, None), (2, 1), (2, 2), (2, 3), (4, None), (4, 1)]
    few = found(job(batch=16), pipeline=[1], recompute=["full"], recompute_layers=["quarters"])
    assert [n for _, n, _ in few] == [2, 4, 6]


def test_layers_are_counted_beside_full_recomputation_alone() -> None:
    listed = found(job(batch=16), pipeline=[1], recompute_layers=[None, 3])
    assert listed == [(1, None, ("none", "selective", "full")), (1, 3, ("full",))]
    # without 'all' among the values nothing is lost of what computes no whole layer again
    listed = found(job(batch=16), pipeline=[1], recompute_layers=[3])
    assert listed == [(1, None, ("none", "selective")), (1, 3, ("full",))]
    assert found(job(batch=16), pipeline=[1], recompute=["none"], recompute_layers=[3]) == [
        (1, None, ("none",))
    ]
    assert found(job(batch=16), pipeline=[1], recompute=["full"], recompute_layers=[3]) == [(1, 3, ("full",))]


def test_as_many_as_a_piece_has_are_all_but_for_extra_prediction_layers() -> None:
    assert [n for _, n, _ in found(job(batch=16), pipeline=[1], recompute_layers=[None, 8])] == [None]
    assert [n for _, n, _ in found(job(batch=16), pipeline=[1], recompute_layers=[8])] == [None, 8]
    made = found(job(batch=16), ALTERNATING, pipeline=[1], expert=[1], recompute_layers=[None, 6])
    assert [n for _, n, _ in made] == [None, 6]


def test_a_jobs_own_number_is_tried_where_pieces_are_as_large() -> None:
    own = job(batch=16, recompute="full", recompute_layers=3)
    tried = [(p, n) for p, n, _ in found(own, pipeline=[1, 2, 4], virtual_pipeline=[1])]
    assert tried == [(1, None), (1, 3), (2, None), (2, 3), (4, None)]


def test_numbers_that_are_asked_for_and_too_large_are_counted() -> None:
    space = Space.of({**PLAIN, "pipeline": [2], "virtual_pipeline": [1], "recompute_layers": [None, 5]})
    _, refused = blocks(space, job(batch=16), DENSE, FABRIC)
    assert "recompute_layers is 5, but a stage has at most 4 layers" in refused[0].example


@pytest.mark.parametrize("value", [0, "half", True])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(SpecError, match="recompute_layers"):
        Space.of({"recompute_layers": [value]})


def test_the_best_says_how_many_layers_it_computes_again() -> None:
    axes = {"tensor": (1,), "pipeline": (2,), "virtual_pipeline": (1,), "zero": (1,), "micro_batch": (1,)}
    space = Space({**axes, "recompute": ("full",), "recompute_layers": (2,), "schedule": ("auto",)})
    own = job(batch=32, pipeline=2, recompute="full")
    words = search(own, DENSE, machine(2), space, top=1, steps=0).words
    assert any("recompute_layers all -> 2" in sentence for sentence in words)
    assert any("recomputation is full for 2 layers of each stage instead of full" in said for said in words)


def test_a_search_that_tried_no_fewer_layers_names_the_axis() -> None:
    axes = {"tensor": (1,), "pipeline": (2,), "virtual_pipeline": (1,), "zero": (1,), "micro_batch": (1,)}
    fixed = {**axes, "recompute": ("full",), "schedule": ("auto",)}

    def hint(**more: Any) -> bool:
        words = search(job(batch=32), DENSE, machine(2), Space({**fixed, **more}), top=1, steps=0).words
        return any("recompute_layers: [null, quarters]" in sentence for sentence in words)

    assert hint()
    assert not hint(recompute_layers=(None,))
    assert not hint(recompute=("none",))
    assert not hint(pipeline=(8,))


def exported(form: str, **layout: object) -> str:
    one = job(**layout)  # type: ignore[arg-type]
    step = simulate(job(), DENSE, machine(2))  # only the head is of the step
    return export(Candidate({}, one, step, 0.0, 0.0), DENSE, Hosts(16), form)


def test_megatron_is_told_the_number_and_the_method() -> None:
    text = exported("megatron", recompute="full", recompute_layers=3)
    assert "--recompute-granularity full" in text
    assert "--recompute-method block" in text
    assert "--recompute-num-layers 3" in text
    assert "--recompute-method uniform" in exported("megatron", recompute="full")
    assert "block" in exported("nemo", recompute="full", recompute_layers=3)


def test_torchtitan_has_no_first_layers() -> None:
    own = job(batch=32, zero=3, recompute="full", recompute_layers=3)
    assert "recomputation of the first layers of a stage" in FRAMEWORKS["torchtitan"].lacks(own, DENSE, 8)
    assert not [w for w in FRAMEWORKS["megatron"].lacks(own, DENSE, 8) if "recomput" in w]
    assert "# recomputation of the first 3 layers" in exported(
        "torchtitan", recompute="full", recompute_layers=3
    )


def test_what_would_fit_names_the_fewest_quarters_of_a_stage() -> None:
    def need(**again: object) -> float:
        one = job(batch=128, sequence=4096, micro_batch=4, pipeline=2, **again)  # type: ignore[arg-type]
        return peak_memory(one, DENSE, machine(4).network.fabric, 80e9).total

    none, two = need(), need(recompute="full", recompute_layers=2)
    own = job(batch=128, sequence=4096, micro_batch=4, pipeline=2)
    with pytest.raises(PlanError, match=r"recompute: full with recompute_layers: (2|3) ") as refused:
        check_memory(own, DENSE, machine(4).network.fabric, two + 0.2 * (none - two), machine(4).server)
    assert "recompute_layers: 1" not in str(refused.value)
    some = job(batch=128, sequence=4096, micro_batch=4, pipeline=2, recompute="full", recompute_layers=1)
    with pytest.raises(PlanError, match=r"recompute_layers: 3 |no recompute_layers"):
        check_memory(some, DENSE, machine(4).network.fabric, need(recompute="full") * 1.03, machine(4).server)
