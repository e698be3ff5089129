"""A GPU with less power than it is rated for gets a warning; shipped parts do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.catalog import find, load_catalog
from railwright.compute.limited import of_power

CATALOG = load_catalog()
H100 = CATALOG.gpus["h100-sxm"]
DGX = CATALOG.servers["dgx-h100"]


@pytest.mark.parametrize("name", CATALOG.servers)
def test_shipped_servers_are_not_doubted(name):
    server = CATALOG.servers[name]
    assert of_power(find(CATALOG.gpus, server.gpu), server) == ()


@pytest.mark.parametrize("name", ["h100-sxm", "our-h100"])
def test_a_limit_is_told_with_the_most_that_it_can_cost(name):
    (told,) = of_power(replace(H100, name=name, power=500.0), DGX)
    assert told.startswith(f"{name} is limited to 500 W of 700 W and ")
    assert "up to some 40% longer" in told


def test_a_card_rated_for_less_is_not_a_limited_one():
    assert of_power(CATALOG.gpus["h100-sxm-96"], CATALOG.servers["grand-teton-h100"]) == ()


def test_more_power_than_rated_is_nothing_to_warn_of():
    assert of_power(replace(H100, power=800.0), DGX) == ()


def test_a_server_that_cannot_feed_its_gpus_is_told():
    (told,) = of_power(H100, replace(DGX, power_max=5000.0))
    assert told.startswith("dgx-h100 may take 5 kW, its GPUs alone take 5.6 kW and ")
    assert "more than 12% longer" in told
