"""Does it matter in which order messages are sent? Every send order through the chunk FIFO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from railwright.fabric.graph import Role
from railwright.network.bottleneck import TIER
from railwright.network.fifo import FifoSolution, simulate
from railwright.network.solution import Network
from railwright.traffic import Communicator, Traffic
from railwright.traffic.order import ORDERS, places

SENSITIVE = 1.1
"""Worst over best from which a pattern counts as order-sensitive: above what good orders differ by among
themselves (up to 1.02 on the fabrics of benchmarks/fifo.py) and what cutting into chunks adds, and below
what an unlucky order costs (1.2 to 2)."""


@dataclass(frozen=True, eq=False)
class OrderSensitivity:
    """A pattern under several send orders.

    times      order -> time, in the order of `traffic.order.ORDERS` [s]
    bound      bytes over capacity of the busiest link: no order is faster [s]
    best, worst  names
    ratio      worst over best
    sensitive  ratio above SENSITIVE
    why        one sentence for a person
    window     messages of a sender in flight
    """

    times: Mapping[str, float]
    bound: float
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
    Other arguments as in `fifo.simulate` and `traffic.order.places`.
    """
    none = np.zeros(network.fabric.num_links)

    def under(order: str) -> FifoSolution:
        place = places(network.fabric, traffic, order, groups, seed)
        return simulate(network, traffic, place, chunk, window, done=done, buffer=buffer, delay=none)

    solved = {order: under(order) for order in ORDERS}
    times = {order: answer.time for order, answer in solved.items()}
    best, worst = min(times, key=lambda o: times[o]), max(times, key=lambda o: times[o])
    ratio = times[worst] / times[best] if times[best] > 0 else 1.0
    bound = _bound(network, solved[best])
    sensitive = ratio > SENSITIVE
    why = _why(network, times, best, worst, ratio, bound, solved[worst], sensitive, window)
    return OrderSensitivity(times, bound, best, worst, ratio, sensitive, why, window)


def _bound(network: Network, answer: FifoSolution) -> float:
    live = network.fabric.capacity > 0
    return float(np.max(answer.solution.load[live] / network.fabric.capacity[live], initial=0.0))


def _why(
    network: Network,
    times: Mapping[str, float],
    best: str,
    worst: str,
    ratio: float,
    bound: float,
    slow: FifoSolution,
    sensitive: bool,
    window: int | None,
) -> str:
    if times[best] <= 0:
        return "Nothing is sent, so no order matters."
    flight = "all messages" if window is None else f"{window} message{'s' if window > 1 else ''} per sender"
    over = f"the best order ({best}) takes {times[best] / bound:.2f} times what the busiest link alone needs"
    if not sensitive:
        return (
            f"Not order-sensitive with {flight} in flight: {worst}, the slowest order, takes {ratio:.2f} times "
            f"as long as {best}; {over}."
        )
    link = int(np.argmax(slow.queue))
    role = Role(int(network.fabric.role[link // 2]))
    return (
        f"Order-sensitive with {flight} in flight: {worst} takes {ratio:.2f} times as long as {best}, because "
        f"up to {slow.queue[link]:,.0f} bytes wait at once for {network.fabric.link_name(link)} ({TIER[role]}) "
        f"while other links idle; {over}."
    )
