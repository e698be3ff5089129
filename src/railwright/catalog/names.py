"""Names of parts: lower case with hyphens; what people write in other ways means the same part."""

from __future__ import annotations

from collections.abc import Mapping


def canonical(written: str, aliases: Mapping[str, str]) -> str:
    """The catalogue's name for what was written: case and '_' against '-' do not matter; aliases resolved."""
    name = written.strip().lower().replace("_", "-").replace(" ", "-")
    return aliases.get(name, name)
