"""PyTorch's caching allocator: its published sizes, and an allocator written again the slow way."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.training.allocator import BLOCK, MIB, Allocator, Block


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
    memory = Allocator()
    block = memory.take(size)
    assert memory.reserved == segment
    assert block.size == segment - rest
    assert (block.behind.size if block.behind else 0) == rest


def test_the_smallest_block_that_holds_a_tensor_is_taken_and_neighbours_join() -> None:
    memory = Allocator()
    large, small = memory.take(60 * MIB), memory.take(40 * MIB)
    memory.give(large)
    memory.give(small)
    first = memory.take(38 * MIB)
    assert first.segment == small.segment
    second = memory.take(30 * MIB)
    assert second.segment == large.segment
    assert memory.reserved == 100 * MIB
    memory.give(second)
    again = memory.take(60 * MIB)
    assert (again.segment, again.offset, again.size) == (large.segment, 0, 60 * MIB)
    # a hole between two tensors holds nothing larger than itself
    memory.give(first)
    memory.take(20 * MIB)
    memory.take(21 * MIB)
    assert memory.reserved == 122 * MIB


def test_segments_that_grow_leave_no_holes_behind_their_last_tensor() -> None:
    plain, growing = Allocator(), Allocator(expandable=True)
    for memory in (plain, growing):
        for size in (30, 50, 70):
            memory.give(memory.take(size * MIB))
    assert plain.reserved == 150 * MIB
    # pages of 20 MiB: 40, then 60, then 80
    assert growing.reserved == 80 * MIB


def test_unused_segments_go_back_when_memory_ends() -> None:
    memory = Allocator(capacity=100 * MIB)
    held = memory.take(30 * MIB)
    memory.give(memory.take(60 * MIB))
    memory.take(66 * MIB)
    assert (memory.retries, memory.reserved) == (1, 96 * MIB)
    # nothing is free now: the tensor gets its memory, and what is missing can be read off
    memory.take(20 * MIB)
    assert (memory.retries, memory.most_reserved) == (2, 116 * MIB)
    memory.give(held)


@dataclass
class Slow:
    """The same rules over flat lists of (start, size, owner): an oracle."""

    def __init__(self, capacity: float) -> None:
        self.capacity, self.retries = capacity, 0
        self.segments: list[tuple[bool, int, dict[int, tuple[int, int]]]] = []
        self.reserved = 0

    def holes(self, segment: tuple[bool, int, dict[int, tuple[int, int]]]) -> list[tuple[int, int]]:
        at, found = 0, []
        for start, size in sorted(segment[2].values()):
            if start > at:
                found.append((at, start - at))
            at = start + size
        if at < segment[1]:
            found.append((at, segment[1] - at))
        return found

    def take(self, owner: int, size: int) -> None:
        need = max(BLOCK, -(-size // BLOCK) * BLOCK)
        small = need <= MIB
        fitting = [
            (hole, number, start)
            for number, segment in enumerate(self.segments)
            if segment[0] == small
            for start, hole in self.holes(segment)
            if hole >= need
        ]
        if not fitting:
            whole = 2 * MIB if small else 20 * MIB if need < 10 * MIB else -(-need // (2 * MIB)) * 2 * MIB
            if self.reserved + whole > self.capacity:
                self.retries += 1
                # an unused segment keeps its number, and has no room left
                for number, (of_small, size, inside) in enumerate(self.segments):
                    if not inside:
                        self.segments[number] = (of_small, 0, {})
                        self.reserved -= size
            self.segments.append((small, whole, {}))
            self.reserved += whole
            fitting = [(whole, len(self.segments) - 1, 0)]
        hole, number, start = min(fitting)
        split = hole - need >= BLOCK if small else hole - need > MIB
        self.segments[number][2][owner] = (start, need if split else hole)

    def give(self, owner: int) -> None:
        for segment in self.segments:
            segment[2].pop(owner, None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.integers(1, 80 * MIB), st.integers(1, 2 * MIB), st.integers(0, 30).map(lambda n: -n - 1)
        ),
        max_size=60,
    ),
    st.sampled_from([inf, 400 * MIB, 100 * MIB, 10 * MIB]),
)
def test_it_reserves_what_the_slow_one_does(steps: list[int], capacity: float) -> None:
    """Positive numbers are tensors that come, negative ones name one that goes."""
    fast, slow = Allocator(capacity), Slow(capacity)
    live: dict[int, Block] = {}
    for number, step in enumerate(steps):
        if step > 0:
            live[number] = fast.take(step)
            slow.take(number, step)
        elif live:
            owner = sorted(live)[-step % len(live)]
            fast.give(live.pop(owner))
            slow.give(owner)
        assert (fast.reserved, fast.retries) == (slow.reserved, slow.retries)
        assert fast.allocated == sum(block.size for block in live.values())
    for block in live.values():
        fast.give(block)
    assert fast.allocated == 0
    assert sum(size for pool in fast._free.values() for size, *_ in pool) == fast.reserved


def test_far_over_capacity_a_release_looks_at_unused_segments_only() -> None:
    # memory ends at every tensor of 15 MiB, and each segment keeps a hole of 4 MiB: looking at all holes each
    # time, 20,000 times 20,000 of them, takes a minute
    memory = Allocator(capacity=MIB)
    for _ in range(20_000):
        memory.give(memory.take(15 * MIB))
        memory.take(12 * MIB)
    assert (memory.retries, memory.reserved) == (20_000, 20_000 * 16 * MIB)
