"""The punch list of a real machine as one self-contained page: what it looks like, what is wrong, drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railwright import __version__
from railwright.fabric.finding import Finding
from railwright.fabric.graph import Fabric
from railwright.report.drawings.fabric import draw_fabric
from railwright.report.html import document
from railwright.report.parts.markup import Child, Html, join, tag
from railwright.report.parts.table import data_table

SEVERITIES = ("fault", "warning", "note")
MANY = {"fault": "faults", "warning": "warnings", "note": "notes"}


def punch_page(
    title: str,
    summary: Sequence[str],
    findings: Sequence[Finding],
    fabric: Fabric | None,
    names: Mapping[str, str],
    undrawn: str,
) -> str:
    """The page; the same input gives the same text.

    summary  what the machine was taken for, in lines
    fabric   the machine as built; None when it cannot be drawn, and then `undrawn` says why
    names    names in the drawing -> names in the dump
    """
    counts = [(s, sum(f.severity == s for f in findings)) for s in SEVERITIES]
    told = ", ".join(f"{n or 'no'} {s if n == 1 else MANY[s]}" for s, n in counts)
    body = join(
        [
            tag(
                "header",
                tag("p", "Railwright punch list", class_="made"),
                tag("h1", title),
                tag("p", told, class_="question"),
            ),
            tag(
                "main",
                tag("section", tag("h2", "What the machine looks like"), _lines(summary)),
                *(_section(severity, findings) for severity in SEVERITIES),
                tag("section", tag("h2", "The fabric as built"), _drawing(fabric, names, undrawn)),
            ),
            tag("footer", tag("p", f"Railwright {__version__}")),
        ],
        "\n",
    )
    return document(title, body, __version__)


def _lines(lines: Sequence[str]) -> Html:
    return tag("pre", "\n".join(lines))


def _section(severity: str, findings: Sequence[Finding]) -> Html | None:
    """All findings of one severity as a table."""
    mine = [f for f in findings if f.severity == severity]
    if not mine:
        return None
    rows: list[list[Child]] = [
        [
            join([f.kind, tag("br"), tag("strong", f.element)]),
            join([f.expected or "not there", tag("br"), "is: ", f.found or "not there"]),
            join(
                [
                    f"{f.evidence} (confidence {f.confidence:.0%})",
                    *((tag("br"), "Next: ", f.next_test) if f.next_test else ()),
                ]
            ),
        ]
        for f in mine
    ]
    heads = ("what and where", "should be", "evidence, and what to do next")
    name = MANY[severity].capitalize()
    return tag("section", tag("h2", name), data_table(f"{name}, by device", heads, rows, wide=(1, 2)))


def _drawing(fabric: Fabric | None, names: Mapping[str, str], undrawn: str) -> Html:
    if fabric is None:
        return tag("p", f"It cannot be drawn: {undrawn}")
    title = "Servers, leaves, spines and their cables as found; failed and slow ones are marked"
    switches = [(drawn, name) for drawn, name in names.items() if not drawn.startswith("server-")]
    table = data_table("Switches: name in the drawing, name in the dump", ("drawn", "dump"), switches)
    parts: list[Html] = [tag("div", draw_fabric(fabric, name="as-built", title=title), class_="scroll")]
    if switches:
        parts.append(tag("details", tag("summary", "Names of the switches"), table))
    return join(parts)
