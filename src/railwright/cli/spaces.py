"""The file of axes and values that `--space` of a search names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Space = TypeVar("Space")


def space_of(file: Path, make: Callable[[Any], Space]) -> Space:
    """The space that `make` finds in what a file holds.

    Raises SpecError for what `make` refuses and for axes written twice, with their lines.
    """
    from railwright.errors import Mistake, SpecError
    from railwright.spec.document import read_text, read_yaml

    text = read_text(file)
    if all(line.strip() in ("", "---") or line.lstrip().startswith("#") for line in text.splitlines()):
        said = "the file is empty; name axes and values, like 'tensor: [1, 2, 4, 8]', or leave --space out"
        raise SpecError([Mistake(str(file), 0, 0, "", said)])
    document = read_yaml(text, str(file))
    mistakes = [*document.mistakes]
    try:
        found = make(document.plain)
    except SpecError as refused:
        mistakes += [
            document.mistake((m.field,) if m.field else (), m.message, True) for m in refused.mistakes
        ]
    if mistakes:
        raise SpecError(mistakes)
    return found
