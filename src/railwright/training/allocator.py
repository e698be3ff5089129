"""PyTorch's caching allocator, block by block: what it holds of a GPU when tensors come and go.

Source: PyTorch, c10/cuda/CUDACachingAllocator.cpp (its note at the head, the constants below,
`get_free_block`, `should_split`, `get_allocation_size`, `release_cached_blocks`, Note [Expandable Segments];
the same from 1.10 (2021) to today, segments that grow since 2.1).  One stream: blocks that another stream
still uses are not modelled, nor pages in the middle of a growing segment that go back to CUDA.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from math import inf

MIB = 1 << 20
BLOCK = 512
"""All sizes are rounded up to it (kMinBlockSize)."""
SMALL = MIB
"""Largest size of the pool of small blocks (kSmallSize); of other blocks no rest up to it is split off."""
SMALL_SEGMENT, MEDIUM_SEGMENT = 2 * MIB, 20 * MIB
"""What is asked of CUDA for a small block (kSmallBuffer) and for one below 10 MiB (kLargeBuffer)."""
LARGE, ROUND = 10 * MIB, 2 * MIB
"""From this size on (kMinLargeAlloc) a segment is as large as its block, rounded up to 2 MiB
(kRoundLarge)."""


class Block:
    """A piece of a segment: `size` bytes at `offset`, between its neighbours."""

    __slots__ = ("before", "behind", "free", "offset", "segment", "size", "small")

    def __init__(self, segment: int, offset: int, size: int, small: bool) -> None:
        self.segment, self.offset, self.size, self.small = segment, offset, size, small
        self.free = True
        self.before: Block | None = None
        self.behind: Block | None = None


class Allocator:
    """allocated, reserved  bytes in tensors and in segments now; `most_allocated`, `most_reserved` so far
    retries              times that free segments went back to CUDA because it had no more
                         (torch.cuda.memory_stats, num_alloc_retries)

    capacity    bytes that CUDA can give; a tensor that finds no room even then still gets it, so that
                `most_reserved` above `capacity` says by how much memory is short
    expandable  whether one segment grows, as with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    """

    def __init__(self, capacity: float = inf, expandable: bool = False) -> None:
        self.capacity, self.expandable = capacity, expandable
        self.retries = 0
        self.allocated = self.reserved = self.most_allocated = self.most_reserved = 0
        self._segments = 0
        self._free: dict[bool, list[tuple[int, int, int, Block]]] = {True: [], False: []}
        self._last: dict[bool, Block] = {}
        # free blocks that are whole segments: far over capacity memory ends at almost every tensor
        self._unused: dict[Block, None] = {}

    def take(self, size: float) -> Block:
        """A block for a tensor of so many bytes: the smallest free one that holds it, cut to its size."""
        need = -(-int(size) // BLOCK) * BLOCK or BLOCK
        small = need <= SMALL
        block = self._found(need, small) or self._asked(need, small)
        rest = block.size - need
        if rest and (rest >= BLOCK if small or self.expandable else rest > SMALL):
            self._cut(block, need)
        block.free = False
        self.allocated += block.size
        if self.allocated > self.most_allocated:
            self.most_allocated = self.allocated
        return block

    def give(self, block: Block) -> None:
        """Free a block; it joins free neighbours of its segment."""
        self.allocated -= block.size
        before, behind = block.before, block.behind
        if before is not None and before.free:
            self._remove(before)
            block = self._join(before, block)
        if behind is not None and behind.free:
            self._remove(behind)
            block = self._join(block, behind)
        block.free = True
        self._insert(block)

    def _found(self, need: int, small: bool) -> Block | None:
        pool = self._free[small]
        at = bisect_left(pool, (need, -1, -1))
        if at == len(pool):
            return None
        block = pool.pop(at)[3]
        if block.before is None and block.behind is None:
            del self._unused[block]
        return block

    def _asked(self, need: int, small: bool) -> Block:
        """A segment more of CUDA, or more of the one that grows."""
        if self.expandable:
            return self._grown(need, small)
        size = SMALL_SEGMENT if small else MEDIUM_SEGMENT if need < LARGE else -(-need // ROUND) * ROUND
        self._reserve(size)
        self._segments += 1
        return Block(self._segments, 0, size, small)

    def _grown(self, need: int, small: bool) -> Block:
        """The end of the segment, which keeps growing by its pages; a free block there is used."""
        page = SMALL_SEGMENT if small else MEDIUM_SEGMENT
        last = self._last.get(small)
        open_ = last if last is not None and last.free else None
        size = -(-(need - (open_.size if open_ else 0)) // page) * page
        self._reserve(size)
        if open_:
            self._remove(open_)
            open_.size += size
            return open_
        block = Block(0, last.offset + last.size if last else 0, size, small)
        if last:
            last.behind, block.before = block, last
        self._last[small] = block
        return block

    def _release(self) -> None:
        """Segments that no tensor is in go back to CUDA."""
        self.retries += 1
        for block in list(self._unused):
            self._remove(block)
            self.reserved -= block.size

    def _reserve(self, size: int) -> None:
        if self.reserved + size > self.capacity and not self.expandable:
            self._release()
        self.reserved += size
        self.most_reserved = max(self.most_reserved, self.reserved)

    def _cut(self, block: Block, need: int) -> None:
        """Leave the end of a block free."""
        rest = Block(block.segment, block.offset + need, block.size - need, block.small)
        rest.before, rest.behind = block, block.behind
        if block.behind:
            block.behind.before = rest
        block.behind, block.size = rest, need
        if self._last.get(block.small) is block:
            self._last[block.small] = rest
        self._insert(rest)

    def _join(self, first: Block, second: Block) -> Block:
        first.size += second.size
        first.behind = second.behind
        if second.behind:
            second.behind.before = first
        if self._last.get(second.small) is second:
            self._last[second.small] = first
        return first

    def _insert(self, block: Block) -> None:
        insort(self._free[block.small], (block.size, block.segment, block.offset, block))
        if block.before is None and block.behind is None:
            self._unused[block] = None

    def _remove(self, block: Block) -> None:
        pool = self._free[block.small]
        del pool[bisect_left(pool, (block.size, block.segment, block.offset))]
        if block.before is None and block.behind is None:
            del self._unused[block]
