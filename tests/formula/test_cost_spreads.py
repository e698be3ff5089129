"""A single listed price is no certainty: it is drawn with the spread its kind was seen to have."""

from __future__ import annotations

from math import sqrt

import pytest

from railwright.cost import Case, compare, price_book
from railwright.cost.priced import Priced
from railwright.cost.prices import spreads
from railwright.cost.quantities import Line, Quantities
from railwright.report.words.money import assumed_words, money_words
from railwright.spec.money import Money

LISTED = "cloud/nebius/h100"
CASE = Case(
    Quantities(80, "h100-sxm", (Line("servers", "x", 10, (("server/dgx-h100", 1),), 10.0),), 100e3, 10e3),
    ((1.0, 0.5),),
    Money(),
)
"""Without data kept or leaving, a GPU-hour on demand is its price."""


def test_the_spread_of_list_prices_is_that_of_published_changes():
    """AWS cut H100 from 12.29 to 6.88 USD in June 2025, Lambda raised A100 from 1.29 to 1.99."""
    spread = spreads()["cloud"]
    assert (spread.low, spread.high) == (pytest.approx(6.88 / 12.29), pytest.approx(1.99 / 1.29))
    assert any("Lambda, V100" in seen for seen in spread.seen)
    for one in spreads().values():
        assert one.low <= 1 <= one.high


def test_every_shipped_price_of_a_cloud_has_a_range():
    for item, price in price_book().items():
        if item.startswith(("cloud/", "spot/")):
            assert price.low < price.middle < price.high, item
            assert price.assumed, item


def test_a_list_price_is_drawn_from_its_spread():
    """5 % of a triangle from a to b with its peak at c lie below a + sqrt(0.05 (b - a) (c - a))."""
    price, spread = price_book()[LISTED], spreads()["cloud"]
    low, high = (price.middle * r for r in (spread.low, spread.high))
    assert (price.low, price.high) == (pytest.approx(low), pytest.approx(high))
    at = compare(CASE, price_book()).ranges["nebius on-demand"]
    assert at[0] == pytest.approx(low + sqrt(0.05 * (high - low) * (price.middle - low)), rel=0.02)
    assert at[2] == pytest.approx(high - sqrt(0.05 * (high - low) * (high - price.middle)), rel=0.02)


def test_the_answer_names_the_prices_whose_range_is_assumed():
    assumed = compare(CASE, price_book()).assumed
    assert LISTED in assumed
    assert "spot/crusoe/h100" in assumed
    assert not {"salary", "support", "electricity/usa"} & set(assumed)
    words = assumed_words(assumed)
    assert "on demand (aws, crusoe, lambda, nebius, oci) 0.56 to 1.54 times" in words
    assert assumed_words(()) == ""


def test_a_quote_of_your_own_stays_what_it_says(tmp_path):
    """An offer can be signed: one figure without ends is drawn as it is, and named nowhere."""
    file = tmp_path / "mine.yaml"
    file.write_text(f"prices:\n  - {{item: {LISTED}, middle: 2.2, source: offer}}\n")
    mine = price_book(file)
    assert (mine[LISTED].low, mine[LISTED].high, mine[LISTED].assumed) == (2.2, 2.2, False)
    asked = compare(CASE, mine)
    assert asked.ranges["nebius on-demand"] == pytest.approx((2.2, 2.2, 2.2))
    assert LISTED not in asked.assumed


def test_who_cannot_live_with_spot_is_told_of_the_next_way():
    """The shares of the ways without spot add up to one by themselves."""
    found = compare(CASE, price_book())
    assert found.costs[0].kind == "spot"
    assert sum(found.lasting.values()) == pytest.approx(1.0)
    assert not any("spot" in name for name in found.lasting)
    assert all(share >= found.cheapest[name] for name, share in found.lasting.items())
    firm = next(c for c in found.costs if c.kind != "spot")
    words = money_words(Priced(found, (), ()))
    assert words[1].startswith(f"Without spot, which a provider takes back when it likes: {firm.name}, $")
    assert f"{100 * found.lasting[firm.name]:.0f} % of the draws" in words[1]
