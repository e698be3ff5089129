"""Money drawn: what a GPU-hour is made of, step by step, and what was spent on each way, month by month."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.cost.comparing import Comparison
from railwright.cost.options import Cost
from railwright.report.parts.charts import colour, nice_ticks, spread
from railwright.report.parts.markup import Html, number, tag
from railwright.report.words.money import dollars

PARTS = {
    "purchase": "m0",
    "power": "m2", "space": "m3", "people": "m1", "support": "m4", "rent": "m6", "data": "m7",
}  # fmt: skip
"""Part of a monthly cost -> its look."""

WIDTH, LEFT, TOP, BOTTOM = 860.0, 74.0, 30.0, 44.0


def draw_waterfall(cost: Cost, height: float = 300.0) -> Html:
    """One way's GPU-hour from nothing to its whole, part after part [USD]."""
    parts = [(name, float(value) / cost.wanted) for name, value in cost.parts.items() if float(value)]
    total = sum(value for _, value in parts)
    ticks = nice_ticks(0.0, total, 5)
    scale = (height - TOP - BOTTOM) / ticks[-1]
    step = (WIDTH - LEFT - 10) / (len(parts) + 1)
    shapes: list[Html] = [_axis(ticks, scale, height, WIDTH - 10, "a GPU-hour wanted")]
    at = 0.0
    for i, (name, value) in enumerate([*parts, ("in all", total)]):
        low = 0.0 if name == "in all" else at
        x, y = LEFT + i * step + 0.14 * step, height - BOTTOM - (low + value) * scale
        tip = tag("title", f"{name}: {dollars(value)} a GPU-hour, {dollars(value * cost.wanted)} a month")
        look = PARTS.get(name, "k-host")
        shapes.append(
            tag("rect", tip, class_=look, x=x, y=y, width=0.72 * step, height=max(value * scale, 1))
        )
        middle = x + 0.36 * step
        shapes.append(tag("text", dollars(value), x=middle, y=y - 5, text_anchor="middle", class_="tick"))
        shapes.append(tag("text", name, x=middle, y=height - BOTTOM + 18, text_anchor="middle"))
        at += value
    return _svg(f"What a GPU-hour of {cost.name} is made of", shapes, height, "waterfall")


def draw_break_even(found: Comparison, height: float = 340.0) -> Html:
    """Spent on the best owned way and on each cloud on demand, from the first day to the last [USD]."""
    own = next(c for c in found.costs if c.kind in ("own", "colo"))
    shown = [own, *(c for c in found.costs if c.kind == "on-demand")]
    months = found.case.money.years * 12
    lines = [(c.name, float(c.upfront) if c is own else 0.0, _running(c, own)) for c in shown]
    top = max(start + running * months for _, start, running in lines)
    ticks = nice_ticks(0.0, top, 5)
    right = WIDTH - 20 - 8.2 * max(len(name) for name, _, _ in lines)
    scale, wide = (height - TOP - BOTTOM) / ticks[-1], right - LEFT
    shapes: list[Html] = [_axis(ticks, scale, height, right, "spent since the first day")]
    for year in range(int(found.case.money.years) + 1):
        x = LEFT + wide * min(year * 12 / months, 1.0)
        shapes.append(
            tag("text", f"{year} y", class_="tick", x=x, y=height - BOTTOM + 18, text_anchor="middle")
        )
    floor = height - BOTTOM
    ends = [floor - (start + running * months) * scale for _, start, running in lines]
    places = spread(ends, 16.0, TOP, floor)
    for i, ((name, start, running), end, place) in enumerate(zip(lines, ends, places, strict=True)):
        d = f"M{number(LEFT)} {number(floor - start * scale)}L{number(right)} {number(end)}"
        tip = tag("title", f"{name}: {dollars(start)} at once, {dollars(running)} a month")
        shapes.append(tag("path", tip, class_=f"curve {colour(i)}", d=d, stroke_width=3.2 if i == 0 else 2.2))
        shapes.append(tag("text", name, class_=f"name {colour(i)}", x=right + 8, y=place + 4))
    for b in found.breaks:
        if b.own == own.name and b.months <= months:
            spent = float(own.upfront) + _running(own, own) * b.months
            x, y = LEFT + wide * b.months / months, floor - spent * scale
            tip = tag("title", f"{b.own} has paid for itself against {b.cloud} after {b.months:.0f} months")
            shapes.append(tag("circle", tip, class_="mark s0", cx=x, cy=y, r=4.5))
    return _svg(
        f"Spent on {own.name} and on clouds on demand, without interest", shapes, height, "break-even"
    )


def _running(cost: Cost, own: Cost) -> float:
    """A month without the purchase [USD]."""
    return float(cost.monthly) - (float(cost.parts["purchase"]) if cost is own else 0.0)


def _axis(ticks: Sequence[float], scale: float, height: float, right: float, name: str) -> Html:
    lines: list[Html] = [tag("text", name, class_="axis-name", x=0, y=14)]
    for value in ticks:
        y = height - BOTTOM - value * scale
        lines.append(tag("line", class_="grid", x1=LEFT, x2=right, y1=y, y2=y))
        lines.append(tag("text", dollars(value), class_="tick", x=LEFT - 8, y=y + 4, text_anchor="end"))
    return tag("g", *lines, aria_hidden="true")


def _svg(title: str, shapes: Sequence[Html], height: float, name: str) -> Html:
    return tag(
        "svg",
        tag("title", title, id=name),
        *shapes,
        class_="chart whole",
        viewBox=f"0 0 {number(WIDTH)} {number(height)}",
        role="img",
        aria_labelledby=name,
    )
