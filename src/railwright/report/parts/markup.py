"""HTML and SVG as strings that cannot forget to escape."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

VOID = frozenset({"br", "col", "hr", "link", "meta"})
SELF_CLOSED = frozenset({"circle", "line", "path", "polygon", "rect", "use"})
QUANTITY = re.compile(r"(\d) (%|[KMGT]iB\b|[kMGTP]?B/s\b|[µm]?s\b|min\b|port\b)")
"""A number and the unit that stays with it."""


class Html(str):
    """Markup that is already safe; any other string is text and gets escaped on its way in."""

    __slots__ = ()


Child = Html | str | int | float | None
Attribute = str | int | float | None


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """One element: `tag("td", "a < b", class_="n")` is `<td class="n">a &lt; b</td>`.

    A trailing underscore of an attribute's name is dropped (`class_`), inner ones become hyphens;
    an attribute that is None is left out.  Numbers keep at most two decimals, so that pages stay small.
    """
    inside = "".join(f' {_name(key)}="{_attribute(v)}"' for key, v in attributes.items() if v is not None)
    if name in VOID:
        return Html(f"<{name}{inside}>")
    if name in SELF_CLOSED and not children:
        return Html(f"<{name}{inside}/>")
    return Html(f"<{name}{inside}>{join(children)}</{name}>")


def join(parts: Iterable[Child], between: str = "") -> Html:
    """Parts one after the other, text escaped, None left out."""
    return Html(between.join(_child(part) for part in parts if part is not None))


def unbroken(text: Child) -> Child:
    """Text whose '14 %' and '1 GiB' are not torn apart at the end of a line; anything else as it is."""
    if not isinstance(text, str) or isinstance(text, Html):
        return text
    return QUANTITY.sub("\\1\u00a0\\2", text)


def number(value: float) -> str:
    """Shortest text of a coordinate, at most two decimals."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _attribute(value: str | int | float) -> str:
    return escape(value, quote=True) if isinstance(value, str) else number(value)


def _child(part: Html | str | int | float) -> str:
    if isinstance(part, Html):
        return str(part)
    return escape(part, quote=False) if isinstance(part, str) else number(part)
