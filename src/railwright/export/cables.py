"""The cable schedule: what an installer prints, labels, pulls and ticks off."""

from __future__ import annotations

from railwright.export.sheet import Sheet, csv_text, gigabits
from railwright.fabric.graph import Role
from railwright.fabric.wired.cables import ROLE_WORDS

COLUMNS = (
    "cable",
    "label_a",
    "label_b",
    "device_a",
    "port_a",
    "device_b",
    "port_b",
    "role",
    "rate_gbps",
    "length_m",
    "medium",
)


def render(sheet: Sheet) -> dict[str, str]:
    """Every cable of the design, faults or not, in the order of the graph.

    A label says the near end first: 'leaf-01:33 > spine-01:1' is stuck on the leaf's end.
    length_m and medium are empty where the length is unknown.
    """
    names = sheet.names
    rows = []
    for number, cable in enumerate(sheet.pulled, 1):
        a, b = names[cable.a], names[cable.b]
        near, far = f"{a}:{cable.port_a}", f"{b}:{cable.port_b}"
        rows.append(
            (
                f"C{number:06d}",
                f"{near} > {far}",
                f"{far} > {near}",
                a,
                cable.port_a,
                b,
                cable.port_b,
                ROLE_WORDS[Role(cable.role)],
                gigabits(cable.rate),
                f"{cable.length:g}" if cable.length else "",
                cable.medium,
            )
        )
    return {"cables.csv": csv_text(COLUMNS, rows)}
