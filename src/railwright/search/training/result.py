"""What a search found, and how it is known that nothing better was missed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from railwright.search.bounds.blocks import Refusal
from railwright.spec.training import TrainingJob
from railwright.training.lanes.result import StepResult
from railwright.training.memory.cached import Reserved


@dataclass(frozen=True)
class Candidate:
    """One layout, evaluated by the training room.

    setting  axis -> value
    job      the job with that layout
    step     its step; step_time [s]
    bound    what the screening said it takes at least [s]; 0 for the job's own layout
    network  bytes that one GPU sends per step in groups that span servers, of the stage that sends most
             [byte]
    held     what PyTorch's allocator holds of the fullest GPU; None where it has another one
    """

    setting: Mapping[str, Any]
    job: TrainingJob
    step: StepResult
    bound: float
    network: float
    held: Reserved | None = None

    @property
    def time(self) -> float:
        """Of its step. [s]"""
        return self.step.step_time

    @property
    def memory(self) -> float:
        """Of the fullest GPU. [byte]"""
        return self.step.memory.total


@dataclass(frozen=True)
class Effort:
    """What the search did.

    layouts     of the space that can work (`training.checks.plan.check`), all of them screened
    fitting     of these, whose memory bound is within a GPU
    classes     passes priced; collectives  prices asked of the network
    refined     bounds made closer with a layout's own passes
    evaluated   steps simulated
    overfull    of these, which would be listed if the allocator could hold them, one of each structure,
                microbatch and recomputation
    screening, seconds  time of the screening, and of everything [s]
    """

    layouts: int
    fitting: int
    classes: int
    collectives: int
    refined: int
    evaluated: int
    overfull: int
    screening: float
    seconds: float


@dataclass(frozen=True)
class SearchResult:
    """The best layouts of a space: of those whose tensors fit a GPU and that PyTorch's allocator can hold,
    unused segments given back or with segments that grow (`training.memory.cached.is_held`).

    best      fastest first, of equal times the leanest, then the nearest to the job's own; one per structure,
              microbatch and recomputation, placed as is best
    front     of all that were timed and can be held, those that no other beats in time, memory and network
              at once, fastest first
    proof     every layout that was not evaluated takes at least this [s], or is no faster than a variant of
              it in `best`, or does not fit; infinite where none is left
    overfull  whose tensors fit, which the allocator cannot hold, and which would be in `best` if it could,
              fastest first; at most as many as are asked for of `best`
    own       the job as written; own_refused says why it cannot run, '' where it can
    words     why the best one beats it
    refused   constraints that layouts of the space broke, most first
    priced    that the asked framework's software was predicted and not the job's own; '' where it is
    """

    objective: str
    best: tuple[Candidate, ...]
    front: tuple[Candidate, ...]
    proof: float
    overfull: tuple[Candidate, ...]
    own: Candidate | None
    own_refused: str
    words: tuple[str, ...]
    refused: tuple[Refusal, ...]
    effort: Effort
    priced: str = ""

    @property
    def ranked(self) -> tuple[Candidate, ...]:
        """All that are told, once: the best, then the others of the front."""
        listed = [one.setting for one in self.best]
        return (*self.best, *(one for one in self.front if one.setting not in listed))
