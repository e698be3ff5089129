"""The examples of the fabric families and the pages about them say the same, and can be built."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright import fabric
from railwright.catalog import load_catalog
from railwright.spec import load_study, override

ROOT = Path(__file__).parents[2]
CATALOG = load_catalog()


def networks(example: str, variant: str | None = None):
    study = load_study(ROOT / "examples" / f"{example}.yaml")
    changes = next((v.set for v in study.variants if v.name == variant), {})
    return fabric.build_networks(override(study, changes).cluster, CATALOG)


# example -> leaves, spines, cables and switches of all networks
EXAMPLES = {
    "dual-plane-hpn": [(32, 16, 6144)],
    "rack-rails-gb300": [(8, 4, 1152)],
    "clos-spare-spines": [(192, 18, 6528)],
    "echelon-single-rack": [(1, 0, 40), (1, 0, 14), (1, 0, 5), (1, 0, 5)],
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_built_as_its_page_says(example):
    found = fabric.count_networks(networks(example), CATALOG)
    assert [(c.leaves, c.spines, c.cables) for c in found.values()] == EXAMPLES[example]


@pytest.mark.parametrize("example", EXAMPLES)
def test_its_variants_are_built(example):
    for variant in load_study(ROOT / "examples" / f"{example}.yaml").variants:
        assert networks(example, variant.name)["compute"].num_gpus


def test_two_cluster_switches_may_die_and_the_third_costs_bandwidth():
    two, three = (networks("clos-spare-spines", f"{n} cluster switches failed") for n in ("Two", "Three"))
    assert fabric.bisection(two["compute"]) == 192 * 8 * 50e9
    assert fabric.bisection(three["compute"]) == 192 * 8 * 50e9 * 15 / 16


def test_every_family_has_its_page():
    pages = {p.stem for p in (ROOT / "docs" / "families").glob("*.md")}
    assert set(fabric.FAMILIES) <= pages
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    table = (ROOT / "docs" / "fabric.md").read_text(encoding="utf-8")
    for page in pages:
        assert f"families/{page}.md" in nav
        assert f"families/{page}.md" in table


def test_the_design_on_the_page_is_what_the_code_prints():
    page = (ROOT / "docs" / "fabric.md").read_text(encoding="utf-8")
    wanted = fabric.Requirement(
        1024, "dgx-h100", grow_to=4096, spines_lost=1, leaf_lost=True, switches=("qm9700",)
    )
    lines = fabric.lines(fabric.design(wanted, CATALOG))
    assert "\n".join(lines[:3]) in page
    why = fabric.explain(fabric.Published(tiers=2, switches=192), fabric.Wanted(endpoints=4096, ports=64))
    assert why is not None
    assert why in " ".join(page.split())
