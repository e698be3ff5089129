"""What a diagnosis says: suspects in order, what cannot be told apart, and the cheapest next test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suspect:
    """One fault that the evidence speaks for.

    element       the most probable reading
    kind          'gpu', 'nic', 'cable', 'leaf', 'spine', 'core', 'node' or 'rank'
    probability   that this fault exists: that of `element` and of `alternatives` together
    alternatives  (element, kind, probability) of every reading that this evidence meets alike,
                  `element` first, twelve at most
    readings      how many there are
    left          part of the rate left; 1 where it slows nothing, None where nothing was measured
    way           'both', 'out' or 'in' (as seen from the GPU)
    evidence      what speaks for it, strongest first
    against       tests through it that were sound
    gpus          GPUs it touches
    blast         what it takes with it, in words
    next_test     what would settle or confirm it
    """

    element: str
    kind: str
    probability: float
    alternatives: tuple[tuple[str, str, float], ...]
    readings: int
    left: float | None
    way: str
    evidence: tuple[str, ...]
    against: int
    gpus: int
    blast: str
    next_test: str


@dataclass(frozen=True)
class NextTest:
    """A test that would tell suspects apart.

    command   ready to be run
    between   the elements it tells apart
    gain      bits that it is expected to bring
    """

    command: str
    between: tuple[str, ...]
    gain: float


@dataclass(frozen=True)
class Diagnosis:
    """The whole answer.

    suspects        every fault of probability 2 % or more, the most probable first
    none            probability that nothing is at fault
    expected        number of faults expected
    unidentifiable  what this evidence cannot tell, in sentences
    untested        elements by kind that no evidence touches
    next_tests      the best first
    notes           what was seen and is no fault, or could not be used
    """

    suspects: tuple[Suspect, ...]
    none: float
    expected: float
    unidentifiable: tuple[str, ...]
    untested: dict[str, int]
    next_tests: tuple[NextTest, ...]
    notes: tuple[str, ...]

    @property
    def faults(self) -> tuple[Suspect, ...]:
        """Suspects that are more probable than not."""
        return tuple(s for s in self.suspects if s.probability >= 0.5)
