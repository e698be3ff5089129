"""Published counts: switches and cables of reference designs, parameters of models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric import build, count
from railwright.measure.table import Row, Skipped
from railwright.model import count_parameters, load_model
from railwright.spec.study import Cluster


def _data(name: str) -> Any:
    return json.loads(
        resources.files("railwright.measure").joinpath(f"data/{name}").read_text(encoding="utf-8")
    )


def design_rows() -> Iterator[Row | Skipped]:
    """Every count of every reference design; they must be exact."""
    catalog = load_catalog()
    for design in _data("designs.json"):
        try:
            found = count(build(Cluster.model_validate(design["cluster"]), catalog), catalog)
        except PlanError as no:
            yield Skipped("reference designs", design["id"], str(no))
            continue
        for name, expected in design["expected"].items():
            yield Row(
                "reference designs",
                design["id"],
                name,
                float(getattr(found, name)),
                expected,
                "",
                design["source"],
            )


def parameter_rows() -> Iterator[Row | Skipped]:
    """Total and active parameters of the bundled architectures."""
    for record in _data("parameters.json"):
        counted = float(getattr(count_parameters(load_model(record["model"])), record["what"]))
        what, published = record["what"].replace("_", " "), record["published"]
        yield Row("model parameters", record["model"], what, counted, published, "", record["source"])
