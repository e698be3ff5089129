"""Laws of the inference: what must hold whatever the fault."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose_cases import STATIC, machine
from railwright.diagnose import Event, Evidence, Routing, diagnose, rounds
from railwright.diagnose.constants import expected_faults
from railwright.diagnose.evidence import together
from railwright.diagnose.inference.classes import problem
from railwright.diagnose.inference.infer import infer
from railwright.diagnose.inference.likelihood import GRID, grid_prior, log_rate
from railwright.diagnose.paths import crossed
from railwright.diagnose.plans.simulate import Planted, hashed, measured
from railwright.diagnose.read.counters import Snapshot, counter_evidence


@cache
def elements():
    return machine(64)


@cache
def plan():
    return rounds(elements().fabric, STATIC, 4)


@cache
def paths():
    return [crossed(elements(), STATIC, *one.transfers()) for one in plan()]


@cache
def kinds():
    return np.array(elements().kind)


def posterior(evidence: Evidence):
    posed = problem(evidence, elements().weights(), elements().slows(), expected_faults())
    return posed, infer(posed)


@settings(max_examples=6)
@given(st.sampled_from(["nic", "leaf", "spine", "node"]), st.floats(0.3, 0.8), st.integers(0, 2**31))
def test_one_fault_is_first_after_two_rounds(kind, left, seed):
    rng = np.random.default_rng(seed)
    fault = Planted(int(rng.choice(np.flatnonzero(kind == kinds()))), left)
    posed, found = posterior(Evidence(tuple(measured(c, STATIC, [fault], rng) for c in paths()[:2])))
    assert found.probability.argmax() == posed.class_of[fault.element]
    assert found.left[posed.class_of[fault.element]] == pytest.approx(left, abs=0.06)


@settings(max_examples=4)
@given(st.integers(0, 2**31))
def test_a_sound_machine_has_no_fault(seed):
    rng = np.random.default_rng(seed)
    _, found = posterior(Evidence(tuple(measured(c, STATIC, [], rng) for c in paths())))
    assert found.none > 0.9


@settings(max_examples=4)
@given(st.integers(0, 2**31))
def test_the_order_of_the_evidence_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    faults = [Planted(int(e), 0.5) for e in rng.choice(len(elements()), 2, replace=False)]
    rates = [measured(c, STATIC, faults, rng) for c in paths()[:2]]
    one = diagnose(elements(), Evidence(tuple(rates)))
    other = diagnose(elements(), Evidence(tuple(reversed(rates))))
    first = {s.element: round(s.probability, 9) for s in one.suspects}
    assert first == {s.element: round(s.probability, 9) for s in other.suspects}


def test_probabilities_of_one_answer_add_up():
    rng = np.random.default_rng(3)
    fault = Planted(int(np.flatnonzero(kinds() == "nic")[5]), 0.5)
    posed, found = posterior(Evidence((measured(paths()[0], STATIC, [fault], rng),)))
    assert found.expected == pytest.approx(found.probability.sum(), abs=1e-6)
    assert found.none + sum(w for k, w in found.sets if k) <= 1 + 1e-9
    # one round of pairs: both partners are equally likely, and so said
    assert found.probability[posed.class_of[fault.element]] == pytest.approx(0.5, abs=0.1)


def test_a_matching_tells_partners_apart_in_the_second_round():
    for one, other in pairwise(plan()):
        partner = dict(zip(one.a.tolist(), one.b.tolist(), strict=True))
        assert all(partner.get(a) != b for a, b in zip(other.a.tolist(), other.b.tolist(), strict=True))
        assert len(np.unique(np.concatenate([other.a, other.b]))) == 2 * len(other)


def test_nearly_no_pair_meets_another_on_a_cable():
    for one in plan():
        assert len(one) == elements().fabric.num_gpus // 2
        assert np.mean(one.shared == 1) > 0.95


def test_densities_integrate_to_one():
    y = np.linspace(-6, 2, 160_001)
    for mean in (0.0, -0.7):
        density = np.exp(log_rate(y, np.full(len(y), 0.03), np.full(len(y), mean)))
        # the even part of outliers is 5 wide and stands on 8 here
        assert np.trapezoid(density, y) == pytest.approx(1 + 0.001 * (8 / 5 - 1), abs=1e-4)
    assert np.exp(grid_prior()[:, 0]).sum() == pytest.approx(1.0)
    assert np.exp(grid_prior()[:, 1:]).sum() == pytest.approx(1.0)
    assert len(GRID) == grid_prior().shape[1]


def test_two_elements_and_one_event_by_hand():
    """Noisy-or: P(a | seen) of two causes with prior 1 % each, shown with 0.8 and 0.4, leak 0.1 %.

    Weights of the sets: none 0.001 x .99 x .99; a (1 - .999 x .2) x .01 x .99; b (1 - .999 x .6) x .01 x .99;
    both (1 - .999 x .2 x .6) x .0001.
    """
    event = Event("seen", ((0, 0.8), (1, 0.4)), 0.001)
    posed = problem(Evidence((), (event,)), np.array([0.01, 0.01]), np.array([0.5, 0.5]), 1.0)
    found = infer(posed)
    none, both = 0.001 * 0.99**2, (1 - 0.999 * 0.12) * 1e-4
    a, b = (1 - 0.999 * 0.2) * 0.0099, (1 - 0.999 * 0.6) * 0.0099
    total = none + a + b + both
    assert found.none == pytest.approx(none / total, rel=1e-6)
    assert found.probability[posed.class_of[0]] == pytest.approx((a + both) / total, rel=1e-6)
    assert found.probability[posed.class_of[1]] == pytest.approx((b + both) / total, rel=1e-6)


def test_hashed_paths_stop_at_the_leaf_and_say_so():
    ecmp = Routing("ecmp")
    rng = np.random.default_rng(5)
    fabric = elements().fabric
    known = [crossed(elements(), ecmp, *one.transfers()) for one in plan()]
    leaf = int(np.flatnonzero(kinds() == "leaf")[2])
    rates = tuple(measured(c, ecmp, [Planted(leaf, 0.5)], rng) for c in known)
    found = diagnose(elements(), Evidence(rates), ecmp)
    assert found.faults[0].element == elements().name[leaf]
    assert any("as far as the leaf" in sentence for sentence in found.unidentifiable)
    # a cable between switches: each path that may cross it does so by chance, so nobody can be named
    cable = int(elements().of_cable[fabric.role == 3][40])
    truth = [hashed(elements(), *one.transfers(), seed) for seed, one in enumerate(plan())]
    rates = tuple(
        measured(c, ecmp, [Planted(cable, 0.5)], rng, taken=t) for c, t in zip(known, truth, strict=True)
    )
    answer = diagnose(elements(), Evidence(rates), ecmp)
    assert any(s.probability > 0.9 and s.readings > 1 for s in answer.suspects)
    assert all(p < 0.5 for s in answer.suspects for _, _, p in s.alternatives)
    assert any("as far as the leaf" in sentence for sentence in answer.unidentifiable)


def test_counters_split_what_transfers_cannot():
    """A NIC, its GPU's lane and its cable are on the same paths; errors on the port speak for the cable."""
    rng = np.random.default_rng(0)
    nic = elements().find("server-07/nic-2")
    rates = Evidence(tuple(measured(c, STATIC, [Planted(nic, 0.5)], rng) for c in paths()[:2]))
    alone = diagnose(elements(), rates, STATIC).faults
    assert len(alone) == 1
    assert {kind for _, kind, _ in alone[0].alternatives} == {"gpu", "nic", "cable"}
    counted = Snapshot({("server-07/nic-2", 1): {"SymbolErrorCounter": 900}}, 0, "counters")
    both = diagnose(elements(), together([rates, counter_evidence(elements(), counted)]), STATIC)
    assert [(s.kind, s.readings) for s in both.faults] == [("cable", 1)]
    assert "server-07/nic-2 port 1" in both.faults[0].element
