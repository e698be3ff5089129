"""What the engines say about a pattern, on the rates of the emulated fabric."""

from __future__ import annotations

import numpy as np

from railwright.emulate.patterns import Pattern
from railwright.errors import PlanError
from railwright.network import Network, solve
from railwright.network.fifo.run import simulate

PAYLOAD = 9000 - 20 - 32
HEADERS = 14 + 20 + 32
"""Data and headers of a full packet [byte]: IPv4 20, TCP with timestamps 32, Ethernet 14 (a veth has neither
preamble nor FCS). Source: RFC 791, RFC 9293, RFC 7323."""


def predict(network: Network, pattern: Pattern, scale: float) -> dict[str, float]:
    """Time of the pattern by each engine [s].

    scale  emulated rate over real rate; engines are linear in it, without latency
    fluid  max-min rates, all demands of a phase at once, no headers
    fifo   packets through FIFO queues: a sender hands its NIC message after message, in order; relays wait
           for whole messages; headers count. Packets are not stored at every hop, since a shaper that was
           idle lets its burst (two packets) pass at once; left out where they are too many to follow
    """
    fluid = sum(solve(network, traffic).time * times for traffic, times in pattern.phases) / scale
    try:
        fifo = _packets(network, pattern)
    except PlanError:
        return {"fluid": fluid}
    return {"fluid": fluid, "fifo": fifo / scale * (PAYLOAD + HEADERS) / PAYLOAD}


def _packets(network: Network, pattern: Pattern) -> float:
    return sum(
        simulate(
            network,
            traffic,
            chunk=PAYLOAD,
            window=1,
            done="sent",
            relay="message",
            delay=np.zeros(network.fabric.num_links),
        ).time
        * times
        for traffic, times in pattern.phases
    )
