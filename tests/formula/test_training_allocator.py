"""PyTorch's caching allocator: its published sizes, and an allocator written again the slow way."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.training.memory.allocator import Requests, play
from railwright.training.memory.kernel_allocator import BLOCK, MIB


@pytest.mark.parametrize(
    ("size", "segment", "rest"),
    [
        # CUDACachingAllocator.cpp: small ones share 2 MiB, those below 10 MiB 20 MiB, larger ones are rounded
        # up to 2 MiB; what is left is split off in the small pool always, in the other one above 1 MiB
        (1, 2 * MIB, 2 * MIB - BLOCK),
        (MIB, 2 * MIB, MIB),
        (MIB + 1, 20 * MIB, 19 * MIB - BLOCK),
        (10 * MIB - BLOCK, 20 * MIB, 10 * MIB + BLOCK),
        (10 * MIB, 10 * MIB, 0),
        (30 * MIB + 1, 32 * MIB, 2 * MIB - BLOCK),
        (31 * MIB, 32 * MIB, 0),
    ],
)
def test_segments_of_published_sizes(size: int, segment: int, rest: int) -> None:
    asked = Requests()
    asked.take(size)
    played = play(asked)
    assert played.end.reserved == segment
    assert played.end.allocated == played.blocks[0] == segment - rest


def test_the_smallest_block_that_holds_a_tensor_is_taken_and_neighbours_join() -> None:
    asked = Requests()
    large, small = asked.take(60 * MIB), asked.take(40 * MIB)
    asked.give(large)
    asked.give(small)
    # into the segment of 40 MiB: one of 60 is still left for the next two
    first = asked.take(38 * MIB)
    second = asked.take(30 * MIB)
    asked.mark()
    asked.give(second)
    again = asked.take(60 * MIB)
    asked.mark()
    # a hole between two tensors holds nothing larger than itself
    asked.give(first)
    asked.take(20 * MIB)
    asked.take(21 * MIB)
    played = play(asked)
    assert [moment.reserved for moment in played.moments] == [100 * MIB, 100 * MIB, 122 * MIB]
    assert played.blocks[again] == 60 * MIB


def test_segments_that_grow_leave_no_holes_behind_their_last_tensor() -> None:
    asked = Requests()
    for size in (30, 50, 70):
        asked.give(asked.take(size * MIB))
    assert play(asked).end.reserved == 150 * MIB
    # pages of 20 MiB: 40, then 60, then 80
    assert play(asked, expandable=True).end.reserved == 80 * MIB


def test_unused_segments_go_back_when_memory_ends() -> None:
    asked = Requests()
    asked.take(30 * MIB)
    asked.give(asked.take(60 * MIB))
    asked.take(66 * MIB)
    asked.mark()
    # nothing is free now: the tensor gets its memory, and what is missing can be read off
    asked.take(20 * MIB)
    played = play(asked, capacity=100 * MIB)
    before, end = played.moments
    assert (before.retries, before.reserved) == (1, 96 * MIB)
    assert (end.retries, played.most_reserved) == (2, 116 * MIB)


Segment = tuple[tuple[int, bool], int, dict[int, tuple[int, int]]]


@dataclass
class Slow:
    """The same rules over flat lists of (start, size, owner): an oracle."""

    def __init__(self, capacity: float) -> None:
        self.capacity, self.retries = capacity, 0
        # (stream, whether of small blocks), size, what is in it
        self.segments: list[Segment] = []
        self.reserved = 0

    def holes(self, segment: Segment) -> list[tuple[int, int]]:
        at, found = 0, []
        for start, size in sorted(segment[2].values()):
            if start > at:
                found.append((at, start - at))
            at = start + size
        if at < segment[1]:
            found.append((at, segment[1] - at))
        return found

    def take(self, owner: int, size: int, stream: int = 0) -> None:
        need = max(BLOCK, -(-size // BLOCK) * BLOCK)
        small = need <= MIB
        kind = stream, small
        fitting = [
            (hole, number, start)
            for number, segment in enumerate(self.segments)
            if segment[0] == kind
            for start, hole in self.holes(segment)
            if hole >= need
        ]
        if not fitting:
            whole = 2 * MIB if small else 20 * MIB if need < 10 * MIB else -(-need // (2 * MIB)) * 2 * MIB
            if self.reserved + whole > self.capacity:
                self.retries += 1
                # an unused segment keeps its number, and has no room left
                for number, (of, size, inside) in enumerate(self.segments):
                    if not inside:
                        self.segments[number] = (of, 0, {})
                        self.reserved -= size
            self.segments.append((kind, whole, {}))
            self.reserved += whole
            fitting = [(whole, len(self.segments) - 1, 0)]
        hole, number, start = min(fitting)
        split = hole - need >= BLOCK if small else hole - need > MIB
        self.segments[number][2][owner] = (start, need if split else hole)

    @property
    def allocated(self) -> int:
        return sum(size for segment in self.segments for _, size in segment[2].values())

    def give(self, owner: int) -> None:
        for segment in self.segments:
            segment[2].pop(owner, None)


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.integers(1, 80 * MIB), st.integers(1, 2 * MIB), st.integers(0, 30).map(lambda n: -n - 1)
        ),
        max_size=60,
    ),
    st.sampled_from([inf, 400 * MIB, 100 * MIB, 10 * MIB]),
    st.integers(1, 3),
)
def test_it_reserves_what_the_slow_one_does(steps: list[int], capacity: float, streams: int) -> None:
    """Positive numbers are tensors that come, negative ones name one that goes."""
    asked, slow = Requests(), Slow(capacity)
    live: dict[int, int] = {}
    expected = []
    for number, step in enumerate(steps):
        if step > 0:
            # by chance, but the same every time
            stream = number * step % streams
            live[number] = asked.take(step, stream)
            slow.take(number, step, stream)
        elif live:
            owner = sorted(live)[-step % len(live)]
            asked.give(live.pop(owner))
            slow.give(owner)
        asked.mark()
        expected.append((slow.allocated, slow.reserved, slow.retries))
    for tensor in live.values():
        asked.give(tensor)
    *moments, end = play(asked, capacity).moments
    assert [(one.allocated, one.reserved, one.retries) for one in moments] == expected
    assert end.allocated == 0


@pytest.mark.parametrize("expandable", [False, True])
def test_no_stream_has_what_another_let_go_of(expandable: bool) -> None:
    asked = Requests()
    asked.give(asked.take(60 * MIB, 1))
    asked.give(asked.take(60 * MIB))
    asked.mark()
    asked.give(asked.take(60 * MIB, 1))
    played = play(asked, expandable=expandable)
    assert [one.reserved for one in played.moments] == [120 * MIB, 120 * MIB]
    assert played.most_allocated == 60 * MIB


@settings(max_examples=60)
@given(
    st.lists(st.one_of(st.integers(1, 80 * MIB), st.integers(1, 2 * MIB)), min_size=1, max_size=40),
    st.randoms(),
)
def test_a_segment_that_grew_is_whole_again_once_all_is_free(sizes: list[int], random: Random) -> None:
    """In whatever order tensors go: what filled it fits again without growth."""
    asked = Requests()
    live = [asked.take(size) for size in sizes]
    asked.mark()
    random.shuffle(live)
    for tensor in live:
        asked.give(tensor)
    for size in sizes:
        asked.take(size)
    full, again = play(asked, expandable=True).moments
    assert (again.allocated, again.reserved) == (full.allocated, full.reserved)


def test_far_over_capacity_a_release_looks_at_unused_segments_only() -> None:
    # memory ends at every tensor of 15 MiB, and each segment keeps a hole of 4 MiB: looking at all holes each
    # time, 20,000 times 20,000 of them, takes a second
    asked = Requests()
    for _ in range(20_000):
        asked.give(asked.take(15 * MIB))
        asked.take(12 * MIB)
    end = play(asked, capacity=MIB).end
    assert (end.retries, end.reserved) == (20_000, 20_000 * 16 * MIB)
