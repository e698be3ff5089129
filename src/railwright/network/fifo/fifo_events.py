"""Chunks through FIFO links, event by event: the definition, in plain Python.

Legend: F messages, A alternatives, E path entries, C chunks, B spreads, L directed links, S senders;
CSR pairs are ptr, value.

A link serves chunks one at a time, in order of arrival.  Events are taken by (time, number), where every
event is numbered as it is put down, so ties have one answer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ARRIVE, FREE, POST = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Load:
    """What is sent, and over which links.

    path_ptr, path_link  CSR (F + A rows): links of each message in order, then those of each alternative
    gap                  (F,) entry of a message before which it takes an alternative; -1: none
    spread               (F,) whose alternatives
    deal_ptr, deal       CSR (B rows): rows of the alternatives that successive chunks of a spread take
    whole                (E,) a chunk enters this link only once arrived whole: it leaves a GPU's memory
    gate                 (E,) all chunks of the message must have arrived whole (a relay by messages)
    clock                (F,) entry on which a message's chunks follow one another: the link out of the sender
    first_chunk          (F+1,) chunks of each message
    chunk_size           (C,) on the wire [byte]
    sender_ptr, sender_message  CSR: messages of each sender in the order it posts them
    """

    path_ptr: Longs
    path_link: Ints
    gap: Longs
    spread: Longs
    deal_ptr: Longs
    deal: Longs
    whole: Bools
    gate: Bools
    clock: Longs
    first_chunk: Longs
    chunk_size: Floats
    sender_ptr: Longs
    sender_message: Longs

    @property
    def steps(self) -> int:
        """Chunks times links."""
        messages = len(self.first_chunk) - 1
        own = np.diff(self.first_chunk) * np.diff(self.path_ptr[: messages + 1])
        return int(own.sum() + np.diff(self.path_ptr)[self.deal].sum())


@dataclass(frozen=True, eq=False)
class Servers:
    """How links and senders behave.

    rate        (L,) [byte/s]
    delay       (L,) from the end of service to the next device [s]
    room        (L,) what may wait for the link or be in it; infinite where a GPU's memory feeds it [byte]
    packet      what must have arrived of a chunk before a switch sends it on [byte]
    window      messages that a sender has posted and not finished
    sent        a message is finished for its sender when its last chunk begins to leave; else on delivery
    """

    rate: Floats
    delay: Floats
    room: Floats
    packet: float
    window: int
    sent: bool


@dataclass(frozen=True, eq=False)
class Record:
    """What happened.

    finish, posted  (F,) last byte delivered (nan: never), and posted [s]
    queue           (L,) most bytes that waited for the link
    carried         (L,) [byte]
    """

    finish: Floats
    posted: Floats
    queue: Floats
    carried: Floats


def run(load: Load, servers: Servers) -> Record:
    """Every message from post to delivery.

    A chunk of c bytes that starts on a link of rate B at t may start on the next one, of rate b, at
    max(t + p / B, t + c / B - (c - p) / b) + delay, with p = min(packet, c): its first packet has arrived,
    and its last packet will have when its turn comes.  It holds room before the next link from its start on
    this one to its end there; where there is none, this link waits, and all behind: head-of-line blocking.
    A message's next chunk enters its first link when the one before starts on the clock link.  Chunks of a
    spread take its alternatives in the order in which they start on the link before it.
    """
    return _Run(load, servers).record()


class _Run:
    """The state of a run; `kernel_fifo` holds the same in flat arrays."""

    def __init__(self, load: Load, servers: Servers) -> None:
        links, messages = len(servers.rate), len(load.first_chunk) - 1
        self.load, self.servers = load, servers
        self.link, self.size = load.path_link.tolist(), load.chunk_size.tolist()
        self.rate, self.delay = servers.rate.tolist(), servers.delay.tolist()
        self.room = servers.room.tolist()
        self.message = np.repeat(np.arange(messages), np.diff(load.first_chunk)).tolist()
        self.at = [-1] * len(self.message)
        self.to = load.path_ptr[:-1][self.message].tolist()
        self.dealt = load.deal_ptr[:-1].tolist()
        self.alternatives = int(load.path_ptr[messages])
        self.ends = np.zeros(len(load.path_link), bool)
        self.ends[load.path_ptr[messages + 1 :] - 1] = True
        self.waiting: list[deque[int]] = [deque() for _ in range(links)]
        self.blocked: list[deque[int]] = [deque() for _ in range(links)]
        self.is_blocked = [False] * links
        self.busy, self.held, self.queued, self.queue, self.carried = ([0.0] * links for _ in range(5))
        self.to_gate = np.diff(load.first_chunk).tolist()
        self.to_start, self.to_finish = list(self.to_gate), list(self.to_gate)
        self.finish, self.posted = [np.nan] * messages, [np.nan] * messages
        self.latest = [0.0] * messages
        self.next_post = load.sender_ptr[:-1].tolist()
        self.sender_of = np.zeros(messages, np.int64)
        self.sender_of[load.sender_message] = np.repeat(
            np.arange(len(load.sender_ptr) - 1), np.diff(load.sender_ptr)
        )
        self.events: list[tuple[float, int, int, int, int]] = []
        self.number = 0

    def record(self) -> Record:
        for _ in range(min(self.servers.window, len(self.message))):
            for sender in range(len(self.next_post)):
                self.post(sender, 0.0)
        while self.events:
            now, _, kind, subject, chunk = heappop(self.events)
            if kind == ARRIVE:
                self.arrive(chunk, now)
            elif kind == FREE:
                self.free(subject, chunk, now)
            else:
                self.post(subject, now)
        return Record(*map(np.array, (self.finish, self.posted, self.queue, self.carried)))

    def put(self, time: float, kind: int, subject: int, chunk: int) -> None:
        heappush(self.events, (time, self.number, kind, subject, chunk))
        self.number += 1

    def post(self, sender: int, now: float) -> None:
        place = self.next_post[sender]
        if place < self.load.sender_ptr[sender + 1]:
            message = int(self.load.sender_message[place])
            self.next_post[sender] = place + 1
            self.posted[message] = now
            self.put(now, ARRIVE, -1, int(self.load.first_chunk[message]))

    def arrive(self, chunk: int, now: float) -> None:
        self.at[chunk], self.to[chunk] = self.to[chunk], -1
        message = self.message[chunk]
        if not self.load.gate[self.at[chunk]]:
            self.enqueue(chunk, now)
            return
        self.to_gate[message] -= 1
        if self.to_gate[message] == 0:
            for each in range(int(self.load.first_chunk[message]), int(self.load.first_chunk[message + 1])):
                self.enqueue(each, now)

    def enqueue(self, chunk: int, now: float) -> None:
        link = self.link[self.at[chunk]]
        if not self.waiting[link] and self.busy[link] > now and self.room[link] == np.inf:
            self.put(self.busy[link], FREE, link, -1)
        self.waiting[link].append(chunk)
        self.queued[link] += self.size[chunk]
        self.begin(link, now)
        self.queue[link] = max(self.queue[link], self.queued[link])

    def free(self, link: int, chunk: int, now: float) -> None:
        if chunk >= 0:
            self.held[link] -= self.size[chunk]
        self.begin(link, now)
        while self.blocked[link]:
            other = self.blocked[link][0]
            if self.held[link] + self.size[self.waiting[other][0]] > self.room[link]:
                break
            self.blocked[link].popleft()
            self.is_blocked[other] = False
            self.begin(other, now)

    def begin(self, link: int, now: float) -> None:
        """Start the first chunk that waits, if the link is free and there is room behind it."""
        if not self.waiting[link] or self.busy[link] > now or self.is_blocked[link]:
            return
        chunk = self.waiting[link][0]
        entry, size = self.at[chunk], self.size[chunk]
        message = self.message[chunk]
        last = entry + 1 == self.load.path_ptr[message + 1]
        if not last:
            if self.to[chunk] < 0:
                self.to[chunk] = self.following(message, entry)
            onward = self.link[self.to[chunk]]
            if self.room[onward] != np.inf:
                if self.held[onward] + size > self.room[onward]:
                    self.blocked[onward].append(link)
                    self.is_blocked[link] = True
                    return
                self.held[onward] += size
        self.waiting[link].popleft()
        self.queued[link] -= size
        self.carried[link] += size
        end = now + size / self.rate[link]
        self.busy[link] = end
        if self.room[link] != np.inf:
            self.put(end, FREE, link, chunk)
        elif self.waiting[link]:
            self.put(end, FREE, link, -1)
        if entry == self.load.clock[message]:
            self.leaves(chunk, now)
        if last:
            self.delivered(chunk, end + self.delay[link])
        elif self.load.whole[self.to[chunk]]:
            self.put(end + self.delay[link], ARRIVE, -1, chunk)
        else:
            packet = min(self.servers.packet, size)
            head = now + packet / self.rate[link]
            tail = end - (size - packet) / self.rate[onward]
            self.put(max(head, tail) + self.delay[link], ARRIVE, -1, chunk)

    def following(self, message: int, entry: int) -> int:
        """The entry after this one: into an alternative, along it, and back."""
        gap = int(self.load.gap[message])
        if entry < self.alternatives and entry + 1 == gap:
            spread = int(self.load.spread[message])
            row = self.load.deal[self.dealt[spread]]
            self.dealt[spread] += 1
            return int(self.load.path_ptr[row])
        return gap if self.ends[entry] else entry + 1

    def leaves(self, chunk: int, now: float) -> None:
        message = self.message[chunk]
        self.to_start[message] -= 1
        if self.to_start[message]:
            self.put(now, ARRIVE, -1, chunk + 1)
        elif self.servers.sent:
            self.put(now, POST, int(self.sender_of[message]), -1)

    def delivered(self, chunk: int, time: float) -> None:
        message = self.message[chunk]
        self.latest[message] = max(self.latest[message], time)
        self.to_finish[message] -= 1
        if self.to_finish[message] == 0:
            self.finish[message] = self.latest[message]
            if not self.servers.sent:
                self.put(self.latest[message], POST, int(self.sender_of[message]), -1)
