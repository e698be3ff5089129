"""Chunks through FIFO links: what the order of sending, incast and full buffers cost.

Legend: F demands, L directed links.
Small scale: every chunk is followed over every link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Kind
from railwright.network.fifo.fifo_events import Load, Record, Servers, run
from railwright.network.fifo.paths import cut
from railwright.network.routing.bottleneck import busiest, demands_on
from railwright.network.routing.latency import link_delay
from railwright.network.routing.paths import Routes, find_routes
from railwright.network.routing.solution import Network, Solution
from railwright.traffic import Traffic

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

COMPILED_FROM = 60_000
"""Steps (chunks times links) from which loading the kernel, about a second, pays."""

PARTS = 8
"""Chunks of the largest message where no chunk is given."""


class Framing(NamedTuple):
    """How data is cut into packets on the wire.

    payload  data in a packet; 0: no packets, a chunk flows through switches like a fluid [byte]
    header   sent besides, per packet [byte]
    """

    payload: float
    header: float


FLUID = Framing(0, 0)
INFINIBAND = Framing(4096, 26)
"""MTU 4096; LRH 8, BTH 12, ICRC 4, VCRC 2. Source: InfiniBand Architecture Specification vol. 1, chapter 5
(packet without GRH)."""
ROCE = Framing(4096, 82)
"""RDMA MTU 4096; preamble and gap 20, Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4, FCS 4.
Source: IEEE 802.3, RFC 791, RFC 768; InfiniBand Architecture Specification, annex A17 (RoCEv2)."""


@dataclass(frozen=True, eq=False)
class FifoSolution:
    """Traffic followed chunk by chunk.

    solution  as of every engine: time, finish (F,), load (L,), latency, hops, bottleneck
    posted    (F,) when its sender posted each demand [s]
    queue     (L,) most bytes that waited for each directed link
    chunk     [byte]
    """

    solution: Solution
    posted: Floats
    queue: Floats
    chunk: float

    @property
    def time(self) -> float:
        """When the last demand has arrived. [s]"""
        return self.solution.time

    @property
    def finish(self) -> Floats:
        """(F,) when each demand has arrived. [s]"""
        return self.solution.finish


def simulate(
    network: Network,
    traffic: Traffic,
    order: Longs | None = None,
    chunk: float | None = None,
    window: int | None = None,
    *,
    done: Literal["sent", "delivered"] = "delivered",
    relay: Literal["chunk", "message"] = "chunk",
    buffer: float | None = None,
    framing: Framing = FLUID,
    delay: Floats | None = None,
) -> FifoSolution:
    """Every message from post to last byte, over links that serve chunks in order of arrival.

    order    (F,) places: a sender posts by ascending place, ties by number (see `traffic.order.places`);
             none: by number
    chunk    most of one, of which a message has equal ones [byte]; none: an eighth of the largest message
    window   messages that a sender has posted and that are not done; none: it posts all of them at once
    done     a message is done when it is 'delivered', or already when its last chunk begins to leave ('sent')
    relay    a PXN relay forwards each 'chunk' as it comes, or waits for the whole 'message'
    buffer   of each link fed by a switch or a NIC [byte]; full, it stops the link before it and what waits
             there (lossless, as InfiniBand credits and PFC do); none: unlimited, as GPU memory always is
    framing  headers, and packets that switches forward one by one; FLUID: no headers, perfect cut-through
    delay    (L,) what each link adds to an arrival [s]; none: `latency.link_delay`; zeros: bandwidth only

    Messages in flight of one sender take turns, chunk by chunk.  There is no congestion control: senders do
    not slow down, queues grow.  Chunks of a spread are dealt over its paths in turn, not by queue length.
    Raises PlanError for senseless arguments, where too much is to be followed, where a demand has no live
    path, and where full buffers wait for one another in a circle.
    Source: Kermani and Kleinrock, "Virtual cut-through", Computer Networks 3 (1979), for switches that send
    on what has not arrived whole.
    """
    chunk = _chunk(traffic, chunk)
    room = _room(network.fabric, buffer, chunk, framing)
    if window is not None and window < 1:
        raise PlanError(f"A window of {window} messages lets nobody send; give 1 or more, or none for all.")
    place = np.arange(len(traffic)) if order is None else np.asarray(order, np.int64)
    if place.shape != (len(traffic),):
        raise PlanError(f"The order has {place.size} places for {len(traffic)} demands; give one for each.")
    fabric = network.fabric
    routes = find_routes(network, traffic)
    load = cut(fabric, traffic, routes, place, chunk, framing.payload, framing.header, relay == "message")
    servers = Servers(
        fabric.capacity.astype(np.float64),
        link_delay(fabric) if delay is None else np.asarray(delay, np.float64),
        room,
        framing.payload + framing.header,
        window or len(traffic) + 1,
        done == "sent",
    )
    compiled = load.steps >= COMPILED_FROM
    record = (_compiled if compiled else run)(load, servers)
    return FifoSolution(
        _solution(network, traffic, routes, load, record, "numba" if compiled else "Python"),
        np.nan_to_num(record.posted),
        record.queue,
        chunk,
    )


def _compiled(load: Load, servers: Servers) -> Record:
    """`run` by the compiled kernel, which is imported here, when first needed."""
    from railwright.network.compiled.kernel_fifo import run as kernel

    return Record(
        *kernel(
            load.path_ptr, load.path_link, load.gap, load.spread, load.deal_ptr, load.deal, load.whole,
            load.gate, load.clock, load.first_chunk, load.chunk_size, load.sender_ptr,
            load.sender_message, servers.rate, servers.delay, servers.room, float(servers.packet),
            int(servers.window), bool(servers.sent),
        )
    )  # fmt: skip


def _solution(
    network: Network, traffic: Traffic, routes: Routes, load: Load, record: Record, how: str
) -> Solution:
    finish = np.where(np.diff(load.first_chunk) > 0, record.finish, 0.0)
    stuck = int(np.count_nonzero(np.isnan(finish)))
    if stuck:
        raise PlanError(
            f"{stuck:,} of {len(traffic):,} messages never arrive: full buffers wait for one another in a "
            "circle (a credit loop); use routing without loops, or larger buffers."
        )
    time = float(finish.max(initial=0.0))
    return Solution(
        time,
        finish,
        record.carried,
        routes.latency,
        routes.hops,
        busiest(network, record.carried, time, lambda link: demands_on(routes, traffic.size, link)),
        f"chunk FIFO ({how}, {len(traffic):,} messages in {len(load.chunk_size):,} chunks)",
        True,
    )


def _chunk(traffic: Traffic, chunk: float | None) -> float:
    largest = float(traffic.size.max(initial=0.0))
    if chunk is None:
        return max(largest / PARTS, 1.0)
    if not chunk > 0:
        raise PlanError(f"A chunk of {chunk:g} bytes carries nothing; give a size above zero.")
    return float(chunk)


def _room(fabric: Fabric, buffer: float | None, chunk: float, framing: Framing) -> Floats:
    """(L,) bytes that may wait for each link; unlimited where a GPU's memory feeds it."""
    room = np.full(fabric.num_links, np.inf)
    if buffer is None:
        return room
    packets = np.ceil(chunk / framing.payload) if framing.payload else 0.0
    wire = chunk + packets * framing.header
    if not buffer >= wire:
        raise PlanError(
            f"A buffer of {buffer:,.0f} bytes does not hold one chunk of {wire:,.0f} bytes on the wire; give "
            "a larger buffer or smaller chunks."
        )
    tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    room[fabric.kind[tail] != Kind.GPU] = buffer
    return room
