"""Clouds of dots as SVG, on linear or logarithmic axes: colour and shape say what a dot is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from railwright.report.parts.charts import colour, marker, nice_ticks
from railwright.report.parts.markup import Html, number, tag
from railwright.report.parts.style import drawing_style

WIDTH, HEIGHT = 520.0, 478.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 24.0, 70.0, 44.0
ROW = 18.0
"""Height of a row of the key."""
SHAPES = (0, 2, 3)
"""The marker's shapes that are told apart best where many overlap: circle, diamond, triangle."""
DOT = 2.6


@dataclass(frozen=True)
class Dot:
    """One dot: where it is, places of its colour and shape in the key, and its tooltip ("" for none)."""

    x: float
    y: float
    colour: int
    shape: int
    tip: str = ""


@dataclass(frozen=True)
class Scale:
    """One axis, from `low` to `high`.

    ticks  the values that are named
    show   how they are written
    log    equal ratios are equally long
    """

    name: str
    low: float
    high: float
    ticks: tuple[float, ...]
    show: Callable[[float], str]
    log: bool = False

    def place(self, value: float) -> float:
        """Share of the way from `low` to `high`; what is beyond stands at the end."""
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return min(1.0, max(0.0, (at - low) / (high - low)))


def decades(name: str, values: Iterable[float], show: Callable[[float], str]) -> Scale:
    """A logarithmic axis over whole powers of ten."""
    found = list(values)
    first, last = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))
    ticks = tuple(10.0**n for n in range(first, max(last, first + 1) + 1))
    return Scale(name, ticks[0], ticks[-1], ticks, show, log=True)


def linear(name: str, low: float, high: float, show: Callable[[float], str]) -> Scale:
    """A linear axis that ends at round values."""
    ticks = tuple(nice_ticks(low, high, 10))
    return Scale(name, ticks[0], ticks[-1], ticks, show)


def scatter(
    dots: Sequence[Dot],
    x: Scale,
    y: Scale,
    *,
    name: str,
    title: str,
    colours: Sequence[str],
    shapes: Sequence[str],
    guides: Sequence[tuple[tuple[float, float], tuple[float, float]]] = (),
) -> Html:
    """The chart, with its key above.

    colours, shapes  what each stands for, in the order of the dots' places
    guides           lines to compare with, from one (x, y) to another; the first is drawn whole
    """
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM

    def to_x(value: float) -> float:
        return LEFT + (right - LEFT) * x.place(value)

    def to_y(value: float) -> float:
        return floor - (floor - TOP) * y.place(value)

    grid: list[Html] = []
    for tick in x.ticks:
        at = to_x(tick)
        grid.append(tag("line", class_="grid", x1=at, x2=at, y1=TOP, y2=floor))
        grid.append(tag("text", x.show(tick), class_="tick", x=at, y=floor + 17, text_anchor="middle"))
    for tick in y.ticks:
        at = to_y(tick)
        grid.append(tag("line", class_="grid", x1=LEFT, x2=right, y1=at, y2=at))
        grid.append(tag("text", y.show(tick), class_="tick", x=LEFT - 7, y=at + 4, text_anchor="end"))
    grid.append(tag("text", x.name, class_="axis-name", x=right, y=HEIGHT - 6, text_anchor="end"))
    grid.append(tag("text", y.name, class_="axis-name", x=0, y=TOP - 12))
    lines = (
        tag(
            "line",
            class_="rule" if nth else "rule whole",
            x1=to_x(x1),
            y1=to_y(y1),
            x2=to_x(x2),
            y2=to_y(y2),
        )
        for nth, ((x1, y1), (x2, y2)) in enumerate(guides)
    )
    return tag(
        "svg",
        tag("title", title, id=name),
        tag("g", *grid, *lines, *_key(colours, shapes), aria_hidden="true"),
        tag("g", *(_dot(one, to_x(one.x), to_y(one.y)) for one in dots), class_="dots"),
        class_="scatter",
        viewBox=f"0 0 {number(WIDTH)} {number(HEIGHT)}",
        role="img",
        aria_labelledby=name,
    )


def picture(drawing: Html) -> str:
    """A drawing as a file of its own, with the styles of the page inside."""
    inside = tag("style", Html(drawing_style()))
    opened = drawing.index(">") + 1
    head = drawing[:opened].replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{head}{inside}{drawing[opened:]}\n"


def _dot(dot: Dot, x: float, y: float) -> Html:
    return marker(SHAPES[dot.shape], x, y, dot.tip, DOT, look=colour(dot.colour))


def _key(colours: Sequence[str], shapes: Sequence[str]) -> list[Html]:
    """What colours stand for in one row over the whole width, and in a second one what shapes do, without a
    colour of their own."""
    return [
        *_row([(0, colour(i), text) for i, text in enumerate(colours)], 17),
        *_row([(SHAPES[i], "plain", text) for i, text in enumerate(shapes)], 17 + ROW),
    ]


def _row(entries: Sequence[tuple[int, str, str]], y: float) -> list[Html]:
    """Marker by marker with its text."""
    found: list[Html] = []
    at = 0.0
    for shape, look, text in entries:
        found.append(marker(shape, at + 4, y - 4, "", 4.0, look=look))
        found.append(tag("text", text, class_="tick", x=at + 13, y=y))
        at += 13 + 6.7 * len(text) + 14
    return found
