"""What makes passes of a traced job differ: the work in them, which all stages share, and GPUs themselves.

ByteDance-Seed/StragglerAnalysis, trace AR (data/stragglers/microbatch_times.csv: six of the 44 steps that the
constants are from): a microbatch runs on four stages, each a group of GPUs of its own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from railwright.training.software.constants import constant
from railwright.training.software.stragglers import pass_wait

TABLE = Path(__file__).parent.parent / "data/stragglers/microbatch_times.csv"
STAGES, GROUP = 4, int(constant("compute_spread_group"))


def passes(way: str) -> np.ndarray:
    """Times by step, microbatch, replica and stage. [s]"""
    table = np.genfromtxt(TABLE, delimiter=",", names=True, skip_header=3)
    columns = np.stack([table[f"{way}{stage}"] for stage in range(STAGES)], axis=-1)
    return 1e-3 * columns.reshape(6, 32, 3, STAGES)


def relative(times: np.ndarray) -> np.ndarray:
    """Over the mean of the same replica and stage, with what all three replicas share taken out."""
    over = times / times.mean(axis=(0, 1)) - 1.0
    return (over - over.mean(axis=2, keepdims=True)) * np.sqrt(3 / 2)


def own(times: np.ndarray) -> np.ndarray:
    """What the other three stages do not say of a microbatch, less its place in the step and its step. [s]"""
    over = times / np.median(times, axis=(0, 1)) - 1.0
    left = np.empty_like(over)
    for stage in range(STAGES):
        said = np.median(np.delete(over, stage, axis=3), axis=3)
        slope = 1.0
        for _ in range(10):  # least squares, detours left out
            near = abs(over[..., stage] - slope * said) < 0.01
            slope = (over[..., stage] * said)[near].sum() / (said**2)[near].sum()
        left[..., stage] = over[..., stage] - slope * said
    left -= np.median(left, axis=(0, 2), keepdims=True)
    left -= np.median(left, axis=(1, 2), keepdims=True)
    return left * np.median(times)


@pytest.mark.parametrize(("way", "total"), [("f", 0.015), ("b", 0.022)])
def test_a_long_microbatch_is_long_on_every_stage(way: str, total: float) -> None:
    """So it is the work in it: nine tenths of what passes differ by is the same on GPUs of four stages."""
    spread = relative(passes(way))
    assert spread.std() == pytest.approx(total, rel=0.05)
    alike = np.corrcoef(spread.reshape(-1, STAGES).T)
    assert alike[np.triu_indices(STAGES, 1)].min() > 0.9


def test_it_is_attention_that_differs() -> None:
    """A microbatch that is longer by 1 ms forward is so by 2.5 backward: FlashAttention has two products
    forward and five backward; weights would have twice as many, and all passes together have 1.74."""
    forward, backward = passes("f"), passes("b")
    ahead, back = (relative(times) * times.mean(axis=(0, 1)) for times in (forward, backward))
    # another stage's forward pass stands for the work, so that no error of one pass counts twice
    pairs = [(one, other) for one in range(STAGES) for other in range(STAGES) if one != other]
    slopes = [
        (back[..., one] * ahead[..., other]).sum() / (ahead[..., one] * ahead[..., other]).sum()
        for one, other in pairs
    ]
    assert np.mean(slopes) == pytest.approx(2.5, abs=0.1)
    assert backward.sum() / forward.sum() == pytest.approx(1.74, abs=0.01)


@pytest.mark.parametrize("way", ["f", "b"])
def test_what_is_left_is_a_fifth_of_a_per_cent(way: str) -> None:
    times = passes(way)
    left = own(times) / np.median(times)
    median_of_three = np.sqrt(1 + 0.449)  # it has an error of its own
    assert 1.4826 * np.median(abs(left)) / median_of_three == pytest.approx(constant("pass_spread"), rel=0.2)


def test_detours_are_as_many_as_predicted() -> None:
    """Forward passes over 3 ms behind the same microbatch elsewhere; none is as far ahead."""
    times = passes("f")
    late = own(times)
    expected = GROUP * times.sum() * constant("detour_rate") * np.exp(-3e-3 / constant("detour_seconds"))
    assert (late > 3e-3).sum() == pytest.approx(expected, abs=2 * np.sqrt(expected))
    assert not (late < -3e-3).any()


def test_no_detour_hits_two_replicas_at_once() -> None:
    late = own(passes("f")) > 4e-3
    assert late.sum() >= 10
    assert late.sum(axis=2).max() == 1


@pytest.mark.parametrize(("groups", "measured"), [(4, 0.77e-3), (16, 1.73e-3), (64, 3.34e-3), (256, 6.09e-3)])
def test_the_slowest_of_many_passes_takes_as_long_as_measured(groups: int, measured: float) -> None:
    """Drawn from all 16,896 forward passes of the trace, whose shape no constant was made of."""
    seconds = 0.2219
    wait = pass_wait(groups, GROUP, seconds, constant("pass_spread") * seconds)
    assert wait == pytest.approx(measured, rel=0.3)
