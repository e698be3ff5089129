"""Communications that run at once and meet on links: how much longer each takes.

Those that cross servers meet on NICs, of which each gets an even part.  Where GPUs have no scale-up links,
all meet on the GPUs' PCIe slots, whose bytes are shared max-min fairly, as links are in `network`: each
communication gets what it can use, up to an even part of what others leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from railwright.collectives.prediction import CollectivePrediction


class Uses(NamedTuple):
    """What a communication uses of the links that it shares with others.

    nic   whether it goes through NICs
    slot  part of the busiest GPU's PCIe slot that it fills when it runs alone, 0 to 1; 0 where GPUs have
          scale-up links
    """

    nic: bool = True
    slot: float = 0.0


NICS = Uses()
"""NICs alone."""


def on_links(answer: CollectivePrediction, crosses: bool) -> tuple[float, Uses]:
    """How long a collective is bound by links that others may use [s], and which those are.

    crosses  whether it leaves servers
    """
    slot = answer.slot_share
    if not slot:
        return (answer.bandwidth_bound if crosses else 0.0), NICS
    return answer.bandwidth_bound, Uses(crosses, slot)


def stretches(uses: Sequence[Uses]) -> list[float]:
    """How many times as long as alone each of some communications takes while all of them run.

    No link is asked for more than it has: n through NICs run at 1/n of their pace, and of what all then want
    of a slot each gets at most the level at which it is full.
    """
    if len(uses) == 1:
        return [1.0]
    crossing = float(sum(one.nic for one in uses))
    through_nics = [crossing if one.nic else 1.0 for one in uses]
    wanted = [one.slot / times for one, times in zip(uses, through_nics, strict=True)]
    level = _level(wanted)
    return [times * max(1.0, want / level) for times, want in zip(through_nics, wanted, strict=True)]


def _level(wanted: Sequence[float]) -> float:
    """The most that anyone gets of one slot, of which they want `wanted`; infinite where there is enough."""
    left, sharers = 1.0, len(wanted)
    if sum(wanted) <= left:
        return inf
    for want in sorted(wanted):
        if want * sharers > left:
            return left / sharers
        left, sharers = left - want, sharers - 1
    return inf
