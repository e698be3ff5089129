"""SimGrid: GPUs as hosts, NICs and switches as routers, in one zone whose routes Dijkstra finds.

Format: SimGrid platform DTD 4.1 (simgrid.org/simgrid.dtd; "The XML Reference Manual": host, router, link,
route, link_ctn).
"""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from railwright.export.delays import Delays
from railwright.export.sheet import Sheet, xml_comment
from railwright.fabric.graph import Kind, Role

SPEED = 1e9
"""Speed [flop/s] of a host whose GPU the catalogue does not know: SimGrid wants one."""


def render(sheet: Sheet) -> dict[str, str]:
    """A split-duplex link per pair of neighbours: parallel cables are one link of their summed rate.

    Failed cables are left out, slow ones count what they carry.  A host's speed is its GPU's dense bf16 peak
    (fp16 or fp32 where it has none).
    """
    sheet.need_gpus("SimGrid")
    f, names = sheet.fabric, [quoteattr(n) for n in sheet.names]
    speed = f"{_speed(sheet):.10g}f"
    lines = [
        "<?xml version='1.0'?>",
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
        xml_comment(sheet.title),
        '<platform version="4.1">',
        '<zone id="fabric" routing="Dijkstra">',
    ]
    for device, kind in enumerate(f.kind.tolist()):
        if kind == Kind.GPU:
            lines.append(f'<host id={names[device]} speed="{speed}"/>')
        else:
            lines.append(f"<router id={names[device]}/>")
    joined = _links(sheet)
    for i, (rate, delay) in enumerate(joined.values()):
        lines.append(
            f'<link id="link-{i}" bandwidth="{rate:.10g}Bps" latency="{delay:.10g}s" '
            'sharing_policy="SPLITDUPLEX"/>'
        )
    for i, (a, b) in enumerate(joined):
        lines.append(f'<route src={names[a]} dst={names[b]}><link_ctn id="link-{i}" direction="UP"/></route>')
    return {"platform.xml": "\n".join([*lines, "</zone>", "</platform>"]) + "\n"}


def _links(sheet: Sheet) -> dict[tuple[int, int], tuple[float, float]]:
    """Neighbours -> summed rate and delay, lanes inside servers first; routes are symmetrical."""
    f, delays = sheet.fabric, Delays(sheet)
    links: dict[tuple[int, int], tuple[float, float]] = {}
    lanes = zip(
        f.a.tolist(), f.b.tolist(), f.role.tolist(), f.capacity[0::2].tolist(), f.capacity[1::2].tolist(),
        strict=True,
    )  # fmt: skip
    for a, b, role, there, back in lanes:
        if role <= Role.PCIE and (rate := min(there, back)) > 0:
            links[a, b] = (rate, delays.half(b))
    for c in sheet.working:
        rate, _ = links.get((c.a, c.b), (0.0, 0.0))
        links[c.a, c.b] = (rate + c.live, delays.cable(c))
    return links


def _speed(sheet: Sheet) -> float:
    peaks = sheet.gpu.peak_flops if sheet.gpu else {}
    return next((peaks[t] for t in ("bf16", "fp16", "fp32") if t in peaks), SPEED)
