"""The published JSON Schema of the study file, made from the study's types; editors complete with it."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from railwright.spec.study import Study


def study_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a study; quantities are text with a unit."""
    schema = Study.model_json_schema(schema_generator=_Generator)
    return {"$schema": _Generator.schema_dialect, **schema, "title": "Railwright study"}


def study_schema_text() -> str:
    """The schema as `railwright schema` prints it and schema/study.schema.json holds it."""
    return json.dumps(study_schema(), indent=2, ensure_ascii=False) + "\n"


class _Generator(GenerateJsonSchema):
    """Field names need no second title, and a quantity's default is written with its unit."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        made = super().default_schema(schema)
        writer = _quantity_writer(schema["schema"])
        if writer is not None and made.get("default") is not None:
            made["default"] = writer(schema["default"])
        return made


def _quantity_writer(schema: CoreSchema) -> Any:
    """The function that writes a quantity, where the schema is one."""
    serialization: Any = schema.get("serialization")
    if serialization and serialization["type"] == "function-plain":
        return serialization["function"]
    return None
