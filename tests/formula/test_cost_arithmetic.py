"""Every way of paying, worked out by hand; break-evens where both sides are equal; bills that add up."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.cost import Case, compare, levels, price_book
from railwright.cost.carbon import carbon, shape
from railwright.cost.options import (
    best_split,
    hybrid,
    line_price,
    middle,
    owned,
    purchase,
    rented,
    with_defaults,
)
from railwright.cost.quantities import Line, Quantities, mean_use, quantities
from railwright.errors import PlanError
from railwright.fabric import build_networks, count
from railwright.spec import load_study, load_study_text, template
from railwright.spec.money import Level, Money, Use
from railwright.study.evaluate import Workshop
from railwright.study.rooms import money
from railwright.units import HOURS_OF_YEAR, JOULES_PER_KWH

HARDWARE = 1e6
CASE = Case(
    Quantities(80, "h100-sxm", (Line("servers", "x", 1, (("thing", 1),), 1.0),), 100e3, 10e3),
    ((1.0, 0.5),),
    Money(years=5, interest=0.0, staff=2, region="usa", data="100 TB", egress="10 TB"),
)
TEN = replace(CASE, cluster=replace(CASE.cluster, lines=(Line("servers", "x", 10, (("thing", 1),), 1.0),)))
PRICES = {
    "thing": HARDWARE,
    "installation": 0.1, "facility": 10.0, "facility-life": 20.0, "residual": 0.2, "pue": 1.5,
    "power-at-work": 0.8, "power-idle": 0.2, "electricity/usa": 0.1, "salary": 120e3, "support": 0.06,
    "colocation": 150.0, "cloud/acme/h100": 3.0, "spot/acme/h100": 1.0, "spot-loss": 0.2, "reserved": 0.6,
    "cloud-storage": 20.0, "egress/acme": 0.05,
}  # fmt: skip


def draw(item):
    return PRICES[item]


def test_machines_in_a_room_of_ones_own():
    """1 M of hardware, 100 k of installation, 110 kW x 10 $/W x 5 of 20 years = 275 k of building.
    Half the servers work at 80 %, half idle at 20 %: 50 kW, with 10 kW of switches and PUE 1.5: 90 kW."""
    cost = owned(CASE, draw, "own")
    assert cost.upfront == pytest.approx(1_100_000 + 275_000)
    assert cost.parts["purchase"] == pytest.approx((1_375_000 - 200_000) / 60)
    assert cost.parts["power"] == pytest.approx(90 * HOURS_OF_YEAR / 12 * 0.1)
    assert cost.parts["people"] == 20_000
    assert cost.parts["support"] == pytest.approx(5_000)
    assert cost.wanted == pytest.approx(40 * HOURS_OF_YEAR / 12)
    assert cost.per_gpu_hour == pytest.approx(cost.monthly / cost.wanted)


def test_colocation_is_paid_by_the_kilowatt():
    cost = owned(CASE, draw, "colo")
    assert cost.upfront == pytest.approx(1_100_000)
    assert cost.parts["space"] == pytest.approx(110 * 150)


def test_rented_by_the_hour_reserved_and_spot():
    hours = 80 * HOURS_OF_YEAR / 12
    data = 100 * 20 + 10_000 * 0.05
    assert rented(CASE, draw, "acme", "on-demand").monthly == pytest.approx(0.5 * hours * 3 + data)
    assert rented(CASE, draw, "acme", "reserved").monthly == pytest.approx(0.5 * hours * 3 * 0.6 + data)
    assert rented(CASE, draw, "acme", "spot").monthly == pytest.approx(0.5 * hours / 0.8 + data)


def test_interest_is_that_of_an_annuity():
    """12 % a year over a year without residual: 1,100,000 is repaid in 12 payments of 97,733.67."""
    case = replace(CASE, money=CASE.money.model_copy(update={"interest": 0.12, "years": 1}))
    cost = owned(case, lambda item: 0.0 if item == "residual" else draw(item), "colo")
    assert cost.parts["purchase"] == pytest.approx(97_733.67, abs=0.01)


@pytest.mark.parametrize(
    ("use", "steps", "mean"),
    [
        (Use(share=0.7), ((1.0, 0.7),), 0.7),
        (Use(profile="spiky", base=0.25, peak=0.2), ((0.8, 0.25), (0.2, 1.0)), 0.4),
        (Use(profile="deadline", days=73), ((0.8, 0.0), (0.2, 1.0)), 0.2),
        (
            Use(profile="levels", levels=(Level(time=0.5, gpus=1), *2 * (Level(time=0.25, gpus=0.2),))),
            ((0.5, 0.2), (0.5, 1.0)),
            0.6,
        ),
    ],
)  # fmt: skip
def test_when_gpus_are_wanted(use, steps, mean):
    np.testing.assert_allclose(levels(use), steps)
    assert mean_use(levels(use)) == pytest.approx(mean)


def test_the_best_split_is_not_beaten_by_any_other():
    """Newsvendor: own what is wanted often enough, rent the rest; no other number of servers is cheaper."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(30):
        gpus = np.sort(rng.uniform(0.05, 1, 4))
        time = rng.dirichlet(np.ones(4))
        prices = PRICES | {"cloud/acme/h100": rng.uniform(0.5, 8), "thing": rng.uniform(0.2, 3) * HARDWARE}
        case = replace(TEN, levels=tuple(zip(time.tolist(), gpus.tolist(), strict=True)))
        best = best_split(case, prices.__getitem__, "colo", "acme")
        others = [hybrid(case, prices.__getitem__, "colo", "acme", number / 10) for number in range(11)]
        least = min(others, key=lambda c: c.monthly)
        assert (best or least).monthly == pytest.approx(least.monthly)
        assert (best is None) == (least.owned in (0, 1))
        found.append(best)
    assert None in found
    assert any(found)


