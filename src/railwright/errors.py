"""The two ways Railwright says no to its user: a mistake in what was written, and a plan that cannot work.

Both carry a complete sentence for a person; the command line prints it and exits with status 2,
without a traceback.  `assert` is for our own invariants only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


class RailwrightError(Exception):
    """Something the user can put right; its text is the whole message.

    field  what of the study it is about, as a dotted path that the text need not repeat
           ('cluster.compute.tiers'); a function that knows a part of the study says it from there on, and
           its callers say `within` what; '' where the text begins with the field, or is about no single one
    """

    def __init__(self, message: str = "", field: str = "") -> None:
        super().__init__(message)
        self.field = field


class PlanError(RailwrightError):
    """A well-formed request that cannot work (an impossible fabric, a model that does not fit).

    The text says which count fails, by how much, and what would work.
    """

    def within(self, section: str) -> PlanError:
        """The same refusal, its field read inside a section; one from the cluster on stays as it is."""
        if self.field.startswith("cluster."):
            return self
        return PlanError(str(self), f"{section}.{self.field}".rstrip("."))


@dataclass(frozen=True)
class Mistake:
    """One mistake in a file the user wrote.

    file     path as the user gave it, or '<memory>'
    line     1-based line, 0 when unknown
    column   1-based column, 0 when unknown
    field    dotted path of the field, '' for the whole file
    message  what is wrong, what is allowed, and the nearest known name where there is one
    """

    file: str
    line: int
    column: int
    field: str
    message: str

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place += f":{self.line}"
            if self.column:
                place += f":{self.column}"
        return f"{place}: {self.field}: {self.message}" if self.field else f"{place}: {self.message}"


class SpecError(RailwrightError):
    """All mistakes found in what the user wrote, at once, in file order."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes: tuple[Mistake, ...] = tuple(
            sorted(mistakes, key=lambda m: (m.file, m.line, m.column, m.field))
        )
        super().__init__("\n".join(str(m) for m in self.mistakes))


def nearest(name: str, known: Iterable[str]) -> str:
    """'; did you mean 'x', 'y'?' for the names closest to `name`, or ''.

    Names that differ in case alone (Gb/s and GB/s) are all offered.
    """
    lowered: dict[str, list[str]] = {}
    for candidate in known:
        lowered.setdefault(candidate.lower(), []).append(candidate)
    close = get_close_matches(name.lower(), lowered, n=3, cutoff=0.6)
    offered = [candidate for match in close for candidate in lowered[match]][:4]
    if not offered:
        return ""
    return "; did you mean " + ", ".join(f"'{c}'" for c in offered) + "?"


def among(name: str, known: Iterable[str]) -> str:
    """'; did you mean 'x'? known are x, y' behind a name that is none of them, or '; known are x, y'."""
    names = tuple(known)
    return f"{nearest(name, names) or ';'} known are {', '.join(names)}"
