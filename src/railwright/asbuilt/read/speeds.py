"""Width and speed of an InfiniBand port, as dumps name them, into one rate [byte/s]."""

from __future__ import annotations

import re

LANES = {
    "SDR": 2.0e9,
    "DDR": 4.0e9,
    "QDR": 8.0e9,
    "FDR10": 10.0e9,
    "FDR": 13.64e9,
    "EDR": 25.0e9,
    "HDR": 50.0e9,
    "NDR": 100.0e9,
    "XDR": 200.0e9,
}
"""Data rate of one lane after line coding [bit/s], by its name: 4x EDR carries 100 Gb/s, 4x NDR 400 Gb/s.

SDR to QDR signal at 2.5, 5 and 10 Gb/s with 8b/10b coding, FDR10 and later with 64b/66b (FDR at 14.0625).
Source: InfiniBand Trade Association, "InfiniBand Roadmap" (infinibandta.org/infiniband-roadmap), speeds and
effective throughput per lane; InfiniBand Architecture Specification, vol. 2, for the coding.
"""

_SIGNALLED = {
    "SDR": 2.5,
    "DDR": 5.0,
    "QDR": 10.0,
    "FDR10": 10.3125,
    "FDR": 14.0625,
    "EDR": 25.78125,
    "HDR": 53.125,
    "NDR": 106.25,
    "XDR": 212.5,
}
"""Signalling rate of one lane [Gb/s], as `iblinkinfo` prints it (libibmad, dump.c, link speeds)."""

WIDTHS = (1, 2, 4, 8, 12)
"""Lanes a port can have. Source: InfiniBand Architecture Specification, vol. 1, PortInfo:LinkWidthActive."""

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*Gb(?:ps|/s)", re.IGNORECASE)


def speed_name(text: str) -> str:
    """'EDR' of 'EDR', 'edr' or '25.78125 Gbps'; '' when the text names no known lane speed."""
    upper = text.strip().upper()
    if upper in LANES:
        return upper
    if match := _NUMBER.search(text):
        signalled = float(match[1])
        near = min(_SIGNALLED, key=lambda name: abs(_SIGNALLED[name] - signalled))
        # FDR10 and QDR differ by 3 %, everything else by far more; some tools round (25.8, 100.0).
        if abs(_SIGNALLED[near] - signalled) <= 0.07 * _SIGNALLED[near]:
            return near
    return ""


def rate_of(width: int, speed: str) -> float:
    """One direction of a link [byte/s]; 0 where width or speed is unknown."""
    return width * LANES.get(speed, 0.0) / 8


def name_of(rate: float) -> tuple[int, str]:
    """Width and speed that carry exactly `rate` [byte/s] over the usual four lanes; else (0, '')."""
    for name, lane in LANES.items():
        if abs(4 * lane / 8 - rate) <= 1e-6 * rate:
            return 4, name
    return 0, ""