def test_nobody_owns_a_part_of_a_server():
    """80 % of one server is all of it or none, which are ways of their own; of ten servers it is eight."""
    prices = PRICES | {"cloud/acme/h100": 9.0}
    one, ten = replace(CASE, levels=((1.0, 0.8),)), replace(TEN, levels=((1.0, 0.85),))
    assert best_split(one, prices.__getitem__, "colo", "acme") is None
    best = best_split(ten, prices.__getitem__, "colo", "acme")
    assert best is not None
    assert best.owned in (0.8, 0.9)
    book = {k: v for k, v in _book().items() if not k.startswith("cloud/") or "acme" in k}
    assert "hybrid" not in {c.kind for c in compare(one, book).costs}


def test_at_the_break_even_use_both_cost_the_same():
    found = compare(CASE, _book())
    point = next(b for b in found.breaks if b.own == "colo" and b.cloud == "acme on-demand")
    even = replace(CASE, levels=((1.0, point.utilisation),))
    book = with_defaults(_book())
    own, cloud = owned(even, middle(book), "colo"), rented(even, middle(book), "acme", "on-demand")
    assert own.monthly == pytest.approx(cloud.monthly)
    spent = own.upfront  # and months: purchase at once against rent, other costs running
    here = owned(CASE, middle(book), "colo")
    running = here.monthly - here.parts["purchase"]
    rent = rented(CASE, middle(book), "acme", "on-demand").monthly
    assert here.upfront + running * point.months == pytest.approx(rent * point.months)
    assert spent > 0


def _book():
    from railwright.cost.prices import Price

    book = dict(price_book())
    for item in [i for i in book if i.startswith(("cloud/", "spot/"))]:
        del book[item]
    return book | {
        item: Price(item, 0.8 * value, value, 1.2 * value, "", "test", "", "user")
        for item, value in PRICES.items()
    }


