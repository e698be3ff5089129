"""A step costs what `cost` says of its machines; when owning pays; replicas for a rate of requests."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest

from railwright.catalog import load_catalog
from railwright.cost import Case, price_book
from railwright.cost.options import middle, owned, rented, with_defaults
from railwright.cost.quantities import quantities
from railwright.fabric import build_networks
from railwright.growth import Ask, Growth, grow
from railwright.growth.machines import networked
from railwright.growth.parts import constant, speeds
from railwright.growth.supply import bill
from railwright.model import load_model
from railwright.serving.predict import serve
from railwright.spec import load_study_text
from railwright.spec.money import Money
from railwright.spec.serving import Client
from railwright.units import HOURS_OF_YEAR

BOOK = with_defaults(price_book())


@cache
def path(users=4, hours=20.0, model="llama-3.1-8b", growth=0.5, rate=None, job=1) -> Growth:
    ask = Ask(users, hours, model, "inference", job, 4096, None, growth, rate)
    return grow(ask, load_model(model), load_catalog(), price_book())


def test_a_step_costs_what_cost_says_of_the_same_study():
    """16 hgx-h100 with eight adapters each on rails of QM9700: one purchase."""
    catalog = load_catalog()
    speed = speeds()[-1]
    step = bill(catalog.servers["hgx-h100"], 16, speed, speed, catalog, price_book())
    study = load_study_text(
        "railwright: 1\nname: x\ncluster: {servers: 16, server: hgx-h100, "
        "compute: {family: rail-optimised, switch: qm9700}}\n"
    )
    same = quantities(list(build_networks(study.cluster, catalog).items()), catalog, price_book())
    assert step.bought == same
    assert step.price.low < step.price.middle < step.price.high


def test_an_hour_of_a_full_step_is_that_of_cost_without_people():
    rung = path().rungs[1]
    catalog = load_catalog()
    fabric = networked(catalog.servers["hgx-h100"], 1, speeds()[0], catalog).network.fabric
    alone = quantities([("compute", fabric)], catalog, price_book())
    lines = tuple(line for line in alone.lines if line.room == "servers")
    case = Case(
        replace(alone, lines=lines, network_power=0.0), ((1.0, rung.most / 8),), Money(years=4, staff=0)
    )
    assert rung.hourly.middle == pytest.approx(float(owned(case, middle(BOOK), "own").per_gpu_hour))
    assert rung.hourly.low < rung.hourly.middle < rung.hourly.high


def test_at_the_use_where_owning_pays_it_costs_what_renting_does():
    for rung in path().rungs:
        pays = rung.rent.pays
        assert 0 < pays < rung.gpus
        again = next(r for r in path(users=1, hours=pays * 168).rungs if r.name == rung.name)
        if again.machines == rung.machines:
            assert again.monthly == pytest.approx(rung.rent.price * pays * HOURS_OF_YEAR / 12, rel=1e-6)


def test_the_rent_is_the_cheapest_list_price():
    rung = path().rungs[1]
    prices = {i: p.middle for i, p in BOOK.items() if i.startswith("cloud/") and i.endswith("/h100")}
    assert rung.rent.price == pytest.approx(min(prices.values()))
    assert rung.rent.dearest == pytest.approx(max(prices.values()))
    assert f"cloud/{rung.rent.cloud}/h100" == min(prices, key=prices.__getitem__)


def test_a_replica_has_room_for_more_than_one_request():
    """70 billion parameters in bf16 leave two H100 room for two requests of 4,096 tokens; on four a GPU gives
    several times as many tokens."""
    rung = next(r for r in path(model="llama-3-70b").rungs if r.fit)
    assert rung.fit.job.layout.gpus == 4
    assert rung.pace.rate.middle > 200


def test_a_higher_rate_never_gets_a_smaller_step_nor_fewer_machines():
    found = [path(rate=rate, growth=0.0) for rate in (0.1, 1.0, 3.0, 10.0, 40.0, 150.0)]
    now = [one.now for one in found]
    assert now == sorted(now)
    assert {0, 1, 3} <= set(now)
    assert [one.rungs[3].machines for one in found] == sorted(one.rungs[3].machines for one in found)


@pytest.mark.parametrize("rate", [0.5, 5.0, 60.0])
def test_a_rate_keeps_as_many_gpus_busy_as_its_answers_take(rate):
    found = path(rate=rate, growth=0.0)
    rung = found.rungs[found.now]
    assert rung.load == pytest.approx(rate * 1024 / rung.pace.rate.middle)
    assert rung.load <= rung.most == pytest.approx(constant("service_share") * rung.places * rung.fit.gpus)
    assert rung.used >= rung.load / constant("service_share") - 1e-9
    for small in found.rungs[: found.now]:
        assert small.fit is None or small.load > small.most
    assert math.isinf(rung.outgrown)


def test_renting_for_nothing_would_never_be_beaten():
    free = {
        **BOOK,
        **{i: replace(p, low=0.0, middle=0.0, high=0.0) for i, p in BOOK.items() if "cloud/" in i},
    }
    ask = Ask(4, 20.0, "llama-3.1-8b", "inference", 1, 4096)
    found = grow(ask, load_model("llama-3.1-8b"), load_catalog(), free)
    assert all(math.isinf(rung.rent.pays) for rung in found.rungs)
    assert "Owning never pays against that." in " ".join(found.words)


def test_the_pace_of_a_replica_is_what_the_simulator_serves_at_such_a_load():
    """Two replicas of 70 billion on eight H100, sent what keeps 54 requests in each: 394 tokens/s a GPU,
    where a full batch of 64 makes 415."""
    rung = next(r for r in path(model="llama-3.1-70b").rungs if r.fit)
    catalog = load_catalog()
    machine = networked(catalog.servers["hgx-h100"], 1, speeds()[-1], catalog)
    client = Client(kind="poisson", rate=3.3, requests=600, input=3072, output=1024)
    job = rung.fit.job.model_copy(update={"replicas": 2, "client": client})
    served = serve(job, load_model("llama-3.1-70b"), machine)
    assert 0.85 < served.throughput.lasting / 8 / rung.pace.rate.middle < 1.02


def test_the_rent_of_today_is_its_hours_at_that_price():
    """20 hours a week of four people are 80 of 168: 0.476 GPUs, 348 hours a month."""
    found = path(growth=0.0)
    rung = found.rungs[found.now]
    assert rung.used == rung.load == pytest.approx(80 / 168)
    fabric = networked(load_catalog().servers[rung.server], 1, speeds()[0], load_catalog()).network.fabric
    alone = quantities([("compute", fabric)], load_catalog(), price_book())
    case = Case(alone, ((1.0, rung.used / rung.gpus),), Money())
    cost = rented(case, middle(BOOK), rung.rent.cloud, "on-demand")
    assert float(cost.monthly) == pytest.approx(rung.rent.price * 80 / 168 * HOURS_OF_YEAR / 12)
