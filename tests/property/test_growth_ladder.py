"""What holds on every growth path: more people never get less, and the step named is the first that does."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import pytest

from railwright.catalog import load_catalog
from railwright.cost import price_book
from railwright.growth import Ask, Growth, grow
from railwright.growth.fitting import fitting_jobs
from railwright.growth.machines import networked
from railwright.growth.pace import predicted, steps_of
from railwright.growth.pace import published as published_pace
from railwright.growth.parts import constant, speeds
from railwright.growth.supply import outlet_of
from railwright.model import load_model


@cache
def path(
    users=4, hours=20.0, model="llama-3.1-8b", task="inference", job=1, growth=0.5, tokens=None
) -> Growth:
    ask = Ask(users, hours, model, task, job, 4096, tokens, growth)
    return grow(ask, load_model(model), load_catalog(), price_book())


def test_more_people_never_get_a_smaller_step():
    now = [path(users=n).now for n in (1, 4, 8, 20, 60, 100, 150, 500, 3000)]
    assert now == sorted(now)
    assert {0, 1, 2, 3} == set(now)


def test_more_hours_and_larger_jobs_never_get_a_smaller_step():
    assert path(hours=5.0).now <= path(hours=20.0).now <= path(hours=160.0).now
    assert path(job=1).now <= path(job=2).now <= path(job=8).now <= path(job=16).now <= path(job=24).now


@pytest.mark.parametrize("users", [1, 8, 60, 500])
def test_the_step_is_the_first_on_which_jobs_fit_and_waits_stay_within_their_bound(users):
    found = path(users=users)
    bound = constant("wait_share")
    for rung in found.rungs[: found.now]:
        assert rung.fit is None or rung.wait > bound
    assert found.rungs[found.now].wait <= bound


@pytest.mark.parametrize("users", [1, 8, 60])
def test_the_load_when_a_step_is_outgrown_is_the_most_it_carries(users):
    found = path(users=users)
    for rung in found.rungs[found.now :]:
        assert 0 < rung.outgrown < math.inf
        assert rung.load * 1.5**rung.outgrown == pytest.approx(rung.most, rel=1e-6)


def test_a_cluster_lasts_at_least_a_year_beyond_the_step_before_it():
    found = path()
    assert found.rungs[3].outgrown >= found.rungs[2].outgrown + constant("ahead")


def test_a_load_that_does_not_grow_outgrows_nothing():
    found = path(growth=0.0)
    assert math.isinf(found.rungs[found.now].outgrown)
    assert "nothing makes you move" in " ".join(found.words)


def test_memory_moves_a_model_up_the_ladder():
    """8 billion parameters in bf16 lie in one 45 GiB GPU, 70 billion in a server, 405 in no one server."""
    names = [
        next(rung.name for rung in path(model=model).rungs if rung.fit)
        for model in ("llama-3.1-8b", "llama-3-70b", "llama-3.1-405b")
    ]
    assert names == ["workstation", "server", "rack"]


def test_networks_stand_from_slow_to_fast_and_the_fastest_is_enough_for_adapters():
    found = path(task="lora", tokens=2e7)
    rates = [row.rate for row in found.networks]
    assert rates == sorted(rates)
    assert len(found.networks) == len(speeds())
    assert max(row.relative for row in found.networks) == pytest.approx(1.0)
    assert found.networks[-1].enough
    assert not found.networks[0].enough  # 1 GbE: gradients of 42 million parameters every 3 s
    speed = [row.relative for row in found.networks]
    assert all(a <= b * 1.001 for a, b in pairwise(speed))


def test_a_run_costs_its_hours_times_the_hour():
    rung = path(task="lora", tokens=2e7).rungs[0]
    hours = 2e7 / rung.pace.rate.middle / 3600
    assert rung.run_time.middle / 3600 * rung.fit.gpus == pytest.approx(hours)
    assert rung.run_cost.middle == pytest.approx(hours * rung.hourly.middle)
    assert rung.run_cost.low < rung.run_cost.middle < rung.run_cost.high


@pytest.mark.parametrize(
    ("watts", "said", "office"),
    [(1440.0, "NEMA 5-15R", True), (1441.0, "NEMA 5-20R", True), (1920.0, "NEMA 5-20R", True),
     (2200.0, "NEMA 6-20R", True), (10200.0, "460R9W", False), (90e3, "a feed of its own", False)],
)  # fmt: skip
def test_outlets_carry_four_fifths_of_their_breaker_all_day(watts, said, office):
    """120 V x 15 A x 0.8 is 1,440 W, with 20 A 1,920 W, on 208 V 3,328 W."""
    title, its = outlet_of(watts)
    assert said in title
    assert its is office


def test_published_paces_are_named_as_such_and_others_carry_the_band_of_our_model():
    ask = Ask(4, 20.0, "llama-3-70b", "pretrain", 64)
    published = published_pace(ask, load_model("llama-3-70b"), "h100-sxm", 64)
    assert published.kind == "published"
    assert "dgxc-benchmarking" in published.note
    model = path(task="lora", tokens=2e7).rungs[0].pace
    assert model.kind == "model"
    assert model.rate.low < model.rate.middle < model.rate.high


def test_where_both_exist_the_published_pace_lies_in_the_band_of_ours():
    """Llama 3 8B, pre-training, 8 H100, at the sequence of the 11 published runs, none of which our layouts
    were chosen by."""
    ask = Ask(4, 20.0, "llama-3-8b", "pretrain", 8, sequence=8192)
    arch, catalog = load_model("llama-3-8b"), load_catalog()
    machine = networked(catalog.servers["hgx-h100"], 1, speeds()[-1], catalog)
    jobs = [j for j in fitting_jobs(ask, arch, machine, 8) if j.layout.pipeline == j.layout.tensor == 1]
    ours = predicted(*steps_of(jobs, arch, machine)[0]).rate
    assert ours.low <= published_pace(ask, arch, "h100-sxm", 8).rate.middle <= ours.high


def test_replicas_inside_servers_need_no_network_between_them_however_many_there_are():
    """Twelve copies of 8 billion parameters on two servers: each loads 16 GB in at most six minutes."""
    found = path(job=12)
    assert not found.spans
    assert found.rungs[found.now].network == "1 GbE"
    assert found.networks[0].saving == pytest.approx(2 * 8.03e9 / 125e6, rel=0.01)


def test_a_sequence_beyond_the_model_is_said():
    ask = Ask(2, 5.0, "llama-2-7b", "inference", 1, 8192)
    found = grow(ask, load_model("llama-2-7b"), load_catalog(), price_book())
    assert "llama-2-7b was made for 4,096 tokens" in " ".join(found.notes)
