"""Elements of one class cost the same: every element solved by itself, and every pair."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from whatif_cases import brute_force, fabrics, patterns

from railwright.errors import PlanError
from railwright.network import Network
from railwright.network.whatif_classes import class_sets, classes, scene
from railwright.network.whatif_elements import elements, name
from railwright.network.whatif_price import healthy, price


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_element_of_a_class_costs_what_its_first_costs(data) -> None:
    built = data.draw(fabrics())
    pattern = data.draw(patterns(built))
    network = Network(built)
    try:
        healthy(network, pattern)
    except PlanError:
        assume(False)
    found = elements(built)
    slowdown = brute_force(network, pattern)
    for part in classes(built, [pattern], found):
        of_class = [slowdown[i] for i in part]
        told = f"{pattern.name} pxn={pattern.pxn}: " + ", ".join(
            f"{found[i].kind} {name(built, found[i])} {slowdown[i]:.6g}" for i in part
        )
        assert of_class == pytest.approx([of_class[0]] * len(part), rel=1e-9), told
