"""A site drawn: rack elevations, the floor plan, and the one-line diagram from feeds to supplies.

Each picture carries its own style with light colours to fall back on, so that it stands alone as a file and
follows the page's colours inside a report.  All functions here take a plan and give one SVG.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from railwright.report.parts.markup import Html, join, tag
from railwright.site.circuits import Circuit, RackPower, feed_name
from railwright.site.floor import Rack, alike_racks
from railwright.site.plan import SitePlan
from railwright.units import show_length, show_power

UNIT, RACK_WIDTH, GAP, HEAD, FOOT, LABEL = 10.0, 168.0, 46.0, 34.0, 34.0, 210.0
KINDS = ("server", "leaf", "spine", "core", "host")
RACK_KINDS = {"servers": "server", "network": "leaf", "spines": "spine", "core": "core"}

STYLE = """
svg.site{background:var(--paper,#fff);font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
svg.site text{fill:var(--ink,#1b242c);font-size:11px}
svg.site .soft{fill:var(--soft,#5d6a76)}svg.site .strong{font-weight:650;font-size:12.5px}
svg.site .tiny{font-size:8.5px}svg.site .small{font-size:10px}
svg.site .mid{text-anchor:middle}svg.site .end{text-anchor:end}
svg.site .on{fill:var(--event,#0d151c)}
svg.site .frame{fill:var(--wash,#f4f6f8);stroke:var(--edge,#8a96a2)}
svg.site .box{fill:var(--box,#fff);stroke:var(--edge,#8a96a2)}
svg.site .grid{stroke:var(--line,#d9dfe4);stroke-width:.6}
svg.site .server{fill:var(--compute,#7fa9c9)}svg.site .leaf{fill:var(--tp,#e0a030)}
svg.site .spine{fill:var(--pp,#9a6bb8)}svg.site .core{fill:var(--ep,#d1603d)}
svg.site .host{fill:var(--optimizer,#9aa7b3)}
svg.site .tray{fill:none;stroke:var(--soft,#5d6a76);stroke-width:1.2;stroke-dasharray:5 3}
svg.site .f0{stroke:var(--s0,#0f7f8c)}svg.site .f1{stroke:var(--s1,#b4560b)}
svg.site .f2{stroke:var(--s2,#7b3fa0)}svg.site .f3{stroke:var(--s3,#2c62c9)}
svg.site .f4{stroke:var(--s4,#b3261e)}svg.site .f5{stroke:var(--s5,#5d7a0f)}
svg.site .f6{stroke:var(--s6,#a83a70)}svg.site .f7{stroke:var(--s7,#5d6a76)}
svg.site .bus{stroke-width:5;stroke-linecap:round}
svg.site .strip{stroke-width:3.5}svg.site .wire{fill:none;stroke-width:1.6}
svg.site .pdu{fill:var(--box,#fff);stroke-width:1.6}
"""


def draw_elevations(plan: SitePlan, racks: Sequence[Rack] | None = None, per_line: int = 6) -> Html:
    """Racks seen from the front, unit by unit; without `racks` one of every content, with its count."""
    shown = [(rack, 1) for rack in racks] if racks is not None else _distinct(plan)
    units = plan.parts.racks[_rack_kind(plan)].units
    high = HEAD + units * UNIT + FOOT
    lines = [shown[at : at + per_line] for at in range(0, len(shown), per_line)]
    parts: list[Html] = []
    for row, line in enumerate(lines):
        for place, (rack, count) in enumerate(line):
            left, top = 26 + place * (RACK_WIDTH + GAP), row * (high + GAP)
            parts.append(_elevation(rack, count, units, left, top))
    width = 26 + min(len(shown), per_line) * (RACK_WIDTH + GAP)
    return _svg(width, len(lines) * (high + GAP) - GAP, f"Rack elevations of {plan.study}", parts)


def draw_floor(plan: SitePlan) -> Html:
    """The room from above: racks by kind, trays over every row and across."""
    kind = plan.parts.racks[_rack_kind(plan)]
    aisle = plan.site.aisle
    scale = min(46.0, 920.0 / plan.floor.length)
    left, top = 14.0, 52.0
    width, depth = plan.floor.length * scale, plan.floor.depth * scale
    parts = [
        tag("rect", x=left, y=top, width=width, height=depth, class_="frame"),
        tag(
            "text",
            f"{len(plan.racks)} racks on {show_length(plan.floor.length)} x {show_length(plan.floor.depth)}",
            x=left,
            y=16,
            class_="strong",
        ),
        *_legend(plan, left, 34),
    ]
    for rack in plan.racks:
        x = left + (aisle + rack.x - kind.width / 2) * scale
        y = top + (aisle + rack.y) * scale
        about = f"{rack.name}: {show_power(rack.power.watts)}, {len(rack.content)} machines"
        parts.append(
            tag(
                "rect",
                tag("title", about),
                x=x,
                y=y,
                width=kind.width * scale,
                height=kind.depth * scale,
                class_=RACK_KINDS[rack.kind],
                stroke="currentColor",
                stroke_width=0.4,
            )
        )
        if kind.width * scale >= 20:
            middle = x + kind.width * scale / 2
            text_y = y + 0.36 * kind.depth * scale
            parts.append(tag("text", rack.name[1:], x=middle, y=text_y, class_="tiny mid on"))
            kilowatts, under = f"{rack.power.watts / 1e3:.0f}kW", y + 0.78 * kind.depth * scale
            parts.append(tag("text", kilowatts, x=middle, y=under, class_="tiny mid on"))
    parts += _trays(plan, left, top, scale)
    return _svg(width + 2 * left, top + depth + 12, f"Floor plan of {plan.study}", parts)


def draw_one_line(plan: SitePlan, most: int = 4) -> Html:
    """Feeds as bus bars, under them the circuits of one rack of each kind and the machines they carry."""
    shown = _distinct(plan)[:most]
    feeds = len(plan.feeds)
    top = 24.0 + feeds * 26
    widths = [max(250.0, 16 + len(rack.power.circuits) * 104.0) for rack, _ in shown]
    total = LABEL + sum(widths) + 24 * (len(widths) - 1) + 14
    parts: list[Html] = []
    for load in plan.feeds:
        y = 24.0 + load.feed * 26
        text = f"feed {feed_name(load.feed)}: {show_power(load.normal)}"
        if load.worst > load.normal * 1.001:
            text += f", at most {show_power(load.worst)}"
        parts.append(tag("line", x1=LABEL, y1=y, x2=total - 14, y2=y, class_=f"bus f{load.feed % 8}"))
        parts.append(tag("text", text, x=14, y=y + 4))
    left = LABEL
    for (rack, count), width in zip(shown, widths, strict=True):
        parts.append(_panel(rack, count, left, top + 12, width))
        left += width + 24
    height = top + 150 + max(14.0 * len(Counter(m.part for m in rack.power.machines)) for rack, _ in shown)
    return _svg(total, height, f"One-line diagram of {plan.study}", parts)


def _panel(rack: Rack, count: int, left: float, top: float, width: float) -> Html:
    """One kind of rack: its circuits, each hung on its feed, and its machines."""
    power = rack.power
    parts = [tag("rect", x=left, y=top, width=width, height=150, rx=5, class_="frame")]
    step = width / max(1, len(power.circuits))
    for number, circuit in enumerate(power.circuits):
        middle = left + (number + 0.5) * step
        bus = 24.0 + circuit.feed * 26
        feed = f"f{circuit.feed % 8}"
        parts.append(tag("path", d=f"M{middle:.1f} {bus:.1f}V{top + 18:.1f}", class_=f"wire {feed}"))
        parts.append(
            tag(
                "rect",
                tag("title", _about(circuit)),
                x=middle - 48,
                y=top + 18,
                width=96,
                height=58,
                rx=4,
                class_=f"pdu {feed}",
            )
        )
        for line, text in enumerate(_circuit_words(circuit, power)):
            soft = "strong mid" if not line else "small mid"
            parts.append(tag("text", text, x=middle, y=top + 33 + 12 * line, class_=soft))
    alike = f"{rack.name} and {count - 1} alike" if count > 1 else rack.name
    parts.append(tag("text", alike, x=left + 8, y=top + 96, class_="strong"))
    parts.append(
        tag("text", f"{show_power(power.watts)}, {rack.kind}", x=left + 8, y=top + 110, class_="soft")
    )
    y = top + 126
    for part, text in _machine_words(power).items():
        parts.append(tag("text", f"{part}: {text}", x=left + 8, y=y))
        y += 14
    parts[0] = tag("rect", x=left, y=top, width=width, height=y - top, rx=5, class_="frame")
    return tag("g", *parts)


def _circuit_words(circuit: Circuit, power: RackPower) -> list[str]:
    worst = max(max(lines) for lines in circuit.lines)
    limit = circuit.plug.amps * power.supplying.derate
    return [
        circuit.name,
        f"{circuit.plug.volts:g} V, {circuit.plug.amps:g} A",
        show_power(circuit.watts[0]),
        f"worst {worst:.0f} of {limit:.0f} A",
    ]


def _machine_words(power: RackPower) -> dict[str, str]:
    """Each part of a rack: how many, and supplies of one of them by feed."""
    words: dict[str, str] = {}
    count = Counter(machine.part for machine in power.machines)
    for index, machine in enumerate(power.machines):
        if machine.part in words:
            continue
        feeds = Counter(feed_name(cord.feed) for cord in power.cords if cord.machine == index)
        spread = " ".join(f"{n}{feed}" for feed, n in sorted(feeds.items()))
        words[machine.part] = f"{count[machine.part]}, supplies {spread}"
    return words


def _about(circuit: Circuit) -> str:
    lines = ", ".join(f"{amps:.1f} A" for amps in circuit.lines[0])
    return f"{circuit.name}, {circuit.plug.title}: lines {lines}"


def _elevation(rack: Rack, count: int, units: int, left: float, top: float) -> Html:
    bottom = top + HEAD + units * UNIT
    alike = f"{rack.name} and {count - 1} alike" if count > 1 else rack.name
    parts = [
        tag("text", alike, x=left, y=top + 14, class_="strong"),
        tag("text", f"{show_power(rack.power.watts)}, {rack.kind}", x=left, y=top + 28, class_="soft"),
        tag("rect", x=left, y=bottom - units * UNIT, width=RACK_WIDTH, height=units * UNIT, class_="frame"),
    ]
    for unit in range(0, units + 1, 6):
        y = bottom - unit * UNIT
        parts.append(tag("line", x1=left, y1=y, x2=left + RACK_WIDTH, y2=y, class_="grid"))
        if unit:
            parts.append(tag("text", f"{unit}", x=left - 4, y=y + 8, class_="tiny soft end"))
    for placed in rack.content:
        y = bottom - (placed.unit - 1 + placed.units) * UNIT
        high = placed.units * UNIT
        about = f"{placed.name}: {placed.part}, unit {placed.unit}, {show_power(placed.watts)}"
        box = tag(
            "rect",
            tag("title", about),
            x=left + 3,
            y=y + 0.6,
            width=RACK_WIDTH - 6,
            height=high - 1.2,
            rx=1.5,
            class_=placed.kind,
        )
        size = "tiny on" if placed.units < 3 else "on"
        words = placed.name if placed.units > 2 else f"{placed.name}  {placed.part}"
        text_y = y + high / 2 + (2.8 if placed.units < 3 else 0)
        parts += [box, tag("text", words, x=left + 8, y=text_y, class_=size)]
        if placed.units > 2:
            under = f"{placed.part}, {show_power(placed.watts)}"
            parts.append(tag("text", under, x=left + 8, y=text_y + 13, class_="tiny on"))
    # PDUs stand upright beside the units, coloured as their feeds are in the one-line diagram.
    strips = [circuit for circuit in rack.power.circuits if circuit.banks]
    for number, circuit in enumerate(strips):
        x = left + RACK_WIDTH + 4 + 5 * number
        strip = tag(
            "line",
            tag("title", _about(circuit)),
            x1=x,
            y1=bottom - units * UNIT + 4,
            x2=x,
            y2=bottom - 4,
            class_=f"strip f{circuit.feed % 8}",
        )
        parts.append(strip)
    pdus = Counter(circuit.name.split()[0] for circuit in rack.power.circuits)
    feed = ", ".join(f"{n} {word}{'s' if n > 1 and word == 'PDU' else ''}" for word, n in pdus.items())
    worst = max((max(max(c) for c in circuit.lines) for circuit in rack.power.circuits), default=0.0)
    parts.append(tag("text", f"{feed}; worst line {worst:.0f} A", x=left, y=bottom + 15, class_="soft"))
    return tag("g", *parts)


def _trays(plan: SitePlan, left: float, top: float, scale: float) -> list[Html]:
    from railwright.site.runs import cross_places

    kind, aisle = plan.parts.racks[_rack_kind(plan)], plan.site.aisle
    middle = [
        top + (aisle + r * (kind.depth + aisle) + kind.depth / 2) * scale for r in range(plan.floor.rows)
    ]
    ends = left + aisle * scale, left + (aisle + plan.floor.racks_per_row * kind.width) * scale
    lines = [tag("line", x1=ends[0], y1=y, x2=ends[1], y2=y, class_="tray") for y in middle]
    if plan.floor.rows > 1:
        for place in cross_places(plan.site, plan.floor.racks_per_row * kind.width).tolist():
            x = left + (aisle + place) * scale
            lines.append(tag("line", x1=x, y1=middle[0], x2=x, y2=middle[-1], class_="tray"))
    return lines


def _legend(plan: SitePlan, left: float, y: float) -> list[Html]:
    parts, x = [], left
    for kind, count in plan.kinds.items():
        parts.append(tag("rect", x=x, y=y - 9, width=14, height=10, class_=RACK_KINDS[kind]))
        text = f"{count} {kind}"
        parts.append(tag("text", text, x=x + 19, y=y))
        x += 40 + 6.5 * len(text)
    parts.append(tag("line", x1=x, y1=y - 4, x2=x + 24, y2=y - 4, class_="tray"))
    parts.append(tag("text", "cable trays", x=x + 30, y=y))
    return parts


def _distinct(plan: SitePlan) -> list[tuple[Rack, int]]:
    """One rack of every content, in the order met, with how many are like it; the commonest kinds first."""
    alike = alike_racks(plan.racks)
    seen: set[str] = set()
    first = []
    for rack, count in sorted(alike, key=lambda pair: -pair[1]):
        if rack.kind not in seen:
            seen.add(rack.kind)
            first.append((rack, count))
    rest = [pair for pair in alike if pair not in first]
    return [*first, *rest][:12]


def _rack_kind(plan: SitePlan) -> str:
    return plan.site.rack.strip().lower().replace("_", "-").replace(" ", "-")


def _svg(width: float, height: float, title: str, parts: Sequence[Html]) -> Html:
    return tag(
        "svg",
        tag("title", title),
        tag("style", Html(STYLE)),
        join(parts),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        class_="site",
        role="img",
    )
