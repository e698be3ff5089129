"""Comments of a YAML mapping that ruamel hangs on the values before them, kept when values are replaced.

A comment above a key belongs, for ruamel, to the last line of what comes before it, however deep that lies:
it goes when that is replaced, and is in the way when something is added behind it.
"""

from __future__ import annotations

from typing import Any


def lifted(mapping: Any) -> dict[str, str]:
    """The lines of comment behind every value of a block mapping, taken off it, by key."""
    return {key: text for key in mapping if (text := _take(mapping, key))}


def laid_back(mapping: Any, lines: dict[str, str], before: list[str]) -> None:
    """Put lines back behind their keys, or where one is gone behind the one before it; those behind the last
    key come last again.

    before  the keys when the lines were lifted, in order
    """
    told: dict[str, str] = {}
    for at, key in enumerate(before):
        left = [one for one in before[: at + 1] if one in mapping]
        target = list(mapping)[-1] if at == len(before) - 1 else left[-1] if left else None
        if target is not None and key in lines:
            told[target] = told.get(target, "") + lines[key]
    for key, text in told.items():
        _put(mapping, key, text)


def _leaf(parent: Any, key: Any) -> tuple[Any, Any]:
    """Where the last line of a value is."""
    value = parent[key]
    block = hasattr(value, "fa") and not value.fa.flow_style() and len(value)
    if not block:
        return parent, key
    return _leaf(value, list(value)[-1] if isinstance(value, dict) else len(value) - 1)


def _slot(parent: Any) -> int:
    return 2 if isinstance(parent, dict) else 0


def _take(mapping: Any, key: str) -> str:
    parent, at = _leaf(mapping, key)
    comments = parent.ca.items.get(at)
    token = comments[_slot(parent)] if comments else None
    if token is None:
        return ""
    same, _, below = token.value.partition("\n")
    token.value = f"{same}\n"
    return str(below)


def _put(mapping: Any, key: str, text: str) -> None:
    from ruamel.yaml.error import CommentMark
    from ruamel.yaml.tokens import CommentToken

    parent, at = _leaf(mapping, key)
    comments = parent.ca.items.setdefault(at, [None] * 4 if _slot(parent) else [None])
    token = comments[_slot(parent)]
    if token is None:
        comments[_slot(parent)] = CommentToken(f"\n{text}", CommentMark(0), None)
    else:
        token.value = f"{token.value.rstrip(chr(10))}\n{text}"
