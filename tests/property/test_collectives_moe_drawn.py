"""Drawn tokens of an expert group load NICs and GPUs as the closed form says."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from railwright.collectives.moe_routing import exchanged

TOKENS = 400
"""Drawn for each rank; a node's mean load is then known to about 2 %."""


@pytest.mark.parametrize(
    ("experts", "parts", "topk", "limit"),
    [
        (256, (8, 56), 8, None),
        (64, (8, 56), 8, 4),
        (256, (32, 32), 8, 4),
        (96, (4, 8, 8, 4), 6, 2),
        (96, (4, 8, 8, 4), 6, 3),
        (48, (3, 8, 5), 4, 2),
        (48, (8, 8), 2, 9),
    ],
)
def test_drawn_tokens_load_nics_and_gpus_alike(
    experts: int, parts: tuple[int, ...], topk: int, limit: int | None
) -> None:
    rng = np.random.default_rng(7)
    ranks, nodes = sum(parts), len(parts)
    node = np.repeat(np.arange(nodes), parts)
    holder = np.repeat(np.arange(ranks), experts // ranks)
    kept = nodes if limit is None or limit >= topk else min(limit, nodes)
    sets = list(combinations(range(nodes), kept))
    weight = np.array([sum(parts[i] for i in one) for one in sets], float)
    pools = [np.flatnonzero(np.isin(node[holder], one)) for one in sets]
    sent, arrived, passed_on, load = np.zeros(ranks), np.zeros(nodes), np.zeros(ranks), np.zeros(ranks)
    for rank in range(ranks):
        for which in rng.choice(len(sets), TOKENS, p=weight / weight.sum()):
            gpus = holder[rng.choice(pools[which], topk, replace=False)]
            np.add.at(load, gpus, 1)
            gpus = np.unique(gpus)
            away = np.setdiff1d(node[gpus], node[rank])
            sent[rank] += len(away)
            arrived[away] += 1
            passed_on[gpus] += 1
    of_node = np.bincount(node, sent) / np.array(parts)
    busiest = max(of_node.max(), (arrived / np.array(parts)).max()) / TOKENS
    answer = exchanged(experts, parts, topk, limit)
    assert answer.between * (1 - min(parts) / ranks) == pytest.approx(busiest, rel=0.05)
    assert answer.inside == pytest.approx(
        (np.bincount(node, passed_on) / np.array(parts)).max() / TOKENS, rel=0.05
    )
    # every GPU computes as much, whatever is kept
    assert np.bincount(node, load) / np.array(parts) == pytest.approx(topk * TOKENS, rel=0.05)
