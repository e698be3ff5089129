"""Elements of one class cost the same: every element solved by itself, and every pair."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from railwright.errors import PlanError
from railwright.network import Network
from railwright.network.whatif.classes import class_sets, classes, scene, set_key
from railwright.network.whatif.elements import elements, name
from railwright.network.whatif.pattern import Pattern
from railwright.network.whatif.price import healthy, price
from whatif_cases import all_to_all, brute_force, fabrics, patterns, planes_with_a_dead_leaf


@settings(max_examples=12)
@given(st.data())
def test_every_element_of_a_class_costs_what_its_first_costs(data) -> None:
    built = data.draw(fabrics(most_gpus=24))
    pattern = data.draw(patterns(built))
    network = Network(built)
    try:
        healthy(network, pattern)
    except PlanError:
        assume(False)
    check(network, pattern)


def test_where_order_alone_tells_who_is_left_out_each_element_is_a_class_of_its_own() -> None:
    network = Network(planes_with_a_dead_leaf())
    costs = check(network, all_to_all(network.fabric, pxn=False))
    assert {0.75, 0.9} <= {round(x, 9) for x in costs}


def check(network: Network, pattern: Pattern) -> list[float]:
    """Every element's slowdown, each solved by itself, which is that of the first of its class."""
    built = network.fabric
    found = elements(built)
    slowdown = brute_force(network, pattern)
    for part in classes(built, [pattern], found):
        of_class = [slowdown[i] for i in part]
        told = f"{pattern.name} pxn={pattern.pxn}: " + ", ".join(
            f"{found[i].kind} {name(built, found[i])} {slowdown[i]:.6g}" for i in part
        )
        assert of_class == pytest.approx([of_class[0]] * len(part), rel=1e-9), told
    return slowdown


@settings(max_examples=6)
@given(st.data())
def test_classes_of_pairs_cover_all_pairs_and_each_pair_costs_what_its_class_costs(data) -> None:
    built = data.draw(fabrics(most_gpus=8, faults=False))
    pattern = data.draw(patterns(built, names=("all-to-all",)))
    network = Network(built)
    try:
        base = healthy(network, pattern).time
    except PlanError:
        assume(False)
    kinds = ("leaf", "nic", "server")
    found = elements(built, kinds)
    assume(len(found) < 20)

    def slowdown(chosen) -> float:
        time = price(network, pattern, [found[i] for i in chosen]).time
        return np.inf if time is None else float(f"{time / base:.9g}")

    sets = class_sets(scene(built, pattern), found, 2, 10_000)
    assert sum(count for _, count in sets) == comb(len(found), 2)
    by_class = sorted(x for chosen, count in sets for x in [slowdown(chosen)] * count)
    one_by_one = sorted(slowdown(chosen) for chosen in combinations(range(len(found)), 2))
    assert by_class == one_by_one

    alike: dict[int, set[float]] = {}
    for chosen in combinations(range(len(found)), 2):
        key = set_key(scene(built, pattern), [found[i] for i in chosen])
        alike.setdefault(key, set()).add(slowdown(chosen))
    assert all(len(costs) == 1 for costs in alike.values())
