"""Our fluid as packets: what a packet simulator carries beside the bytes that were asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright.crosscheck.problem import Problem
from railwright.fabric.graph import Role


@dataclass(frozen=True)
class Framing:
    """What a simulator's transport adds, from its source, not from its results.

    packet   bytes of a full packet, header included
    header   bytes of header in each
    granted  share of a link that its receiver grants to senders, 0..1
    start    before the first byte of a message [s]
    """

    packet: int
    header: int
    granted: float = 1.0
    start: float = 0.0


def in_packets(problem: Problem, framing: Framing) -> float:
    """Our time for the demands that cross a switch, each in packets with headers, and one round trip [s].

    A message of s bytes is ceil(s / (packet - header)) packets, the last one short.  The round trip is the
    longest delay of cables and switches there and back, and a full packet put on every link of the way there.
    Nothing of a transport's control of congestion is in it: a simulator with losses is slower.
    """
    fabric = problem.fabric
    payload = framing.packet - framing.header
    size = np.where(problem.crossing, problem.traffic.size, 0.0)
    wire = problem.with_sizes(size + framing.header * np.ceil(size / payload))
    rate = float(fabric.rate[fabric.role == Role.NODE_LEAF].min())
    links = int(problem.routes.hops.max(initial=0)) + 1
    trip = 2 * problem.wire_latency + links * framing.packet / rate
    return wire.answer[0].time / framing.granted + trip + framing.start
