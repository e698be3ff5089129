"""How unequal the contexts of requests that decode together are: from the lengths a client sends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright.serving.client import Workload
from railwright.serving.kernels import Floats

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
        found = self.contexts[0] + np.trapezoid(chance, self.contexts, axis=1)
        return np.asarray(found).reshape(np.shape(requests))


def spread_of(work: Workload) -> Spread | None:
    """The spread of these requests' contexts, None where none decodes."""
    prompt, answer = np.asarray(work.prompt, float), np.asarray(work.output, float)
    steps = float(answer.sum())
    first, last = float(prompt.min()), float((prompt + answer).max())
    if steps <= 0 or last <= first:
        return None
    contexts = np.linspace(first, last, POINTS)
    below = np.array([np.clip(c - prompt, 0.0, answer).sum() for c in contexts]) / steps
    return Spread(contexts, below)
