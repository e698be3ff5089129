"""Money reckons with the machines of the site plan: their power, their PUE, and storage for the same data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import load_catalog
from railwright.cost import Case, levels, price_book
from railwright.cost.options import (
    best_split,
    end,
    hybrid,
    middle,
    owned,
    people,
    purchase,
    rented,
    with_defaults,
)
from railwright.cost.quantities import Line, Quantities, quantities
from railwright.fabric import build_networks, count
from railwright.report.words.money import money_words
from railwright.site import plan_site
from railwright.spec import load_study_text
from railwright.spec.money import Money, Use
from railwright.study.evaluate import Workshop
from railwright.study.rooms import goodput, money, site

HOSTED = """
railwright: 1
name: hosted
cluster:
  servers: 4
  server: {server}
  compute: {{family: fat-tree, switch: {switch}}}
  storage: {{family: fat-tree, switch: sn3700c, hosts: 3}}
{rest}
"""


def study(rest="", server="dgx-h100", switch="qm9700"):
    return load_study_text(HOSTED.format(server=server, switch=switch, rest=rest))


@pytest.mark.parametrize(
    ("server", "switch", "site"),
    [
        ("dgx-h100", "qm9700", ""),
        ("gb200-nvl72", "qm9700", ""),
        ("dgx-h100", "qm9700", "cooling: {liquid_share: 0.7}"),
        ("dgx-h100", "sn5400", ""),  # power estimated by the room, absent from the catalogue
    ],
)
def test_power_and_pue_are_those_of_the_site_plan(server, switch, site):
    asked = study(f"site: {{{site}}}", server, switch)
    plan, case = plan_site(asked), money(asked, Workshop.of(asked)).comparison.case
    assert case.cluster.power == pytest.approx(plan.power)
    assert case.money.pue == pytest.approx(plan.pue)
    assert case.cluster.unrated == 0


def test_a_fabric_is_counted_once_for_its_power(monkeypatch):
    """PUE and energy are of the same machines: two fabrics, two counts (0.1 s each of 32,768 GPUs)."""
    from railwright.site import standing

    counted = []
    monkeypatch.setattr(standing, "count", lambda *asked: counted.append(asked) or count(*asked))
    asked = study("site: {power: {redundancy: n+1}}")
    money(asked, Workshop.of(asked))
    assert len(counted) == 2


def test_owned_and_rented_machines_keep_the_same_data():
    """100 TB: 30,000 USD of storage at 300 a TB where machines are owned, 6,000 a month in a cloud at 60."""
    asked = study("money: {data: 100 TB, interest: 0}")
    case = money(asked, Workshop.of(asked)).comparison.case
    book = with_defaults(price_book())
    draw = middle(book)
    bare = replace(case, cluster=replace(case.cluster, lines=case.cluster.lines[:-1]))
    more = owned(case, draw, "colo").upfront - owned(bare, draw, "colo").upfront
    assert more == pytest.approx(100 * 300 * (1 + draw("installation")))
    assert rented(case, draw, "nebius", "on-demand").parts["data"] == pytest.approx(6_000)


def test_a_part_of_the_cluster_needs_all_of_its_storage():
    lines = (Line("servers", "x", 4, (("server/dgx-h100", 1),), 4), Line("storage", "y", 9, (), 9e4))
    asked = study()
    cluster = quantities(
        list(build_networks(asked.cluster, load_catalog()).items()), load_catalog(), price_book()
    )
    case = Case(replace(cluster, lines=lines), levels(Use()), Money())
    draw = middle(with_defaults(price_book()))
    half, none = (hybrid(case, draw, "colo", "nebius", share) for share in (0.5, 0.0))
    assert half.upfront == pytest.approx((0.5 * purchase(lines[:1], draw) + 9e4) * (1 + draw("installation")))
    assert none.upfront == 0


def test_data_of_the_site_stands_for_both():
    """Three checkpoints kept and one being written, of 1 TB, and a data set of 6 TB: 10 TB."""
    room = "site: {storage: {checkpoint: 1 TB, dataset: 6 TB, kept: 3}}\n"
    found = [study(room), study(f"{room}money: {{data: 50 TB}}\n"), study()]
    kept = [money(one, Workshop.of(one)).comparison.case.money.data for one in found]
    assert kept == [10e12, 50e12, None]


def test_hosts_without_data_are_said_to_be_unpriced():
    bare, stocked = study(), study("money: {data: 1 TB}")
    assert any("storage and management hosts" in said for said in money_words(money(bare, Workshop.of(bare))))
    words = money_words(money(stocked, Workshop.of(stocked)))
    assert not any("storage and management hosts" in said for said in words)
    assert site(bare, Workshop.of(bare)).power == pytest.approx(
        money(bare, Workshop.of(bare)).comparison.case.cluster.power
    )


@pytest.mark.parametrize(
    ("systems", "share", "staff"), [(1, 1.0, 0.5), (32, 1.0, 0.5), (125, 1.0, 1), (4096, 0.5, 16.384)]
)
def test_people_are_one_for_125_servers_and_half_of_one_at_least(systems, share, staff):
    """One for 250 processors, two a server (CTWatch Quarterly 2 (2), 2006): 2,048 servers, 16.4 people."""
    cluster = Quantities(8, "h100-sxm", (Line("servers", "x", systems, (), 1.0),), 1.0, 0.0, systems=systems)
    case = Case(cluster, ((1.0, 1.0),), Money())
    assert people(case, middle(price_book()), share) == pytest.approx(staff)
    assert people(case, middle(price_book()), 0.0) == 0.0
    own = replace(case, money=Money(staff=3))
    assert people(own, middle(price_book()), share) == 3


def test_few_and_many_people_are_the_published_ends():
    """1,000 alike servers a person, or 20; at little size nobody, or one."""
    book = price_book()
    cluster = Quantities(8, "h100-sxm", (Line("servers", "x", 4000, (), 1.0),), 1.0, 0.0, systems=4000)
    case = Case(cluster, ((1.0, 1.0),), Money())
    assert (people(case, end(book, "low")), people(case, end(book, "high"))) == (4, 200)
    one = replace(case, cluster=replace(cluster, systems=1))
    assert people(one, end(book, "low")) == pytest.approx(0.001)
    assert people(one, end(book, "high")) == 1


def test_an_administrator_counts_the_trays_of_a_rack():
    """Seven NVL72 are 126 systems: a little more than one person."""
    text = (
        "railwright: 1\nname: racks\ncluster: {servers: 7, server: gb200-nvl72, "
        "compute: {family: fat-tree, switch: qm9700}}\nmoney: {}\n"
    )
    study = load_study_text(text)
    found = money(study, Workshop.of(study))
    assert found.comparison.case.cluster.systems == 7 * 18
    assert any("Run by 1.01 people: one for 125 servers (of 126)" in said for said in money_words(found))


def test_the_best_split_knows_where_more_people_are_needed():
    """Two servers are always wanted, a hundred half of the time; the sixth takes a tenth of a person more.

    Owned a server costs 2,083 USD a month, rented 5,844 or half of it: each after the second saves 839, and a
    tenth of a person costs 1,250.
    """
    cluster = Quantities(
        800, "h100-sxm", (Line("servers", "x", 100, (("thing", 1),), 100.0),), 0.0, 0.0, systems=100
    )
    case = Case(cluster, ((0.5, 0.02), (0.5, 1.0)), Money(years=4, interest=0.0))
    prices = {
        "thing": 100e3, "installation": 0.0, "residual": 0.0, "pue": 1.0, "power-at-work": 1.0,
        "power-idle": 0.0, "electricity/usa": 0.0, "support": 0.0, "colocation": 0.0, "salary": 150e3,
        "servers-per-person": 10.0, "least-staff": 0.5, "cloud/acme/h100": 1.0, "cloud-storage": 0.0,
        "egress/acme": 0.0,
    }  # fmt: skip
    costs = {n: hybrid(case, prices.__getitem__, "colo", "acme", n / 100).monthly for n in range(101)}
    least = min(costs, key=costs.__getitem__)
    best = best_split(case, prices.__getitem__, "colo", "acme")
    assert least == 5
    assert best is not None
    assert best.owned == least / 100


def test_a_single_server_is_told_that_its_switch_joins_nothing():
    """One QM9700 of 43,000 and 8 cables of 400 Gb/s at 2.4 a Gb/s: 50,680 USD."""
    text = (
        "railwright: 1\nname: one\ncluster: {servers: SERVERS, server: dgx-h100, "
        "compute: {family: single-switch, switch: qm9700}}\n"
    )
    one, two = (load_study_text(text.replace("SERVERS", number)) for number in "12")
    said = [
        any("$50,680 of the purchase" in w for w in money_words(money(s, Workshop.of(s)))) for s in (one, two)
    ]
    assert said == [True, False]


def test_a_run_says_that_its_spare_servers_are_paid_for():
    """Eight GPUs and eight spare ones: twice the GPU-hours."""
    text = (
        "railwright: 1\nname: spare\ncluster: {servers: 1, server: dgx-h100, "
        "compute: {family: single-switch, switch: qm9700}}\njobs: [{name: ft, model: llama-3.1-8b, "
        "sequence: 4096, global_batch: 64, tokens: 1e9, layout: {tensor: 2}}]\n"
    )
    room = "reliability: {spares: 1, checkpoint: {bandwidth: 5 GB/s}}\n"
    alone, kept = load_study_text(text), load_study_text(text + room)
    bare, spared = (
        money(alone, Workshop.of(alone)),
        money(kept, Workshop.of(kept), goodput(kept, Workshop.of(kept))),
    )
    assert spared.runs[0].gpu_hours == pytest.approx(2 * bare.runs[0].gpu_hours, rel=0.01)
    assert any("with 1 spare server paid for it: $" in said for said in money_words(spared))
    assert not any("spare server" in said for said in money_words(bare))
