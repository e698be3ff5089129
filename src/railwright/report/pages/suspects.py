"""A diagnosis as one self-contained page: the answer, the suspects with their evidence, the fabric drawn."""

from __future__ import annotations

from collections.abc import Sequence

from railwright import __version__
from railwright.fabric.finding import Finding
from railwright.fabric.graph import Fabric
from railwright.report.drawings.fabric import draw_fabric
from railwright.report.html import document
from railwright.report.parts.markup import Child, Html, join, tag
from railwright.report.parts.table import data_table


def suspects_page(
    title: str, answer: str, suspects: Sequence[Finding], notes: Sequence[str], fabric: Fabric | None
) -> str:
    """The page; the same input gives the same text.

    fabric  with the suspects marked; None without a topology
    """
    rows: list[list[Child]] = [
        [
            join([f.kind, tag("br"), tag("strong", f.element)]),
            f"{f.confidence:.0%}",
            join([f.found, tag("br"), f.evidence]),
            f.next_test,
        ]
        for f in suspects
    ]
    heads = ("what and where", "probability", "state and evidence", "next")
    table: Html = (
        data_table("Suspects, the most probable first", heads, rows, numbers=(1,), wide=(2, 3))
        if rows
        else tag("p", "The evidence is what a sound machine would show.")
    )
    drawn: Html | None = None
    if fabric is not None:
        picture = draw_fabric(fabric, name="suspects", title="The fabric; suspects above 50 % are marked")
        scrolled = tag("div", picture, class_="scroll")
        drawn = tag("section", tag("h2", "The fabric, suspects marked"), scrolled)
    body = join(
        [
            tag(
                "header",
                tag("p", "Railwright diagnosis", class_="made"),
                tag("h1", title),
                tag("p", answer, class_="question"),
            ),
            tag(
                "main",
                tag("section", tag("h2", "Suspects"), table),
                drawn,
                tag("section", tag("h2", "Besides"), tag("ul", *(tag("li", note) for note in notes)))
                if notes
                else None,
            ),
            tag("footer", tag("p", f"Railwright {__version__}")),
        ],
        "\n",
    )
    return document(title, body, __version__)
