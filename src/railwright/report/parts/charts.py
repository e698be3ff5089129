"""Line charts and bars as SVG: lines are told apart by colour, dash, marker and letter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle

from railwright.report.parts.markup import Html, join, number, tag

DASHES = (None, "9 4", "2 3.5", "12 3 2 3", "5 3", "1 5", "14 5", "7 2 1 2 1 2")
COLOURS = 8
PART_LOOKS = ("m0", "m2", "m3", "m6", "m4", "m1", "m5", "m7")
"""Classes of the parts of a whole: neighbours are far apart in hue."""
LABEL_GAP = 17.0
LONGEST_NAME = 34
TINY = 1e-290
"""A difference too small to be cut into ticks: less, and shares of it leave the floats."""


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    index   place in the palette (and of the letter)
    letter  short name, shown where the long one has no room
    points  (x, y, tooltip), ascending x
    """

    index: int
    letter: str
    name: str
    points: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class Axes:
    """How a chart's axes read.

    y_from, y_to  fixed ends of the y axis; None: zero, and a round number above the data
    rule          a horizontal line to compare with (1 in a chart of ratios)
    """

    title: str
    x_name: str
    y_name: str
    show_x: Callable[[float], str]
    show_y: Callable[[float], str]
    y_from: float | None = 0.0
    y_to: float | None = None
    rule: float | None = None


def line_chart(lines: Sequence[Line], axes: Axes, *, name: str, height: float = 360.0) -> Html:
    """The chart twice: wide with names at the lines' ends, narrow (for a phone) with letters.

    The style sheet shows one of them.
    """
    names = max(len(_long_name(line)) for line in lines) * 7.6 + 22.0
    letters = max(len(line.letter) for line in lines) * 9.0 + 14.0
    return tag(
        "div",
        _line_chart(
            lines, axes, 860.0, height, max(120.0, names), long=True, name=f"{name}-wide", look="chart wide"
        ),
        _line_chart(
            lines, axes, 360.0, 0.8 * height, letters, long=False, name=f"{name}-narrow", look="chart narrow"
        ),
        class_="chart-box",
    )


def colour(index: int) -> str:
    """Class of the n-th line, bar or letter."""
    return f"s{index % COLOURS}"


def badge(index: int, letter: str) -> Html:
    """The letter that stands for a variant all over the page."""
    return tag("span", letter, class_=f"badge {colour(index)}")


def stacked_bar(parts: Sequence[tuple[str, float, str]], total: float, *, label: str) -> Html:
    """One bar of (class, length, tooltip) parts; a bar of length `total` fills the width."""
    x, rects = 0.0, []
    for look, length, tip in parts:
        if length > 0 and total > 0:
            width = 1000.0 * length / total
            rects.append(tag("rect", tag("title", tip), class_=look, x=x, y=0, width=width, height=10))
            x += width
    return _bar(rects, label)


def part_looks(names: Iterable[str]) -> dict[str, str]:
    """Part of a whole -> its class, in turn."""
    return dict(zip(names, cycle(PART_LOOKS), strict=False))


def colour_key(entries: Iterable[tuple[str, str]]) -> Html:
    """What the colours of a bar or drawing stand for: (class, text) of each."""
    lines = (tag("li", tag("span", class_=f"swatch {look}"), text) for look, text in entries)
    return tag("ul", *lines, class_="key")


