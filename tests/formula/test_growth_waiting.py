"""Waiting for shared GPUs: Erlang's formula in its closed forms and tables, and what follows from it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.growth.waiting import erlang_c, most_load, places, wait_share

SERVERS = st.integers(1, 200)
SHARES = st.floats(0.01, 0.99)


@given(SHARES)
def test_one_gpu_is_mm1_whose_chance_of_waiting_is_its_load(load):
    assert erlang_c(1, load) == pytest.approx(load)
    assert wait_share(1, load) == pytest.approx(load / (1 - load))


@given(SHARES)
def test_two_gpus_have_the_closed_form_of_mm2(rho):
    """C(2, 2 rho) = 2 rho^2 / (1 + rho)."""
    assert erlang_c(2, 2 * rho) == pytest.approx(2 * rho**2 / (1 + rho))


@pytest.mark.parametrize(("servers", "load"), [(3, 2.0), (10, 8.0), (20, 18.0), (50, 44.0)])
def test_erlang_c_is_its_defining_sum(servers, load):
    """(a^c / c!) c / (c - a) over that and the sum of a^n / n! below c."""
    tail = load**servers / math.factorial(servers) * servers / (servers - load)
    body = sum(load**n / math.factorial(n) for n in range(servers))
    assert erlang_c(servers, load) == pytest.approx(tail / (tail + body), rel=1e-12)


@pytest.mark.parametrize(
    ("servers", "load", "chance"),
    [(3, 2.0, 0.4444), (10, 8.0, 0.4092), (20, 18.0, 0.5508)],
)
def test_published_table_of_erlang_c(servers, load, chance):
    assert erlang_c(servers, load) == pytest.approx(chance, abs=5e-5)


@given(SERVERS, SHARES, SHARES)
def test_more_load_waits_longer_and_more_gpus_shorter(servers, one, other):
    low, high = sorted((one, other))
    assert wait_share(servers, low * servers) <= wait_share(servers, high * servers) * (1 + 1e-9)
    assert wait_share(servers + 1, low * servers) <= wait_share(servers, low * servers) * (1 + 1e-9)


@given(SERVERS, st.floats(0.01, 5.0))
def test_the_most_load_is_where_the_wait_meets_its_bound(servers, share):
    assert wait_share(servers, most_load(servers, share)) == pytest.approx(share, rel=1e-6)


def test_a_load_no_less_than_the_gpus_never_ends():
    assert wait_share(4, 4.0) == math.inf
    assert erlang_c(4, 7.0) == 1.0
    assert wait_share(4, 0.0) == 0.0


@pytest.mark.parametrize(
    ("machines", "gpus", "job", "jobs"),
    [(1, 8, 1, 8), (1, 8, 3, 2), (4, 8, 8, 4), (5, 8, 16, 2), (1, 8, 16, 0), (3, 2, 1, 6)],
)
def test_jobs_that_run_at_once_stay_inside_a_machine_or_take_whole_ones(machines, gpus, job, jobs):
    assert places(machines, gpus, job) == jobs
