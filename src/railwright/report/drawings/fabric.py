"""The fabric drawn: servers below, switches above, bundles of cables as wide as they are many.

Small fabrics show every device; larger ones show groups of like devices with their counts, so that 30 servers
and 4,000 both fit one picture.  Legend: N devices, C cables, B boxes of the drawing, L bundles between boxes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric, Kind, Role
from railwright.report.drawings.boxes import NOUNS, PLURALS, Box, boxes_of
from railwright.report.parts.markup import Html, number, tag
from railwright.units import show_bit_rate, show_count

WIDTH, GUTTER, MARGIN = 960.0, 122.0, 6.0
SERVER_ROW, SWITCH_ROW, GAP = 58.0, 40.0, 118.0
RAILS = 8


@dataclass(frozen=True)
class Bundle:
    """All cables between two boxes: how many, of which rail (-1: several), how many failed and slow."""

    low: int
    high: int
    cables: int
    rail: int
    failed: int
    slow: int
    rate: float


def draw_fabric(fabric: Fabric, *, name: str, title: str) -> Html:
    """The fabric as one SVG picture; `name` makes its ids unique on the page."""
    boxes, box_of = boxes_of(fabric)
    links = bundles(fabric, box_of)
    rows = [
        kind for kind in (Kind.CORE, Kind.SPINE, Kind.LEAF, Kind.GPU) if any(b.kind == kind for b in boxes)
    ]
    tops: dict[Kind, float] = {}
    y = 14.0
    for kind in rows:
        tops[kind] = y
        y += (SERVER_ROW if kind == Kind.GPU else SWITCH_ROW) + GAP
    height = y - GAP + 14.0
    most = max((link.cables for link in links), default=1)
    # Many bundles side by side must stay apart, so that each is drawn thinner.
    widest = min(6.0, max(1.2, 60.0 / math.sqrt(max(1, len(links)))))
    order = sorted(links, key=lambda k: (_faulty(k), k.low, k.high))
    lines = [_bundle(fabric, boxes, link, tops, most, widest) for link in order]
    return tag(
        "svg",
        tag("title", title, id=name),
        tag("g", *lines, class_="cables"),
        tag("g", *(_box(fabric, box, tops[box.kind]) for box in boxes)),
        tag("g", *(_row_name(fabric, kind, tops[kind]) for kind in rows)),
        class_="fabric",
        viewBox=f"0 0 {number(WIDTH)} {number(height)}",
        role="img",
        aria_labelledby=name,
    )


def bundles(fabric: Fabric, box_of: NDArray[np.int32]) -> list[Bundle]:
    """Cables of the scale-out network, gathered by the two boxes that they join."""
    out = np.flatnonzero(fabric.role >= Role.NODE_LEAF)
    ends = np.stack([box_of[fabric.a[out]], box_of[fabric.b[out]]])
    low, high = ends.min(axis=0), ends.max(axis=0)
    rate = fabric.rate[out]
    worst = np.minimum(fabric.capacity[2 * out], fabric.capacity[2 * out + 1])
    rail = np.maximum(
        np.where(fabric.kind[fabric.a[out]] == Kind.NIC, fabric.rail[fabric.a[out]], -1),
        np.where(fabric.kind[fabric.b[out]] == Kind.NIC, fabric.rail[fabric.b[out]], -1),
    )
    keys, member = np.unique(np.stack([low, high]), axis=1, return_inverse=True)
    member = member.reshape(-1)
    total = np.bincount(member, minlength=keys.shape[1])
    failed = np.bincount(member, weights=worst <= 0, minlength=keys.shape[1])
    slow = np.bincount(member, weights=(worst > 0) & (worst < rate * 0.999), minlength=keys.shape[1])
    first_rail = np.full(keys.shape[1], np.iinfo(np.int32).max)
    last_rail = np.full(keys.shape[1], -1)
    best = np.zeros(keys.shape[1])
    np.minimum.at(first_rail, member, rail)
    np.maximum.at(last_rail, member, rail)
    np.maximum.at(best, member, rate)
    return [
        Bundle(
            int(keys[0, i]),
            int(keys[1, i]),
            int(total[i]),
            int(last_rail[i]) if first_rail[i] == last_rail[i] else -1,
            int(failed[i]),
            int(slow[i]),
            float(best[i]),
        )
        for i in range(keys.shape[1])
    ]


def _faulty(link: Bundle) -> bool:
    return link.failed > 0 or link.slow > 0


def _bundle(
    fabric: Fabric, boxes: Sequence[Box], link: Bundle, tops: dict[Kind, float], most: int, widest: float
) -> Html:
    below, above = boxes[link.low], boxes[link.high]
    x0, x1 = _x(below.centre), _x(above.centre)
    if below.kind == Kind.GPU and link.rail >= 0:
        x0 += _nic_offset(below, link.rail, fabric)
    y0 = tops[below.kind]
    y1 = tops[above.kind] + (SERVER_ROW if above.kind == Kind.GPU else SWITCH_ROW)
    middle = (y0 + y1) / 2
    width = 0.8 + widest * math.sqrt((link.cables - 1) / most) if most > 1 else 1.1
    width = min(width, 1.0 + 0.5 * link.cables)
    look = f"r{link.rail % RAILS}" if link.rail >= 0 else "trunk"
    state = ""
    if link.failed == link.cables:
        look, state = "failed", ", all failed"
    elif link.failed:
        look, state = f"{look} hurt", f", {show_count(link.failed)} of them failed"
    elif link.slow:
        look, state = f"{look} slow", f", {show_count(link.slow)} of them slow"
    cables = "1 cable" if link.cables == 1 else f"{show_count(link.cables)} cables"
    tip = f"{below.name} to {above.name}: {cables} of {show_bit_rate(link.rate)}{state}"
    x0_, x1_, bend = number(x0), number(x1), number(middle)
    d = f"M{x0_} {number(y0)}C{x0_} {bend} {x1_} {bend} {x1_} {number(y1)}"
    return tag("path", tag("title", tip), class_=look, d=d, stroke_width=width)


def _box(fabric: Fabric, box: Box, top: float) -> Html:
    width = max(4.0, box.width * (WIDTH - GUTTER - MARGIN))
    height = SERVER_ROW if box.kind == Kind.GPU else SWITCH_ROW
    x = _x(box.centre) - width / 2
    state = {"failed": " · failed", "slow": " · slow", "hurt": " · partly failed"}.get(box.state, "")
    look = "box" + (f" {box.state}" if box.state else "")
    if box.kind == Kind.LEAF and box.rail >= 0:
        look += f" rail r{box.rail % RAILS}"
    parts: list[Html | None] = [
        tag("title", box.name + state),
        tag("rect", class_="shape", x=x, y=top, width=width, height=height, rx=3),
    ]
    if box.kind == Kind.GPU and box.count == 1:
        parts += _nics(fabric, box, x, top, width)
    elif box.kind == Kind.GPU:
        parts += _grid(box.count, x + 4, top + 4, width - 8, height - 26)
    if box.state:
        parts.append(
            tag("path", class_="cross", d=f"M{number(x)} {number(top)}l{number(width)} {number(height)}")
        )
    parts.append(_text(box, x, top, width, height))
    return tag("g", *parts, class_=look)


def _text(box: Box, x: float, top: float, width: float, height: float) -> Html | None:
    for text in (box.label, box.short):
        # Room for two digits at least, so that a row is not numbered from 1 to 9 and bare from 10 on.
        if text and max(len(text), 2) * 6.8 <= width - 2:
            y = top + height - 8 if box.kind == Kind.GPU else top + height / 2 + 4
            return tag("text", text, class_="box-name", x=x + width / 2, y=y, text_anchor="middle")
    return None


def _nics(fabric: Fabric, box: Box, x: float, top: float, width: float) -> list[Html | None]:
    """NICs as a row of ticks along the server's top edge, in their rails' colours."""
    rails = _rails(fabric)
    side = min(6.0, max(1.5, (width - 4) / max(1, rails) - 1.0))
    return [
        tag(
            "rect",
            class_=f"nic r{rail % RAILS}",
            x=x + width / 2 + _nic_offset(box, rail, fabric) - side / 2,
            y=top + 2,
            width=side,
            height=6,
        )
        for rail in range(rails)
    ]


def _rails(fabric: Fabric) -> int:
    return int(fabric.rail[fabric.devices(Kind.NIC)].max(initial=-1)) + 1


def _nic_offset(box: Box, rail: int, fabric: Fabric) -> float:
    """Where a server's NIC of one rail sits, from the server's middle."""
    rails = max(1, _rails(fabric))
    room = max(4.0, box.width * (WIDTH - GUTTER - MARGIN)) - 4.0
    pitch = min(9.0 if box.count == 1 else 18.0, room / rails)
    return (rail - (rails - 1) / 2) * pitch


def _grid(count: int, x: float, y: float, width: float, height: float) -> list[Html | None]:
    """Little squares, one per server, or none when they would be too small to count."""
    if width <= 0 or count > 640:
        return []
    side = min(9.0, math.sqrt(width * height / count))
    while side > 2.5 and math.floor(width / side) * math.floor(height / side) < count:
        side -= 0.25
    columns = math.floor(width / side)
    if side <= 2.5 or columns < 1:
        return []
    columns = min(columns, math.ceil(count / max(1, math.floor(height / side))))
    left = x + (width - columns * side) / 2
    return [
        tag(
            "rect",
            class_="unit",
            x=left + (i % columns) * side,
            y=y + (i // columns) * side,
            width=side - 1,
            height=side - 1,
        )
        for i in range(count)
    ]


def _row_name(fabric: Fabric, kind: Kind, top: float) -> Html:
    if kind == Kind.GPU:
        count, part, middle = fabric.num_servers, fabric.parts.get("server", ""), top + SERVER_ROW / 2
    else:
        count, part, middle = (
            len(fabric.devices(kind)),
            fabric.parts.get(kind.name.lower(), ""),
            top + SWITCH_ROW / 2,
        )
    noun = NOUNS[kind] if count == 1 else PLURALS[kind]
    if fabric.family == "single-switch" and kind == Kind.LEAF:
        noun = "switch" if count == 1 else "switches"
    return tag(
        "g",
        tag("text", f"{show_count(count)} {noun}", class_="row-name", x=0, y=middle - 1),
        tag("text", part, class_="row-part", x=0, y=middle + 14),
    )


def _x(centre: float) -> float:
    return GUTTER + centre * (WIDTH - GUTTER - MARGIN)
