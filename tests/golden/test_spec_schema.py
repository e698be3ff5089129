"""The published schema, the starters and the example belong together."""

import json
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from railwright.catalog import find, load_catalog
from railwright.model import load_model
from railwright.spec import load_study, load_study_text, override, study_schema, template, template_names
from railwright.spec.schema import study_schema_text

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def plain(text):
    return json.loads(json.dumps(YAML(typ="safe", pure=True).load(text)))


def test_the_published_schema_is_up_to_date():
    published = (ROOT / "schema" / "study.schema.json").read_text(encoding="utf-8")
    assert published == study_schema_text(), "run: railwright schema > schema/study.schema.json"


def test_the_schema_is_a_schema_and_describes_every_field():
    schema = study_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for name, section in [("Study", schema), *schema["$defs"].items()]:
        for field, about in section["properties"].items():
            assert about.get("description") or "$ref" in about or "default" in about, f"{name}.{field}"


def test_quantities_are_text_with_a_unit_in_the_schema():
    validator = jsonschema.Draft202012Validator(study_schema()["$defs"]["CableLengths"])
    assert study_schema()["$defs"]["CableLengths"]["properties"]["leaf_spine"]["default"] == "30 m"
    assert validator.is_valid({"node_leaf": "2.5 m", "leaf_spine": "100ft"})
    for wrong in (10, "10", "10 parsec", "-3 m", "m"):
        assert not validator.is_valid({"node_leaf": wrong})


@pytest.mark.parametrize(
    "text", [*map(template, template_names()), *(e.read_text(encoding="utf-8") for e in EXAMPLES)]
)
def test_starters_and_examples_meet_schema_types_and_catalogue(text):
    jsonschema.Draft202012Validator(study_schema()).validate(plain(text))
    study = load_study_text(text)
    for one in (study, *(override(study, v.set) for v in (*study.variants, *study.sensitivity))):
        catalog = load_catalog(one.catalog)
        find(catalog.servers, one.cluster.server)
        find(catalog.switches, one.cluster.compute.switch)
        for job in one.jobs:
            load_model(job.model)


@pytest.mark.parametrize("name", template_names())
def test_a_starter_begins_with_what_it_is_and_fits_a_screen(name):
    lines = template(name).splitlines()
    assert lines[0].startswith("# ")
    assert max(map(len, lines)) <= 120


def test_the_example_and_its_starter_are_one_study():
    assert load_study(ROOT / "examples" / "mixtral-240-h100.yaml") == load_study_text(template("rail-240"))


def test_the_example_asks_the_question():
    study = load_study(ROOT / "examples" / "mixtral-240-h100.yaml")
    assert (study.cluster.servers, study.cluster.server, study.as_written) == (
        30,
        "dgx-h100",
        "Rails with PXN",
    )
    assert [variant.name for variant in study.variants] == [
        "Fat tree",
        "Rails without PXN",
        "Rail-only",
        "Rails with PXN, one leaf failed",
    ]
