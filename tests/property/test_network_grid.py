"""Every engine on a grid of fabrics, patterns, routings and faults: physics, bytes, agreement, repeats."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import network_grid as grid
from railwright.network import Solution

THOROUGH = bool(os.environ.get("RAILWRIGHT_THOROUGH"))
CASES, MOST_GPUS = (6_000, 130) if THOROUGH else (600, 48)
BATCH = 30
"""Cases of one test: every pattern under every routing."""
LONGEST = 120
"""Seconds after which a batch counts as hung, 60 times what it takes."""


@pytest.fixture
def deadline() -> Iterator[None]:
    def hang(*_: object) -> None:
        raise TimeoutError(f"a batch of {BATCH} cases did not end within {LONGEST} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(LONGEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("first", range(0, CASES, BATCH))
def test_no_engine_breaks_physics_loses_bytes_or_disagrees(first: int, deadline: None) -> None:
    solved = 0
    for number in range(first, first + BATCH):
        case = grid.case(number, MOST_GPUS)
        if case is not None:
            found = grid.answers(case)
            look(case, found, number)
            solved += not isinstance(found["auto"], str)
            if number % 5 == 0:
                assert grid.digest(grid.answers(case)) == grid.digest(found), case.what
    assert solved >= 3, "the grid is nearly empty here"


def look(case: grid.Case, found: dict[str, Solution | str], number: int) -> None:
    fabric, traffic = case.network.fabric, case.traffic
    auto = found["auto"]
    if isinstance(auto, str):
        assert auto.endswith((".", "'")), case.what
        assert all(isinstance(answer, str) for answer in found.values()), case.what
        return
    floor = grid.bounds(fabric, traffic, number)
    for name, answer in found.items():
        told = f"{case.what}, {name}"
        assert not isinstance(answer, str), f"{told}: {answer}"
        for why, seconds in floor.items():
            assert answer.time >= seconds * (1 - 1e-9), f"{told}: below the bound of {why}"
        assert grid.unbalanced(fabric, traffic, answer.load) < 1e-9, told
        assert np.all(np.isfinite(answer.finish)), told
        assert np.all(answer.load <= fabric.capacity * answer.time * (1 + 1e-9)), told
        if name != "fifo" or not (case.network.routing == "adaptive" or case.network.qps > 1):
            # the FIFO deals whole chunks over the paths of a spread
            assert answer.load == pytest.approx(auto.load, rel=1e-9, abs=1e-9), told
        if name == "bound":
            assert answer.time <= auto.time * (1 + 1e-9), told
            assert np.all(answer.finish <= auto.time * (1 + 1e-9)), told
        elif name == "last":
            assert answer.exact, told
            assert answer.time == pytest.approx(auto.time, rel=1e-8), told
            assert np.all(answer.finish >= auto.finish * (1 - 1e-8)), told
        elif name == "fifo":
            assert answer.finish.max(initial=0.0) == answer.time, told
        else:
            assert answer.exact, told
            assert answer.finish == pytest.approx(auto.finish, rel=1e-9), told
            assert np.array_equal(answer.hops, auto.hops), told


def test_a_fresh_process_with_other_hashes_gives_the_same_bytes() -> None:
    numbers = range(0, 60, 1 if THOROUGH else 3)
    here = "".join(
        grid.digest(grid.answers(case)) + "\n"
        for n in numbers
        if (case := grid.case(n, MOST_GPUS)) is not None
    )
    code = f"""
import sys; sys.path.insert(0, {str(Path(grid.__file__).parent)!r})
import network_grid as grid
for n in {numbers!r}:
    case = grid.case(n, {MOST_GPUS})
    if case is not None:
        print(grid.digest(grid.answers(case)))
"""
    for seed in ("1", "4711"):
        there = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        assert there.stdout == here