def test_draws_of_all_prices_surround_the_first_guess_and_shares_add_up():
    found = compare(CASE, _book())
    assert sum(found.cheapest.values()) == pytest.approx(1.0)
    for cost in found.costs:
        low, mid, high = found.ranges[cost.name]
        assert low < float(cost.per_gpu_hour) < high
        assert mid == pytest.approx(float(cost.per_gpu_hour), rel=0.02)
    assert compare(CASE, _book()).ranges == found.ranges  # the same seed, the same draws


def test_a_list_price_that_was_only_ever_higher_lies_in_its_range():
    """Triangular between 7 and 12 with its peak at 7: 5 % of the draws are below 7.13."""
    book = _book()
    book["cloud/acme/h100"] = replace(book["cloud/acme/h100"], low=7.0, middle=7.0, high=12.0)
    found = compare(CASE, book)
    low, mid, high = found.ranges["acme on-demand"]
    asked = next(float(c.per_gpu_hour) for c in found.costs if c.name == "acme on-demand")
    assert low == asked < mid < high


def test_the_shipped_prices_lie_in_their_ranges():
    clouds = {item: price for item, price in price_book().items() if item.startswith(("cloud/", "egress"))}
    found = compare(CASE, _book() | clouds)
    assert "aws on-demand" in found.ranges
    for cost in found.costs:
        low, _, high = found.ranges[cost.name]
        assert low <= float(cost.per_gpu_hour) <= high, cost.name


def test_a_clouds_name_may_have_two_words():
    book = {item.replace("acme", "acme gmbh"): price for item, price in _book().items()}
    plain, spaced = compare(CASE, _book()), compare(CASE, book)
    assert [(c.kind, c.base, float(c.monthly)) for c in spaced.costs] == [
        (c.kind, c.base, float(c.monthly)) for c in plain.costs
    ]
    assert {c.cloud for c in spaced.costs} == {"", "acme gmbh"}
    assert [b.utilisation for b in spaced.breaks] == [b.utilisation for b in plain.breaks]


def test_a_swing_is_one_price_from_end_to_end():
    found = compare(CASE, _book())
    swing = next(s for s in found.swings if s.item == "thing")
    for value, there in ((0.8 * HARDWARE, swing.low), (1.2 * HARDWARE, swing.high)):
        own = min((c for c in found.costs if c.kind in ("own", "colo")), key=lambda c: float(c.monthly)).kind
        book = with_defaults(_book())
        cost = owned(CASE, lambda i, v=value, b=book: v if i == "thing" else b[i].middle, own)
        assert there == pytest.approx(float(cost.per_gpu_hour))
    sizes = [abs(s.high - s.low) for s in found.swings]
    assert sizes == sorted(sizes, reverse=True)


def test_energy_and_carbon_of_a_year():
    """90 kW all year: 788,940 kWh; in Iceland 27.68 g each: 21,838 kg."""
    found = carbon(CASE, draw, "iceland")
    assert found.energy == pytest.approx(90 * HOURS_OF_YEAR * JOULES_PER_KWH)
    assert found.operation == pytest.approx(90 * HOURS_OF_YEAR * 27.68e-3)
    assert found.making == pytest.approx(80 * 164 / 5)
    assert found.per_gpu_hour == pytest.approx(1e3 * (found.operation + found.making) / (40 * HOURS_OF_YEAR))
    assert carbon(CASE, draw, "texas").operation / found.operation == pytest.approx(302.95 / 27.68)


def test_work_moves_to_clean_hours_and_idle_power_does_not():
    """Half of the day is clean (0), half dirty (2): half-used machines can work in the clean half alone."""
    hours = (0.0,) * 12 + (1.0,) * 12
    assert sum(shape(hours)) == pytest.approx(24)
    case = replace(CASE, money=CASE.money.model_copy(update={"hours": hours}))
    found = carbon(case, draw, "usa")
    idle = (100 * 0.5 * 0.2 + 10) * 1.5
    assert found.best_hours == pytest.approx(idle * HOURS_OF_YEAR * 369.47e-3)


