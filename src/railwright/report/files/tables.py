"""The two CSV files: every cable of the recommended variant, port by port, and every point of every sweep."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import numpy as np

from railwright.fabric.graph import Fabric, Role
from railwright.report.words.figures import letter
from railwright.study.result import Result

CABLES = ("cable", "tier", "from", "from_port", "to", "to_port", "rate_bytes_per_s", "length_m", "state")
SWEEPS = (
    "letter",
    "variant",
    "op",
    "label",
    "size_bytes",
    "ranks",
    "groups",
    "time_s",
    "algbw_bytes_per_s",
    "busbw_bytes_per_s",
    "algorithm",
    "protocol",
    "bottleneck",
)


def cable_schedule(fabric: Fabric | None) -> str:
    """One row per cable of the scale-out network, in the fabric's order; without one only the heading."""
    if fabric is None:
        return _csv(CABLES, ())
    names: dict[int, str] = {}

    def name(device: int) -> str:
        if device not in names:
            names[device] = fabric.device_name(device)
        return names[device]

    rows: list[tuple[object, ...]] = []
    worst = np.minimum(fabric.capacity[0::2], fabric.capacity[1::2])
    for nth, cable in enumerate(np.flatnonzero(fabric.role >= Role.NODE_LEAF).tolist(), start=1):
        rate = float(fabric.rate[cable])
        state = "failed" if worst[cable] <= 0 else "slow" if worst[cable] < rate else "ok"
        rows.append(
            (
                nth,
                Role(int(fabric.role[cable])).name.lower().replace("_", "-"),
                name(int(fabric.a[cable])),
                int(fabric.port_a[cable]),
                name(int(fabric.b[cable])),
                int(fabric.port_b[cable]),
                rate,
                float(fabric.length[cable]),
                state,
            )
        )
    return _csv(CABLES, rows)


def sweep_points(result: Result) -> str:
    """One row per predicted point: variants in order, then sweeps, then ascending size."""
    return _csv(
        SWEEPS,
        (
            (
                letter(index),
                variant.name,
                curve.op,
                curve.label,
                p.size,
                p.ranks,
                p.groups,
                p.time,
                p.algbw,
                p.busbw,
                p.algorithm,
                p.protocol,
                p.bottleneck.name if p.bottleneck is not None else "",
            )
            for index, variant in enumerate(result.variants)
            for curve in variant.curves
            for p in curve.points
        ),
    )


def _csv(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows(rows)
    return text.getvalue()
