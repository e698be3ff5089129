"""What a run keeps when it is interrupted: saved work, and replicas that train on.

Closed form and Monte Carlo take the same.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Checkpoints:
    """When the work of a run is saved. [s]

    block       what one checkpoint keeps the job from training
    interval    training between two of them
    lag         from the end of one until it is whole
    stored      training between two that reach storage; 0 where there is one level
    stored_lag  from the end of one of those until storage has it
    reload      what reading it takes longer than reading the newest
    """

    block: float
    interval: float
    lag: float = 0.0
    stored: float = 0.0
    stored_lag: float = 0.0
    reload: float = 0.0


@dataclass(frozen=True)
class Elastic:
    """A job whose other replicas train on while some are out: it loses speed, and no work.

    share  of the speed that goes with a node: that of its replicas, or of the one that it is a part of
    out    how long it is out [s]
    """

    share: float
    out: float
