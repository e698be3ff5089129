"""What steps wait for their data, beside PyTorch's own DataLoader in front of steps that sleep."""

from __future__ import annotations

import time

import pytest

from railwright.training.lanes.result import Feed

data = pytest.importorskip("torch.utils.data", reason="PyTorch is not installed: pip install torch")

PREPARE, BATCH, STEPS = 0.02, 4, 12
NOISE = 0.25
"""Of a machine with two cores that runs other tests."""


class Sequences:
    """Sequences that take PREPARE seconds each."""

    def __len__(self) -> int:
        return BATCH * (STEPS + 4)

    def __getitem__(self, number: int) -> int:
        time.sleep(PREPARE)
        return number


def measured(workers: int, compute: float) -> float:
    """Seconds of a step, in the steady state."""
    batches = iter(data.DataLoader(Sequences(), batch_size=BATCH, num_workers=workers))
    ends = []
    for _ in range(STEPS):
        next(batches)
        time.sleep(compute)
        ends.append(time.perf_counter())
    return (ends[-1] - ends[3]) / (STEPS - 4)


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("compute", [0.015, 0.1])
def test_steps_wait_as_with_pytorch(workers: int, compute: float) -> None:
    preparing = BATCH * PREPARE / max(workers, 1)
    feed = Feed(1.0, 1.0, 1.0, preparing=preparing, ahead=workers > 0)
    assert compute + feed.wait(compute) == pytest.approx(measured(workers, compute), rel=NOISE)
