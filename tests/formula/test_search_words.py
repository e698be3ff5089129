"""What a search says of the layout it found against the one as written."""

from __future__ import annotations

from railwright.search import Space, search
from training_cases import DENSE, job, machine

FIXED: dict[str, tuple[object, ...]] = {
    "pipeline": (1,),
    "context": (1,),
    "micro_batch": (1,),
    "placement": ("packed",),
    "schedule": ("auto",),
    "sequence_parallel": (False,),
    "overlap_tp": (False,),
    "overlap_dp": (True,),
}


def said(objective: str = "time", **axes: tuple[object, ...]) -> tuple[str, ...]:
    space = Space({**FIXED, **axes})
    return search(job(tensor=2), DENSE, machine(2), space, objective=objective).words  # type: ignore[arg-type]


def test_a_leaner_layout_that_is_slower_is_not_called_slower_than_the_best() -> None:
    """The own layout recomputes nothing and shards optimizer states: the leanest takes longer."""
    words = said("memory", tensor=(2, 4), recompute=("none", "full"), zero=(1, 3))
    assert words[0].startswith("The leanest layout takes ")
    assert "fewer steps in the same time" in words[0]
    assert "recompute none -> full" in words[0]
    assert words[-1].startswith("Memory goes from ")


def test_a_space_without_the_own_layout_may_hold_nothing_better() -> None:
    words = said(tensor=(8,), recompute=("full",), zero=(0,))
    assert "best of the space: " not in words[0]
    assert "takes" in words[0]
    assert "fewer steps in the same time" in words[0]


def test_the_own_layout_can_be_the_best() -> None:
    (sentence,) = said(tensor=(2,), recompute=("none",), zero=(1,))
    assert sentence.startswith("The layout as written is the best of the space: ")


def test_a_bubble_of_another_schedule_is_not_explained_by_the_form_of_1f1b() -> None:
    space = Space({**FIXED, "tensor": (1,), "pipeline": (4,), "schedule": ("zb-h1",), "recompute": ("none",)})
    words = search(job(pipeline=4), DENSE, machine(2), space).words
    (bubble,) = [w for w in words if w.startswith("Pipeline bubble")]
    assert "schedule zb-h1 instead of auto, microbatches are 16 instead of 16" in bubble
    assert "(p - 1)" not in bubble
