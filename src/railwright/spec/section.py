"""What every section of a study file is."""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic_core import PydanticCustomError

_NOT_PRINTED = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's categories of control characters, halves of surrogate pairs, and separators of lines."""


class Section(BaseModel):
    """A part of the study: strict, frozen, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def not_bool(value: Any) -> Any:
    """Refuse true and fractions: Python's True equals 1, and a Literal of numbers would let it pass."""
    if isinstance(value, bool | float):
        text = str(value).lower()
        raise PydanticCustomError("not_bool", "{text} is not allowed; write a whole number", {"text": text})
    return value


def _name(text: str) -> str:
    """Refuse a name that tables, CSV files and terminals cannot show on one line."""
    if not text.strip():
        raise PydanticCustomError("blank_name", "a name cannot be blank; write what to call it")
    if odd := _not_printed(text):
        raise PydanticCustomError(
            "name", "a name is one line of text; delete the character {odd} from it", {"odd": odd}
        )
    return text


def _prose(text: str) -> str:
    """Refuse characters that do something to a terminal rather than being read."""
    if odd := _not_printed(text.replace("\n", "").replace("\t", "")):
        raise PydanticCustomError("prose", "the character {odd} cannot be printed; delete it", {"odd": odd})
    return text


def _not_printed(text: str) -> str:
    """The first character of a text that cannot be printed, as 'U+001B'; '' where there is none."""
    odd = next((letter for letter in text if unicodedata.category(letter) in _NOT_PRINTED), None)
    return f"U+{ord(odd):04X}" if odd is not None else ""


Name = Annotated[str, AfterValidator(_name)]
"""What something is called: one line of text, and not blank."""
Prose = Annotated[str, AfterValidator(_prose)]
"""Sentences for a person, of one line or several."""