@cache
def _cluster():
    study, catalog = load_study_text(template("rail-240")), load_catalog()
    return build_networks(study.cluster, catalog), catalog


def test_the_bill_is_the_sum_of_its_rooms_and_counts_what_the_fabric_counts():
    networks, catalog = _cluster()
    book = price_book()
    q = quantities(list(networks.items()), catalog, book, storage=5e15)
    draw_one = middle(book)
    rooms: dict[str, float] = {}
    for line in q.lines:
        rooms[line.room] = rooms.get(line.room, 0.0) + float(line_price(line, draw_one))
    assert sum(rooms.values()) == pytest.approx(float(purchase(q.lines, draw_one)))
    assert rooms["servers"] == 30 * 310_000
    assert rooms["storage"] == 5000 * 300
    counted = count(networks["compute"], catalog)
    cables = next(x for x in q.lines if x.what == "cables of 400 Gb/s" and x.room == "compute network")
    assert cables.quantity == counted.cables
    switches = [x for x in q.lines if x.what.startswith("qm9700")]
    assert sum(x.quantity for x in switches) == counted.switches
    assert q.network_power == pytest.approx(sum(count(f, catalog).switch_power for f in networks.values()))


def test_reserved_ports_have_cables_on_every_bill():
    """17 servers of 8 NICs and 3 ports for subnet managers: 139 cables below the leaves, as counted."""
    catalog = load_catalog()
    study = load_study_text(
        "railwright: 1\nname: reserved\ncluster: {servers: 17, server: dgx-h100, "
        "compute: {family: rail-optimised, switch: qm9700, reserved_ports: 3}}\n"
    )
    (found,) = build_networks(study.cluster, catalog).items()
    counted = count(found[1], catalog)
    assert counted.node_leaf == 17 * 8 + 3
    lines = quantities([found], catalog, price_book()).lines
    assert sum(x.quantity for x in lines if x.what.startswith("cables")) == counted.cables


def test_the_pue_of_the_room_is_that_of_its_energy():
    """`site.cooling.pue` stands for both; `money.pue` goes before it."""
    text = (
        "railwright: 1\nname: one room\ncluster: {servers: 2, server: dgx-h100, "
        "compute: {family: single-switch, switch: qm9700}}\n"
    )
    room = "site: {cooling: {pue: 1.1}}\n"
    found = {
        name: money(study, Workshop.of(study)).comparison.case.money.pue
        for name, written in (("room", room), ("money", f"{room}money: {{pue: 1.3}}\n"), ("neither", ""))
        for study in [load_study_text(text + written)]
    }
    assert found == {"room": 1.1, "money": 1.3, "neither": None}


def test_a_server_without_a_price_is_its_gpus():
    study, catalog = load_study_text(template("rail-240")), load_catalog()
    from railwright.spec import override

    other = override(study, {"cluster.server": "dgx-h200"})
    q = quantities(list(build_networks(other.cluster, catalog).items()), catalog, price_book())
    line = q.lines[0]
    assert float(line_price(line, middle(price_book()))) == pytest.approx(30 * 8 * 32_000 / 0.78)


def test_your_own_prices_go_before_the_book(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("prices:\n  - {item: server/dgx-h100, middle: 250000, source: my quote}\n")
    study = tmp_path / "study.yaml"
    study.write_text(template("rail-240") + "\nmoney: {prices: mine.yaml}\n")
    asked = load_study(study)
    price = price_book(asked.money.prices)["server/dgx-h100"]
    assert (price.low, price.middle, price.high, price.status) == (250_000, 250_000, 250_000, "user")
    assert price.unit == "USD"


def test_levels_that_miss_the_whole_time_are_refused():
    with pytest.raises(PlanError, match=r"add up to 0\.5, not 1"):
        levels(Use(profile="levels", levels=(Level(time=0.5, gpus=1),)))
