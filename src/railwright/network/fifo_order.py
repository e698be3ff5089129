"""Does it matter in which order messages are sent? Every send order through the chunk FIFO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from railwright.fabric.graph import Role
from railwright.network.fifo.run import FifoSolution, simulate
from railwright.network.routing.bottleneck import TIER
from railwright.network.routing.solution import Network
from railwright.network.solve import solve
from railwright.traffic import Communicator, Traffic
from railwright.traffic.order import ORDERS, places

SENSITIVE = 1.1
"""Worst over best from which a pattern counts as order-sensitive: above what cutting into chunks adds and
good orders differ by (1.05 together on the fabrics of benchmarks/fifo.py), and below what all to peer 0
first costs there (1.12 to 2.5)."""


@dataclass(frozen=True, eq=False)
class OrderSensitivity:
    """A pattern under several send orders.

    times      order -> time, in the order of `traffic.order.ORDERS` [s]
    fluid      max-min fluid, where no order exists [s]
    best, worst  names
    ratio      worst over best
    sensitive  ratio above SENSITIVE
    why        one sentence for a person
    window     messages of a sender in flight
    """

    times: Mapping[str, float]
    fluid: float
    best: str
    worst: str
    ratio: float
    sensitive: bool
    why: str
    window: int | None


def order_sensitivity(
    network: Network,
    traffic: Traffic,
    groups: Sequence[Communicator] = (),
    chunk: float | None = None,
    window: int | None = 1,
    *,
    done: Literal["sent", "delivered"] = "sent",
    buffer: float | None = None,
    seed: int = 0,
) -> OrderSensitivity:
    """The same messages under every order of `ORDERS`, bandwidth only (no latency, no headers).

    window, done  1 and 'sent': each sender's messages follow one another without a gap, which shows the order
                  alone; with more in flight, or all (none), they mix, and the order matters less
    seed          of the random order
    Other arguments as in `fifo.run.simulate` and `traffic.order.places`.
    """
    none = np.zeros(network.fabric.num_links)

    def under(order: str) -> FifoSolution:
        place = places(network.fabric, traffic, order, groups, seed)
        return simulate(network, traffic, place, chunk, window, done=done, buffer=buffer, delay=none)

    solved = {order: under(order) for order in ORDERS}
    times = {order: answer.time for order, answer in solved.items()}
    best, worst = min(times, key=lambda o: times[o]), max(times, key=lambda o: times[o])
    ratio = times[worst] / times[best] if times[best] > 0 else 1.0
    fluid = solve(network, traffic).time
    sensitive = ratio > SENSITIVE
    why = _why(network, times, best, worst, ratio, fluid, solved[worst], sensitive, window)
    return OrderSensitivity(times, fluid, best, worst, ratio, sensitive, why, window)


def _why(
    network: Network,
    times: Mapping[str, float],
    best: str,
    worst: str,
    ratio: float,
    fluid: float,
    slow: FifoSolution,
    sensitive: bool,
    window: int | None,
) -> str:
    if times[best] <= 0:
        return "Nothing is sent, so no order matters."
    flight = "all messages" if window is None else f"{window} message{'s' if window > 1 else ''} per sender"
    over = f"{best} takes {times[best] / fluid:.2f} times as long as the fluid"
    if not sensitive:
        return (
            f"Not order-sensitive with {flight} in flight: {worst}, the slowest order, takes {ratio:.2f} "
            f"times as long as {best}; {over}."
        )
    link = int(np.argmax(slow.queue))
    role = Role(int(network.fabric.role[link // 2]))
    return (
        f"Order-sensitive with {flight} in flight: {worst} takes {ratio:.2f} times as long as {best}, "
        f"because up to {slow.queue[link]:,.0f} bytes wait at once for {network.fabric.link_name(link)} "
        f"({TIER[role]}) while other links idle; {over}."
    )
