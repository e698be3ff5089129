"""A TOML file whose keys are asked for by section, and what nobody asked for.

Section names are dotted: key `recipe_name` of `[quantize.linear.float8]` is ("quantize.linear.float8",
"recipe_name"), as in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from railwright.errors import RailwrightError, nearest

MOVED = {
    "parallelism": ("experimental", "training"),
    "compile": ("training",),
    "quantize.linear.float8": ("float8",),
    "debug": ("training",),
}
"""Sections of torchtitan, and where their keys stood before 2025 was out."""


class Tables:
    """A configuration whose keys are asked for by section, wherever its release has them.

    asked  (section, key) that a reader has looked for
    moved  sections of which a key stood where, or was called what, only earlier releases read
    """

    def __init__(self, read: Mapping[str, Any], file: str) -> None:
        self.read, self.file = read, file
        self.asked: set[tuple[str, str]] = set()
        self.moved: set[str] = set()

    def get(self, section: str, key: str, default: Any, *others: str) -> Any:
        """A value of the default's type. Raises RailwrightError, naming section and key, for another one."""
        found = self._found(section, key, *others)
        return default if found is None else self._checked(found[1], default, found[0])

    def count(self, section: str, key: str, default: int, *others: str) -> int:
        """A whole number of something that there is, 1 or more; or the default, whatever it is."""
        value: int = self.get(section, key, default, *others)
        if value < 1 and value != default:
            found = self._found(section, key, *others)
            where = f"[{section}] {key}" if found is None else found[0]
            raise RailwrightError(f"{self.file}: {where}: {value} is given, 1 or more is expected")
        return value

    def degree(self, key: str, default: int = 1) -> int:
        """The size of a group, or another number of [parallelism]; the default where it is not given."""
        return self.count("parallelism", key, default)

    def unasked(self) -> Iterator[tuple[str, str, Any]]:
        """Section, key and value of all that nobody asked for, in the order of the file."""
        yield from (one for one in _flat(self.read) if one[:2] not in self.asked)

    def hint(self, section: str, key: str, keys: Iterable[str], sections: Iterable[str]) -> str:
        """'; did you mean 'x'?' for a key near one that was asked for or of `keys`, or, where nothing of its
        section was asked for, for a section near one that was or of `sections`; '' where none is near."""
        names = {name for place, name in self.asked if place == section}
        if names:
            return nearest(key, sorted({*names, *keys}))
        return nearest(section, sorted({*sections, *(place for place, _ in self.asked)}))

    def _found(self, section: str, *names: str) -> tuple[str, Any] | None:
        """'[section] key' and its value under the first of its places and names that is given."""
        found = None
        for place in (section, *MOVED.get(section, ())):
            table = self._table(place)
            for name in names:
                self.asked.add((place, name))
                if found is None and name in table:
                    found = f"[{place}] {name}", table[name]
                    if (place, name) != (section, names[0]):
                        self.moved.add(section)
        return found

    def _table(self, section: str) -> Mapping[str, Any]:
        """A table in tables; {} where one of them is none."""
        found: Any = self.read
        for name in section.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    def _checked(self, value: Any, default: Any, where: str) -> Any:
        kind = type(default)
        right = type(value) is kind or (kind is list and isinstance(value, str))
        if not right:
            expected = {bool: "true or false", int: "a whole number", str: "a text", list: "a list"}[kind]
            raise RailwrightError(f"{self.file}: {where}: {value!r} is given, {expected} is expected")
        return value


def _flat(table: Mapping[str, Any], section: str = "") -> Iterator[tuple[str, str, Any]]:
    """Section, key and value of all that stands in tables in tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{section}.{key}".strip("."))
        else:
            yield section, key, value
