"""Where the wall time goes, to first order in rare interruptions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.reliability.closed import Figures, losses
from railwright.reliability.protection import Checkpoints

MTTI = 1e8
"""So rare that an interruption strikes neither another's recovery nor the work that it lost. [s]"""


def lost(severe: float = 0.0, spoiled: float = 0.0, **saving: float) -> dict[str, float]:
    """Mean seconds that an interruption costs, by what they go to."""
    saved = replace(Checkpoints(block=0.0, interval=600.0), **saving)
    figures = Figures(MTTI, 300.0, saved, spoiled=spoiled, severe=severe)
    return {name: share * MTTI for name, share in losses(figures)}


def test_an_interruption_costs_its_recovery_and_half_an_interval() -> None:
    assert lost() == pytest.approx({"recovery": 300, "work since the last checkpoint": 300}, rel=1e-3)


def test_a_checkpoint_that_is_whole_later_costs_its_lag_too() -> None:
    assert lost(lag=120.0)["work since the last checkpoint"] == pytest.approx(300 + 120, rel=1e-3)


def test_falling_back_to_storage_costs_half_of_what_lies_between_and_the_reading() -> None:
    """A quarter of the interruptions leaves one in ten checkpoints, which storage has a minute after its end:
    half of 6,000 s are lost instead of half of 600, and a minute more, and 200 s read."""
    found = lost(severe=0.25, stored=6000.0, stored_lag=60.0, reload=200.0)
    back = (6000 - 600) / 2 + 60 + 200
    assert found["work back to the checkpoint in storage"] == pytest.approx(0.25 * back, rel=1e-3)
    assert found["recovery"] == pytest.approx(300, rel=1e-3)


def test_spoiled_work_is_lost_whole() -> None:
    assert lost(spoiled=50.0)["work spoiled before it was noticed"] == pytest.approx(50, rel=1e-3)


def test_checkpoints_cost_what_they_block() -> None:
    assert lost(block=6.0)["writing checkpoints"] / MTTI == pytest.approx(6 / 606, rel=1e-3)
