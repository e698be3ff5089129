"""The page's room: racks from the front and from above, feeds, limits, cables."""

from __future__ import annotations

from railwright.report.drawings.site import draw_elevations, draw_floor, draw_one_line
from railwright.report.parts.markup import Child, Html, join, tag
from railwright.report.parts.table import data_table
from railwright.study.result import Result
from railwright.units import number, show_count, show_length, show_power

ACROSS = 4
"""Racks beside each other that the page is wide enough for."""


def site_section(result: Result) -> Html | None:
    """Only where the study has a section `site`."""
    plan = result.rooms.site
    if plan is None:
        return None
    air, liquid = sum(h.air for h in plan.heat), sum(h.liquid for h in plan.heat)
    hottest = max(plan.racks, key=lambda rack: rack.power.watts)
    rows: list[list[Child]] = [
        ["racks", f"{len(plan.racks)} ({plan.kinds_told}), {number(plan.fill.servers, 'server')} a rack"],
        ["room", f"{show_length(plan.floor.length)} x {show_length(plan.floor.depth)}"],
        ["machines", f"{show_power(plan.power)}, short peak {show_power(plan.peak)}"],
        ["site", f"{show_power(plan.site_power)} (PUE {plan.pue:.2f})"],
        ["fullest rack", f"{hottest.name}, {show_power(hottest.power.watts)}"],
        ["heat", f"{show_power(air)} to air, {show_power(liquid)} to coolant"],
    ]
    for f in plan.feeds:
        worst = f"after another has died {show_power(f.worst)}"
        rows.append([f"feed {'ABCDEFGH'[f.feed]}", f"{show_power(f.normal)}, {worst}"])
    pictures = (
        (draw_elevations(plan, per_line=ACROSS), "Racks from the front, one of every content."),
        (draw_floor(plan), "The room from above, with cable trays."),
        (draw_one_line(plan), "From the feeds to the machines: one rack of each kind."),
    )
    return join(
        [
            data_table("The room and what it carries", ("", ""), rows),
            *(
                tag("figure", tag("div", drawing, class_="scroll", tabindex=0), tag("figcaption", words))
                for drawing, words in pictures
            ),
            _cables(result),
            tag("ul", *(tag("li", note) for note in plan.notes), class_="note"),
        ]
    )


def _cables(result: Result) -> Html:
    from railwright.site import bill

    plan = result.rooms.site
    assert plan is not None
    rows: list[list[Child]] = [
        [line.item, line.part, show_count(line.quantity), line.unit, tag("span", line.note, class_="soft")]
        for line in bill(plan)
    ]
    heads = ("item", "part", "quantity", "", "")
    return tag(
        "details",
        tag("summary", f"What the room adds to the bill ({len(rows)} lines)"),
        data_table("Beside servers and switches", heads, rows, (2,), wide=(4,)),
        data_print=1,
    )