def diverging_bar(value: float, reach: float, *, label: str) -> Html:
    """A bar from the middle to the right (gain) or left (loss); `reach` fills one half."""
    length = 490.0 * min(1.0, abs(value) / reach) if reach > 0 else 0.0
    look, x = ("gain", 500.0) if value >= 0 else ("loss", 500.0 - length)
    middle = tag("rect", class_="axis-mark", x=498, y=0, width=4, height=10)
    return _bar([tag("rect", class_=look, x=x, y=1.5, width=max(length, 3.0), height=7), middle], label)


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Round tick values that cover [low, high], at most about `most` of them."""
    # closer together than their digits tell apart counts as one value
    if not high - low > max(TINY, 1e-9 * max(abs(low), abs(high))):
        high = low + (abs(low) if abs(low) > TINY else 1.0)
    raw = (high - low) / max(1, most)
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(s * scale for s in (1.0, 2.0, 2.5, 5.0, 10.0) if s * scale >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def log2_ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of two (then of 2^5, 2^10) between low and high."""
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    for step in (1, 2, 5, 10, 20, 40):
        ticks = [2.0**p for p in range(-(-first // step) * step, last + 1, step)]
        if len(ticks) <= most:
            return ticks
    return [low, high]


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near the wanted ones, in their order, at least `gap` apart, within bounds."""
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    placed: list[float] = []
    for i in order:
        placed.append(max(wanted[i], placed[-1] + gap) if placed else max(wanted[i], low))
    ceiling = high
    for j in range(len(placed) - 1, -1, -1):
        placed[j] = min(placed[j], ceiling)
        ceiling = placed[j] - gap
    result = [0.0] * len(wanted)
    for i, place in zip(order, placed, strict=True):
        result[i] = place
    return result


def marker(shape: int, x: float, y: float, tip: str, size: float = 3.2, *, look: str | None = None) -> Html:
    """A line's own shape at one point: circle, square, diamond, triangle, in turn.

    tip   '' for no tooltip
    look  class of its colour; None: that of the line with this shape
    """
    look, s = f"mark {colour(shape) if look is None else look}", size
    inside = [tag("title", tip)] if tip else []
    shapes = (
        lambda: tag("circle", *inside, class_=look, cx=x, cy=y, r=s),
        lambda: tag("rect", *inside, class_=look, x=x - s, y=y - s, width=2 * s, height=2 * s),
        lambda: _polygon(
            look, inside, [(x, y - 1.4 * s), (x + 1.4 * s, y), (x, y + 1.4 * s), (x - 1.4 * s, y)]
        ),
        lambda: _polygon(look, inside, [(x, y - 1.3 * s), (x + 1.3 * s, y + s), (x - 1.3 * s, y + s)]),
        lambda: _polygon(look, inside, [(x, y + 1.3 * s), (x + 1.3 * s, y - s), (x - 1.3 * s, y - s)]),
    )
    return shapes[shape % len(shapes)]()


def _line_chart(
    lines: Sequence[Line],
    axes: Axes,
    width: float,
    height: float,
    right: float,
    *,
    long: bool,
    name: str,
    look: str,
) -> Html:
    left, top, bottom = 62.0, 34.0, 46.0
    xs = [x for line in lines for x, _, _ in line.points]
    ys = [y for line in lines for _, y, _ in line.points]
    x_low, x_high = min(xs), max(xs)
    y_low = min(ys) if axes.y_from is None else axes.y_from
    ticks = nice_ticks(y_low, max(ys) if axes.y_to is None else axes.y_to, 6 if long else 5)
    y_low, y_high = ticks[0], ticks[-1]
    decades = math.log2(x_high / x_low) or 1.0

    def to_x(x: float) -> float:
        share = math.log2(x / x_low) / decades if x_high > x_low else 0.5
        return left + (width - left - right) * share

    def to_y(y: float) -> float:
        return height - bottom - (height - top - bottom) * (y - y_low) / (y_high - y_low)

    end = width - right
    grid: list[Html] = [tag("text", axes.y_name, class_="axis-name", x=0, y=14)]
    for y in ticks:
        grid.append(tag("line", class_="grid", x1=left, x2=end, y1=to_y(y), y2=to_y(y)))
        grid.append(tag("text", axes.show_y(y), class_="tick", x=left - 8, y=to_y(y) + 4, text_anchor="end"))
    for x in log2_ticks(x_low, x_high, 8 if long else 4) if x_high > x_low else [x_low]:
        grid.append(
            tag("line", class_="grid", x1=to_x(x), x2=to_x(x), y1=height - bottom, y2=height - bottom + 5)
        )
        grid.append(
            tag(
                "text", axes.show_x(x), class_="tick", x=to_x(x), y=height - bottom + 19, text_anchor="middle"
            )
        )
    grid.append(tag("text", axes.x_name, class_="axis-name", x=end, y=height - 6, text_anchor="end"))
    if axes.rule is not None and y_low <= axes.rule <= y_high:
        grid.append(tag("line", class_="rule", x1=left, x2=end, y1=to_y(axes.rule), y2=to_y(axes.rule)))

    # Lines that coincide lie on each other; the lower ones are wider, so that all of them are seen.
    drawn = [
        _curve(line, to_x, to_y, 2.0 + 0.6 * above)
        for above, line in zip(reversed(range(len(lines))), lines, strict=True)
    ]
    ends = [(to_x(line.points[-1][0]), to_y(line.points[-1][1])) for line in lines]
    places = spread([y for _, y in ends], LABEL_GAP, top, height - bottom)
    labels = [_label(line, at, place, end, long) for line, at, place in zip(lines, ends, places, strict=True)]
    return tag(
        "svg",
        tag("title", axes.title, id=name),
        tag("g", *grid, aria_hidden="true"),
        *drawn,
        *labels,
        class_=look,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_labelledby=name,
    )


def _curve(line: Line, to_x: Callable[[float], float], to_y: Callable[[float], float], width: float) -> Html:
    path = "M" + "L".join(f"{number(to_x(x))} {number(to_y(y))}" for x, y, _ in line.points)
    dash = DASHES[line.index % len(DASHES)]
    return tag(
        "g",
        tag("path", class_=f"curve {colour(line.index)}", d=path, stroke_width=width, stroke_dasharray=dash),
        *(marker(line.index, to_x(x), to_y(y), tip) for x, y, tip in line.points),
    )


def _label(line: Line, at: tuple[float, float], place: float, end: float, long: bool) -> Html:
    text = _long_name(line) if long else line.letter
    lead = None
    if long:
        d = f"M{number(at[0] + 5)} {number(at[1])}L{number(end + 14)} {number(place)}"
        lead = tag("path", class_=f"lead {colour(line.index)}", d=d)
    x = end + (18 if long else 9)
    label = tag("text", text, class_=f"name {colour(line.index)}", x=x, y=place + 4.5)
    return tag("g", lead, label)


def _long_name(line: Line) -> str:
    """Letter and name, the name cut where it would take the chart's room; the list below has it whole."""
    name = line.name if len(line.name) <= LONGEST_NAME else line.name[: LONGEST_NAME - 1].rstrip() + "…"
    return f"{line.letter}  {name}"


def _polygon(look: str, inside: Sequence[Html], points: Sequence[tuple[float, float]]) -> Html:
    text = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    return tag("polygon", *inside, class_=look, points=text)


def _bar(rects: Sequence[Html], label: str) -> Html:
    return tag(
        "svg",
        join(rects),
        class_="bar",
        viewBox="0 0 1000 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
