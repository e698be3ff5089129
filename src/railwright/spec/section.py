"""What every section of a study file is."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """A part of the study: strict, frozen, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def not_bool(value: Any) -> Any:
    """Refuse true and fractions: Python's True equals 1, and a Literal of numbers would let it pass."""
    if isinstance(value, bool | float):
        text = str(value).lower()
        raise PydanticCustomError("not_bool", "{text} is not allowed; write a whole number", {"text": text})
    return value
