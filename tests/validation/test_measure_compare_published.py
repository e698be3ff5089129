"""Published curves are of machines that worked: the comparison must not cry wolf over them.

Bars: none is faster than possible (it is our bound that would be wrong), at most one in ten has a low
plateau or a cliff, and at least half draw no finding at all.  The last is asked of publishers' own curves:
those of issue trackers are of machines that somebody complained about.
"""

import pytest

from railwright.collectives import NcclSettings, bus_factor
from railwright.errors import RailwrightError
from railwright.measure.compare.comparing import compare_curve
from railwright.measure.logs.curve import MeasuredCurve, Point
from railwright.measure.machines import Unsupported, published_machine
from railwright.shipped import read_data

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


@pytest.fixture(scope="module")
def found():
    records = read_data("measure", "collectives.yaml")["records"]
    return [c for c in map(compared, records) if c is not None]


def compared(record):
    """A record's curve on its usual machine; None for forced algorithms and unknown sizes or rank counts."""
    usable = record["op"] in OPS and "gpus" in record and "nodes" in record
    if not usable or record["columns"][0] != "bytes" or "algorithm" in record:
        return None
    n = record["gpus"]
    gpus = n if -(-n // record["nodes"]) >= 4 else record["nodes"] * 8
    try:
        machine = published_machine(
            record["gpu"],
            gpus,
            record.get("nic_gbps"),
            NcclSettings(),
            "EFA" in record.get("fabric", ""),
            nics=record.get("nics"),
        )
    except (Unsupported, RailwrightError):
        return None
    points = []
    for size, value in record["points"]:
        factor = bus_factor(record["op"], n)
        time = value * 1e-6 if record["columns"][1] == "us" else size * factor / (value * 1e9)
        points.append(Point(float(size), time, size / time, size / time * factor, len(points) + 1))
    curve = MeasuredCurve(record["op"], n, n, n, "published", tuple(points), False, record["id"], 1)
    return compare_curve(curve, machine)


def share(found, *kinds):
    return sum(any(f.kind in kinds for f in c.findings) for c in found) / len(found)


def test_the_published_machines_are_mostly_found_sound(found):
    assert len(found) >= 30
    assert share(found, "faster than possible") == 0
    # a low plateau without a known cause must be slower than 99 % of unseen curves; two cliffs are published
    assert share(found, "plateau low", "cliff") <= 0.10
    shown = [c for c in found if not c.measured.file.startswith("issue-")]
    assert len(shown) >= 25
    assert sum(not c.findings for c in shown) >= len(shown) / 2
