"""A table with a caption, scoped headings and aligned numbers, which scrolls in its own box when narrow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from railwright.report.parts.markup import Child, Html, tag, unbroken


def data_table(
    caption: str,
    heads: Sequence[Child],
    rows: Iterable[Sequence[Child]],
    numbers: Collection[int] = (),
    wide: Collection[int] = (),
) -> Html:
    """A table whose first column names the row.

    numbers  columns of numbers, right-aligned
    wide     columns of sentences or bars: never squeezed to a few letters; a table that has some becomes
             one block per row on a phone
    """

    def look(column: int) -> str | None:
        return "n" if column in numbers else "t" if column in wide else None

    names = [str(text) if wide else None for text in heads]
    head = tag("tr", *(tag("th", text, scope="col", class_=look(i)) for i, text in enumerate(heads)))
    body = (
        tag(
            "tr",
            tag("th", unbroken(row[0]), scope="row", class_=look(0)),
            *(
                tag("td", unbroken(cell), class_=look(i), data_name=names[i])
                for i, cell in enumerate(row[1:], 1)
            ),
        )
        for row in rows
    )
    kind = "stack" if wide else None
    table = tag(
        "table", tag("caption", tag("span", caption)), tag("thead", head), tag("tbody", *body), class_=kind
    )
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=caption)
