"""Progress bars that tell steps of training: Trainer's, which has no name, and torchtune's.

Source: tqdm 4.70, std.py (EMA, format_meter); huggingface/transformers 5.24 (trainer_callback.py,
ProgressCallback); modelscope/ms-swift (trainers/patcher.py); pytorch/torchtune bd2a0fc7
(recipes/full_finetune_distributed.py, and the bars in docs/source/tutorials).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

_LABEL = r"^(?:\[[^\]]*\]:?\s*|\d+:\s+)*"
"""What launchers put before a line: '[rank0]:', '[default0]:', '0: '."""
_STATION = r"\s*\d+%\|[^|]*\|\s*(\d{1,12})/(\d{1,12})\s*\[[\d:]+<[^,\]]*,\s*(\d+\.?\d*|\?)(s/it|it/s)"
_BAR = re.compile(_LABEL + _STATION + r"\]")
_TUNED = re.compile(r"(?:^|\s)(\d{1,9})\|\d+\|Loss: [^|]*:" + _STATION)
_LOSS = re.compile(r"\{'(?:loss|train_runtime)': ")


def bar(text: str) -> tuple[int, int, float] | None:
    """(step, steps in all, seconds a step) that a progress bar without a name tells, or ms-swift's 'Train'.

    Trainer draws its training and its evaluations so.  The time is the moving average of `unblurred`, and 0
    where the bar begins. [s]
    """
    found = _BAR.match(text) if "%|" in text else None
    if found is None or (found[3] == "?") != (int(found[1]) == 0):
        return None
    if found[3] == "?":
        return 0, int(found[2]), 0.0
    seconds = _seconds(found[3], found[4])
    return None if seconds is None else (int(found[1]), int(found[2]), seconds)


class Tuned(NamedTuple):
    """A station of torchtune's bar: of which epoch, its step there, the steps of an epoch, and the moving
    average of `unblurred` [s]."""

    epoch: int
    step: int
    steps: int
    seconds: float


def tuned(text: str) -> Tuned | None:
    """What torchtune's bar tells, whose name is epoch, step and loss ('1|52|Loss: 2.37:   0%|…').

    It moves once for every step of the optimizer.  The step in its name is that before, until it is drawn
    again.
    """
    found = _TUNED.search(text) if "|Loss: " in text else None
    if found is None or found[4] == "?":
        return None
    seconds = _seconds(found[4], found[5])
    return None if seconds is None else Tuned(int(found[1]), int(found[2]), int(found[3]), seconds)


def _seconds(rate: str, unit: str) -> float | None:
    """Seconds a step of '6.87', 's/it'; None of a rate of 0."""
    value = float(rate)
    return None if not value else value if unit == "s/it" else 1 / value


NEWEST = 0.3
"""Share of the last step in tqdm's moving average (`smoothing`)."""


def faded(step: int) -> int:
    """Steps until a bar that begins with so many at once, which ran before a restart, tells a step's time.

    They weigh 0.3 (1 - 0.3)^n of its average after n more; from a thousandth of a step on nobody sees them.
    """
    return math.ceil(math.log(NEWEST * step / 0.001) / -math.log(1 - NEWEST))


def unblurred(averages: Mapping[int, float]) -> dict[int, float]:
    """Times of steps from tqdm's moving averages; the average itself where the step before is missing. [s]

    Of n values x the average is the sum of (1 - a)^(n-i) x_i a, divided by what it is of ones, 1 - (1 - a)^n.
    """
    sums = {step: mean * (1 - (1 - NEWEST) ** step) for step, mean in averages.items()}
    found = {
        step: (held - (1 - NEWEST) * sums[step - 1]) / NEWEST if step - 1 in sums else averages[step]
        for step, held in sums.items()
    }
    return {step: seconds for step, seconds in found.items() if seconds > 0.0}


def trains(text: str) -> bool:
    """Whether Trainer writes of training here, so that the bar before is that of training."""
    return "{'" in text and _LOSS.search(text) is not None
