"""Quantities as pydantic field types: text with a unit in the file, a float in base units in the object."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from railwright.errors import RailwrightError
from railwright.units import EXAMPLES, Dimension, parse, units_of, write


@dataclass(frozen=True)
class Quantity:
    """Marks a float field whose text carries a unit of `dimension`.

    Reading takes text only: a bare number is refused, because 400 could be Gb/s or GB/s.
    Dumping writes text again, exactly (units.write), so a dumped study validates to itself.
    """

    dimension: Dimension

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                self._write, return_schema=core_schema.str_schema()
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        # 'kB' and 'KB' are both known, longer units first, so that editors report the whole unit.
        units = "|".join(re.escape(u) for u in sorted(units_of(self.dimension), key=lambda u: (-len(u), u)))
        return {
            "type": "string",
            "pattern": rf"^\s*\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*({units})\s*$",
            "examples": list(EXAMPLES[self.dimension]),
        }

    def _read(self, value: Any) -> float:
        if not isinstance(value, str):
            examples = " or ".join(f"'{e}'" for e in EXAMPLES[self.dimension])
            kind = (
                "has no unit"
                if isinstance(value, int | float) and not isinstance(value, bool)
                else "is not text"
            )
            raise PydanticCustomError(
                "quantity",
                f"{{value}} {kind}; write a {self.dimension} with its unit, like {examples}",
                {"value": repr(value)},
            )
        try:
            return parse(value, self.dimension)
        except RailwrightError as error:
            raise PydanticCustomError("quantity", "{text}", {"text": str(error)}) from None

    def _write(self, value: float) -> str:
        return write(value, self.dimension)


Bandwidth = Annotated[float, Quantity("bandwidth")]
"""[byte/s], written like '400 Gb/s'."""
Size = Annotated[float, Quantity("size")]
"""[byte], written like '1 MiB'."""
Length = Annotated[float, Quantity("length")]
"""[m], written like '25 m'."""
Power = Annotated[float, Quantity("power")]
"""[W], written like '10.2 kW'."""
Duration = Annotated[float, Quantity("time")]
"""[s], written like '130 ns'."""
