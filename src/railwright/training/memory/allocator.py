"""PyTorch's caching allocator, block by block: what it holds of a GPU when tensors come and go.

Source: PyTorch, c10/cuda/CUDACachingAllocator.cpp (its note at the head, `get_free_block`, `should_split`,
`get_allocation_size`, `release_cached_blocks`, Note [Expandable Segments]; constants in `kernel_allocator`;
the same from 1.10 (2021) to today, segments that grow since 2.1).  What was made on one stream is never given
to another one.  Blocks that another stream still uses are not modelled, nor pages in the middle of a growing
segment that go back to CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

Tensor = int
"""Its number, in the order in which they come."""

COMPUTE = 0
"""The stream on which passes run."""


@dataclass
class Requests:
    """What a GPU's allocator is asked, in order.

    What comes and goes depends on no allocator, so that the same requests can be played on several.

    sizes  of every tensor [byte]
    others  tensors that are made on another stream than COMPUTE -> its number
    asked  t where tensor t comes, -1 - t where it goes
    marks  numbers of requests before moments that `play` tells of
    """

    sizes: list[int] = field(default_factory=list)
    others: dict[Tensor, int] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)

    def take(self, size: float, stream: int = COMPUTE) -> Tensor:
        """A tensor of so many bytes comes, made on a stream."""
        tensor = len(self.sizes)
        if stream != COMPUTE:
            self.others[tensor] = stream
        self.sizes.append(int(size))
        self.asked.append(tensor)
        return tensor

    def give(self, tensor: Tensor) -> None:
        """It goes."""
        self.asked.append(-1 - tensor)

    def mark(self) -> None:
        """Remember this moment."""
        self.marks.append(len(self.asked))

    def repeat(self, part: Part, given: Sequence[Tensor]) -> list[Tensor]:
        """Ask what a part does, with other tensors for those that it was given; returns, for every tensor of
        the part, which one it is here."""
        first, made = len(self.sizes), part.sizes
        here = [*given, *range(first, first + len(made))]
        self.sizes += made
        self.asked += (np.array(here)[part.tensors] ^ part.goes).tolist()
        return here


@dataclass(frozen=True)
class Part:
    """Requests that can be asked again with other tensors; all of them on COMPUTE.

    sizes    of the tensors that come, whose numbers follow those of the ones that are given [byte]
    tensors  of each request
    goes     of each request: -1 where its tensor goes, 0 where it comes
    """

    sizes: list[int]
    tensors: NDArray[np.int64]
    goes: NDArray[np.int64]

    @classmethod
    def of(cls, requests: Requests, given: int) -> Part:
        """Of requests whose first tensors, `given` of them, were there before."""
        asked = np.array(requests.asked, np.int64)
        goes = asked >> 63
        return cls(requests.sizes[given:], asked ^ goes, goes)


@dataclass(frozen=True)
class Moment:
    """Bytes in tensors and in segments, and times that free segments went back to CUDA because it had no
    more (torch.cuda.memory_stats, num_alloc_retries)."""

    allocated: int
    reserved: int
    retries: int


@dataclass(frozen=True)
class Played:
    """What an allocator held.

    most_allocated, most_reserved  bytes in tensors and in segments
    moments  at every mark, and in the end
    blocks   bytes of every tensor's block
    """

    most_allocated: int
    most_reserved: int
    moments: tuple[Moment, ...]
    blocks: NDArray[np.int64]

    @property
    def end(self) -> Moment:
        """After the last request."""
        return self.moments[-1]


def play(requests: Requests, capacity: float = inf, expandable: bool = False) -> Played:
    """Play requests on an empty allocator.

    capacity    bytes that CUDA can give; a tensor that finds no room even then still gets it, so that
                `most_reserved` above `capacity` says by how much memory is short
    expandable  whether one segment grows, as with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    """
    # importing it compiles or loads
    from railwright.training.memory import kernel_allocator as kernel

    sizes = np.array(requests.sizes, np.int64)
    needs = np.maximum(-(-sizes // kernel.BLOCK), 1) * kernel.BLOCK
    streams = np.full_like(sizes, COMPUTE)
    streams[list(requests.others)] = list(requests.others.values())
    asked = np.array(requests.asked, np.int64)
    marks = np.array([*requests.marks, asked.size], np.int64)
    blocks, moments = np.empty_like(needs), np.empty((marks.size, 3), np.int64)
    allocated, reserved = kernel.play(needs, streams, asked, marks, capacity, expandable, blocks, moments)
    return Played(allocated, reserved, tuple(Moment(*row) for row in moments.tolist()), blocks)
