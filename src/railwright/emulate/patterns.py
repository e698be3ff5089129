"""Communication patterns as messages: who sends what to whom, in which order, and after which other message.

Legend: n GPUs on H hosts (scale-up domains) with R GPUs each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from railwright.errors import PlanError, nearest
from railwright.fabric.graph import Fabric
from railwright.traffic import Communicator, Traffic, all_to_all, send_recv
from railwright.traffic.order import places
from railwright.traffic.rings import local_members

ORDER = "host-rail-shift"

LANE = 8
"""Bytes of one element of an all-reduced vector; blocks are rounded up to whole elements."""


@dataclass(frozen=True)
class Message:
    """One message on one leg of a demand.

    demand  index into the pattern's traffic; leg 0, or 1 behind a relay
    after   messages that must have arrived at the sender before
    body    'fill': bytes of its own; 'forward': what `after` brought; 'chunks': part of the vector
    then    'check': compare with the fill; 'add' or 'set': into the chunks; 'hold': to be forwarded
    chunks  (first, number) of the vector
    """

    demand: int
    leg: int
    size: int
    after: tuple[int, ...] = ()
    body: Literal["fill", "forward", "chunks"] = "fill"
    then: Literal["check", "hold", "add", "set"] = "check"
    chunks: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class Pattern:
    """What is emulated, and the same for the simulator.

    traffic   different demands, for routes
    messages  in the order in which every GPU sends its own; the number of a message is its place
    phases    demands of each phase, and how often it is repeated, one after the other: for the engines
    chunks    chunks of the vector that every GPU holds, of `chunk` bytes; 0: none
    """

    name: str
    traffic: Traffic
    messages: tuple[Message, ...]
    phases: tuple[tuple[Traffic, int], ...]
    chunks: int = 0
    chunk: int = 0


ORDERED = ("all-to-all", "pxn")
"""Patterns whose sends `order` orders."""


def pattern(name: str, fabric: Fabric, block: int, order: str = ORDER) -> Pattern:
    """A pattern over all GPUs of a fabric.

    name   'all-to-all', 'pxn', 'ring', 'hierarchical', 'send-recv'
    block  bytes of a pair (all-to-all, pxn) or of an n-th of what each GPU holds (the others) [byte]
    order  of an all-to-all's sends: a name of `traffic.order.ORDERS`
    Raises PlanError for an unknown pattern, one that the fabric's hosts do not allow, or an order where sends
    have one of their own.
    """
    if name not in PATTERNS:
        hint = nearest(name, PATTERNS) or f"; known are {', '.join(PATTERNS)}, gloo"
        raise PlanError(f"there is no pattern '{name}' to emulate{hint}")
    if order != ORDER and name not in ORDERED:
        raise PlanError(f"--order is of an all-to-all's sends, and '{name}' has its own; leave it out")
    if fabric.num_gpus < 2:
        raise PlanError("one GPU has nobody to talk to; emulate at least two")
    return PATTERNS[name](fabric, block, order)


def _direct(fabric: Fabric, block: int, order: str) -> Pattern:
    traffic = _ordered(fabric, all_to_all(fabric, _everyone(fabric), block, pxn=False), order)
    messages = tuple(Message(f, 0, block) for f in range(len(traffic)))
    return Pattern("all-to-all", traffic, messages, ((traffic, 1),))


def _pxn(fabric: Fabric, block: int, order: str) -> Pattern:
    traffic = _ordered(fabric, all_to_all(fabric, _everyone(fabric), block, pxn=True), order)
    two = (traffic.relay >= 0) & (traffic.relay != traffic.src) & (traffic.relay != traffic.dst)
    messages = [Message(f, 0, block, then="hold" if two[f] else "check") for f in range(len(traffic))]
    messages += [Message(int(f), 1, block, (int(f),), "forward") for f in np.flatnonzero(two)]
    return Pattern("pxn", traffic, tuple(messages), ((traffic, 1),))


def _shifted(fabric: Fabric, block: int, order: str) -> Pattern:
    """Every GPU sends n blocks to the GPU beside it on the next host."""
    hosts = _hosts(fabric)
    src = np.concatenate(hosts)
    dst = np.concatenate([*hosts[1:], hosts[0]]) if len(hosts) > 1 else np.roll(src, -1)
    traffic = send_recv(fabric, src, dst, float(block * len(src)))
    messages = tuple(Message(f, 0, block * len(src)) for f in range(len(traffic)))
    return Pattern("send-recv", traffic, messages, ((traffic, 1),))


def _ring(fabric: Fabric, block: int, order: str) -> Pattern:
    """All-reduce of n chunks over one ring of all GPUs in order."""
    chunk, n = -(-block // LANE) * LANE, fabric.num_gpus
    script = _Script(fabric)
    everyone = _everyone(fabric).gpus
    script.ring(list(range(n)), list(range(n)), [()] * n, chunk)
    edges = send_recv(fabric, everyone, np.roll(everyone, -1), float(chunk))
    return Pattern("ring", script.traffic(), tuple(script.messages), ((edges, 2 * (n - 1)),), n, chunk)


def _hierarchical(fabric: Fabric, block: int, order: str) -> Pattern:
    """All-reduce in three phases: reduce-scatter in each host, a ring per rail across, all-gather in each."""
    chunk, hosts = -(-block // LANE) * LANE, _hosts(fabric)
    num_hosts, rails = len(hosts), len(hosts[0])
    script = _Script(fabric)
    arrived: dict[int, tuple[int, ...]] = {int(g): () for gpus in hosts for g in gpus}
    for shift in range(1, rails):
        for gpus in hosts:
            for r, gpu in enumerate(gpus.tolist()):
                other = (r + shift) % rails
                peer = int(gpus[other])
                sent = script.send(gpu, peer, num_hosts * chunk, (), "add", (other * num_hosts, num_hosts))
                arrived[peer] = (*arrived[peer], sent)
    for r in range(rails):
        members = [int(gpus[r]) for gpus in hosts]
        own = [r * num_hosts + h for h in range(num_hosts)]
        last = script.ring(members, own, [arrived[g] for g in members], chunk)
        for gpu, message in zip(members, last, strict=True):
            arrived[gpu] = message
    for shift in range(1, rails):
        for gpus in hosts:
            for r, gpu in enumerate(gpus.tolist()):
                piece = (r * num_hosts, num_hosts)
                script.send(
                    gpu, int(gpus[(r + shift) % rails]), num_hosts * chunk, arrived[gpu], "set", piece
                )
    columns = np.stack(hosts)
    inside = [(a, b) for gpus in hosts for a in gpus.tolist() for b in gpus.tolist() if a != b]
    phases: list[tuple[Traffic, int]] = []
    if inside:
        ends = np.array(inside)
        phases.append((send_recv(fabric, ends[:, 0], ends[:, 1], float(num_hosts * chunk)), 1))
    if num_hosts > 1:
        across = send_recv(fabric, columns.ravel(), np.roll(columns, -1, axis=0).ravel(), float(chunk))
        phases.insert(1, (across, 2 * (num_hosts - 1)))
    if inside:
        phases.append(phases[0])
    return Pattern(
        "hierarchical", script.traffic(), tuple(script.messages), tuple(phases), num_hosts * rails, chunk
    )


PATTERNS: dict[str, Callable[[Fabric, int, str], Pattern]] = {
    "all-to-all": _direct,
    "pxn": _pxn,
    "ring": _ring,
    "hierarchical": _hierarchical,
    "send-recv": _shifted,
}


@dataclass
class _Script:
    """Messages of an all-reduce, and the demands they use."""

    fabric: Fabric
    pairs: dict[tuple[int, int], int] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)

    def send(
        self,
        src: int,
        dst: int,
        size: int,
        after: tuple[int, ...],
        then: Literal["add", "set"],
        chunks: tuple[int, int],
    ) -> int:
        demand = self.pairs.setdefault((src, dst), len(self.pairs))
        self.messages.append(Message(demand, 0, size, after, "chunks", then, chunks))
        return len(self.messages) - 1

    def ring(
        self, members: list[int], own: list[int], ready: list[tuple[int, ...]], chunk: int
    ) -> list[tuple[int, ...]]:
        """A ring all-reduce of chunks `own`, each member once its `ready` messages have arrived.

        Answers the messages after which each member is done: all that come to it, since lanes may overtake.
        """
        n = len(members)
        last = list(ready)
        every: list[tuple[int, ...]] = [()] * n
        for step in range(2 * (n - 1)):
            reducing = step < n - 1
            arrived: list[tuple[int, ...]] = [()] * n
            for i, gpu in enumerate(members):
                index = (i - step) % n if reducing else (i + 1 - (step - n + 1)) % n
                after = tuple(dict.fromkeys((*last[i], *ready[i])))
                sent = self.send(
                    gpu, members[(i + 1) % n], chunk, after, "add" if reducing else "set", (own[index], 1)
                )
                arrived[(i + 1) % n] = (sent,)
            last = arrived
            every = [(*before, *now) for before, now in zip(every, arrived, strict=True)]
        return every

    def traffic(self) -> Traffic:
        ends = np.array(list(self.pairs), np.int32).reshape(-1, 2)
        size = np.zeros(len(ends))
        for message in self.messages:
            size[message.demand] += message.size
        return send_recv(self.fabric, ends[:, 0], ends[:, 1], size)


def _everyone(fabric: Fabric) -> Communicator:
    return Communicator(np.arange(fabric.num_gpus, dtype=np.int32))


def _hosts(fabric: Fabric) -> list[np.ndarray]:
    return local_members(fabric, _everyone(fabric))


def _ordered(fabric: Fabric, traffic: Traffic, order: str) -> Traffic:
    """Demands in the order in which every sender posts its own."""
    place = np.lexsort((places(fabric, traffic, order), traffic.src))
    return Traffic(traffic.src[place], traffic.dst[place], traffic.relay[place], traffic.size[place])
