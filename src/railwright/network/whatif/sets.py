"""Any k failures at once: all sets of elements, class by class, or a sample of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from railwright.errors import PlanError
from railwright.network.routing.solution import Network
from railwright.network.whatif.classes import class_sets, scene, set_key
from railwright.network.whatif.elements import SLOW, elements, what
from railwright.network.whatif.pattern import Pattern, ranks
from railwright.network.whatif.single import DRAWS, Bases, Effect, rank

CLASS_WORK = 500_000
"""Classes of k-sets, times GPUs, up to which all are solved and not a sample: 30 s of CPU on 96 GPUs."""


@dataclass(frozen=True)
class RandomFailures:
    """What k failures at once cost, over all sets of k elements or a sample of them.

    slow         share of its rate that a slow cable keeps
    pool         elements that may fail
    sets         sets that the figures stand for: all, or the sample's size
    exact        whether that is all of them
    solved       sets that were solved; the others are alike
    p50, p90, p99  slowdown that this share of the sets does not exceed; None: nothing is left to run
    losing       share of sets that take GPUs away
    worst        the set that leaves the least work (`Effect.work`); of equals, the one that slows most
    """

    fabric: str
    pattern: str
    pxn: bool
    routing: str
    gpus: int
    time: float
    k: int
    kinds: tuple[str, ...]
    slow: float
    pool: int
    sets: int
    exact: bool
    solved: int
    p50: float | None
    p90: float | None
    p99: float | None
    losing: float
    worst: Effect


def random_failures(
    network: Network,
    pattern: Pattern,
    k: int = 2,
    samples: int = 200,
    seed: int = 0,
    kinds: Sequence[str] = (),
    slow: float = SLOW,
) -> RandomFailures:
    """Any k elements failed together.

    Under 'adaptive' all sets are taken, class by class, as long as classes times GPUs are at most
    CLASS_WORK; otherwise `samples` sets drawn evenly with `seed`, of which alike ones are solved once.  A
    pattern in order of ranks, or another routing, has no classes of sets: each is solved.
    Raises PlanError for a k that the fabric's elements cannot fill.
    """
    found = elements(network.fabric, kinds, slow)
    if not 1 <= k <= len(found):
        raise PlanError(
            f"{k} of {len(found)} elements cannot fail together; k lies between 1 and {len(found)}"
        )
    if samples < 1:
        raise PlanError(f"{samples} samples say nothing; take at least 1")
    symmetric = network.routing == "adaptive" and not pattern.in_order
    drawn = scene(network.fabric, pattern)
    whole = class_sets(drawn, found, k, CLASS_WORK // network.fabric.num_gpus) if symmetric else None
    base = Bases(network, pattern)
    if whole is not None:
        sets = [([found[i] for i in chosen], weight) for chosen, weight in whole]
    else:
        rng = np.random.default_rng(seed)
        chosen = [sorted(rng.choice(len(found), k, replace=False).tolist()) for _ in range(samples)]
        keys = [set_key(drawn, [found[i] for i in one]) if symmetric else n for n, one in enumerate(chosen)]
        first = {key: n for n, key in reversed(list(enumerate(keys)))}
        order = sorted(first.items(), key=lambda pair: pair[1])
        sets = [([found[i] for i in chosen[n]], keys.count(key)) for key, n in order]
    effects = [
        base.effect(members, [members], weight, [(members, network.seed + n % DRAWS)])
        for n, (members, weight) in enumerate(sets)
    ]
    weight = np.array([w for _, w in sets], np.float64)
    slowdown = np.array([np.inf if e.slowdown is None else e.slowdown for e in effects])
    rising = np.argsort(slowdown, kind="stable")
    reached = np.cumsum(weight[rising]) / weight.sum()
    at = [effects[rising[np.searchsorted(reached, q - 1e-12)]] for q in (0.5, 0.9, 0.99)]
    p50, p90, p99 = (effect.slowdown for effect in at)
    lost = np.array([e.lost_gpus > 0 for e in effects])
    return RandomFailures(
        network.fabric.name,
        pattern.name,
        pattern.pxn,
        network.routing,
        ranks(network.fabric, pattern),
        base.time(network.seed),
        k,
        tuple(sorted({what(network.fabric, e) for e in found})),
        slow,
        len(found),
        comb(len(found), k) if whole is not None else samples,
        whole is not None,
        len(sets),
        p50,
        p90,
        p99,
        float(weight[lost].sum() / weight.sum()),
        min(effects, key=rank),
    )
