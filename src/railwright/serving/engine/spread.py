"""How unequal the contexts of requests that decode together are: from the lengths a client sends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright.serving.clients.client import Workload
from railwright.serving.kernels.times import Floats

POINTS = 400


@dataclass(frozen=True, eq=False)
class Spread:
    """Contexts of a request at a random decode step: it grows from its prompt to prompt and answer.

    contexts  (P,) rising [token];  below  (P,) share of decode steps with a context below
    """

    contexts: Floats
    below: Floats

    @property
    def mean(self) -> float:
        """Mean context. [token]"""
        return float(self._most(np.array([1.0]))[0])

    def longest(self, requests: Floats) -> Floats:
        """Longest context of so many requests drawn apart, over the mean one."""
        return self._most(np.maximum(np.asarray(requests, float), 1.0)) / self.mean

    def _most(self, requests: Floats) -> Floats:
        """Mean of the longest: the integral of the chance that it is not below. [token]"""
        chance = 1.0 - self.below[None, :] ** np.ravel(requests)[:, None]
        between = (chance[:, 1:] + chance[:, :-1]) / 2.0
        found = self.contexts[0] + between @ np.diff(self.contexts)
        return np.asarray(found).reshape(np.shape(requests))


def spread_of(work: Workload) -> Spread | None:
    """The spread of these requests' contexts, None where none decodes."""
    prompt, answer = np.asarray(work.prompt, float), np.asarray(work.output, float)
    steps = float(answer.sum())
    first, last = float(prompt.min()), float((prompt + answer).max())
    if steps <= 0 or last <= first:
        return None
    contexts = np.linspace(first, last, POINTS)
    return Spread(contexts, (_beyond(contexts, prompt) - _beyond(contexts, prompt + answer)) / steps)


def _beyond(contexts: Floats, starts: Floats) -> Floats:
    """By how much each context is beyond all starts that are less, in all. [token]"""
    starts = np.sort(starts)
    less = np.searchsorted(starts, contexts)
    return np.asarray(contexts * less - np.concatenate([[0.0], np.cumsum(starts)])[less])
