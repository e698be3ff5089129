"""One catalogue file being read: where its values stand, and what was found wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from railwright.catalog.parts import Source
from railwright.errors import Mistake


@dataclass
class Reading:
    """The reading of one file.

    file       path as the user gave it
    documents  key -> document, where `sources` name documents by key (shipped files); None for a user's file
    aliases    kind -> alias -> name
    mistakes   what was found wrong so far
    """

    file: str
    documents: Mapping[str, Source] | None
    aliases: Mapping[str, Mapping[str, str]]
    mistakes: list[Mistake] = field(default_factory=list)

    def mistake(
        self, tree: Mapping[Any, Any], key: Any, dotted: str, message: str, at_key: bool = False
    ) -> None:
        """Note one mistake at the value (or at the key itself) of a YAML mapping."""
        self.mistake_at(place(tree, key, at_key), dotted, message)

    def mistake_at(self, position: tuple[int, int], dotted: str, message: str) -> None:
        """Note one mistake at a line and column."""
        self.mistakes.append(Mistake(self.file, *position, dotted, message))


@dataclass(frozen=True)
class Record:
    """One part as it stands in a file.

    kind      'gpus', 'nics', 'switches' or 'servers'
    name      the catalogue's name of the part
    dotted    kind and name as written, for messages
    fields    YAML mapping of the record
    position  line and column of its name
    """

    kind: str
    name: str
    dotted: str
    fields: Mapping[Any, Any]
    position: tuple[int, int]


def place(tree: Mapping[Any, Any], key: Any, at_key: bool = False) -> tuple[int, int]:
    """1-based line and column of a key's value (or of the key) in a YAML mapping; (0, 0) if unknown."""
    positions = getattr(tree, "lc", None)
    if positions is None or positions.data is None or key not in positions.data:
        return 0, 0
    line, column = positions.key(key) if at_key else positions.value(key)
    return line + 1, column + 1
