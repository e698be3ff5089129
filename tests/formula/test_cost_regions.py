"""Electricity by region: published prices, and where its emissions are not known."""

from __future__ import annotations

import pytest

from railwright.cost import Case, compare, price_book
from railwright.cost.prices import regions, spreads
from railwright.cost.quantities import Line, Quantities
from railwright.report.words.money import money_words
from railwright.spec import load_study
from railwright.spec.money import Money
from railwright.study.evaluate import Workshop
from railwright.study.rooms import money

EUR_A_DOLLAR = 0.92


def prices():
    return {
        item.split("/")[1]: price for item, price in price_book().items() if item.startswith("electricity/")
    }


@pytest.mark.parametrize(
    ("region", "large", "medium", "small"),
    [  # Eurostat nrg_pc_205, 2024-S2, EUR without VAT: the cheapest of bands IE to IG, ID, IB
        ("germany", 0.1390, 0.2076, 0.2714),
        ("france", 0.0746, 0.1446, 0.2142),
        ("ireland", 0.1759, 0.2236, 0.3118),
        ("finland", 0.0500, 0.0674, 0.1042),
        ("sweden", 0.0559, 0.0725, 0.1007),
        ("norway", 0.0377, 0.0576, 0.0691),
        ("poland", 0.1645, 0.1878, 0.2599),
    ],
)
def test_europe_pays_what_eurostat_says(region, large, medium, small):
    price = prices()[region]
    found = (price.low, price.middle, price.high)
    assert found == pytest.approx([x / EUR_A_DOLLAR for x in (large, medium, small)], abs=1e-4)


@pytest.mark.parametrize(
    ("region", "industrial", "commercial"),
    [("texas", 6.12, 8.82), ("oregon", 8.05, 9.92), ("iowa", 6.80, 10.33), ("california", 21.53, 23.91)],
)
def test_american_states_pay_what_eia_says(region, industrial, commercial):
    """Cents in 2024, and of commercial customers in 2023."""
    price = prices()[region]
    assert (100 * price.middle, 100 * price.high) == pytest.approx((industrial, commercial))
    assert price.low < price.middle


def test_one_figure_has_the_spread_of_large_and_small_customers():
    """EUR 0.1176 and 0.2228 beside 0.1682 in the EU."""
    japan, spread = prices()["japan"], spreads()["electricity"]
    assert (spread.low, spread.high) == pytest.approx((0.1176 / 0.1682, 0.2228 / 0.1682))
    assert japan.assumed
    assert (japan.low, japan.high) == pytest.approx((0.135 * spread.low, 0.135 * spread.high))


def test_every_priced_region_has_its_carbon_and_every_country_of_carbon_its_price():
    assert set(prices()) <= set(regions())
    assert set(regions()) - set(prices()) == {"geothermal", "hydro", "wind", "solar"}


def test_dear_electricity_is_dear_to_own():
    cluster = Quantities(
        80, "h100-sxm", (Line("servers", "x", 10, (("server/dgx-h100", 1),), 10.0),), 100e3, 1e3
    )
    case = Case(cluster, ((1.0, 0.5),), Money(region="germany"))
    found = compare(case, price_book(), tuple(prices()))
    cheapest, dearest = (f(found.owned_in, key=found.owned_in.get) for f in (min, max))
    assert (cheapest, dearest) == ("stranded", "uk")
    assert "electricity/germany" not in found.assumed


def test_a_region_of_your_own_needs_no_carbon(tmp_path):
    """Its price is enough; what it emits is said not to be known."""
    (tmp_path / "mine.yaml").write_text(
        "prices:\n  - {item: electricity/switzerland, middle: 0.16, source: our utility}\n"
    )
    file = tmp_path / "study.yaml"
    file.write_text(
        "railwright: 1\nname: own\ncluster: {servers: 2, server: dgx-h100, "
        "compute: {family: single-switch, switch: qm9700}}\n"
        "money: {region: switzerland, prices: mine.yaml}\n"
    )
    study = load_study(file)
    found = money(study, Workshop.of(study))
    assert [c.region for c in found.comparison.carbon] == ["texas", "iceland"]
    assert "No carbon intensity is known of switzerland: what it emits is not said." in money_words(found)
