"""Traffic that is described and not enumerated: many all-to-alls at once, beside demands written out.

Legend: A groups, M members of all groups together, n ranks of one group; CSR pair is ptr, gpus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.traffic.demand import Communicator, Traffic, join
from railwright.traffic.patterns import all_to_all

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Groups:
    """All-to-alls that run at the same time, and further demands that start with them.

    ptr, gpus  (A+1,), (M,) GPU ids of each group, group after group
    size       (A,) bytes that each rank of the group sends to each other one [byte]
    pxn        (A,) whether its pairs are relayed to the destination's rail (see `placement.relay`)
    explicit   demands written out: rings, trees, hierarchical collectives (a few per GPU)

    A group of n ranks stands for n (n - 1) demands; a billion of them takes no more room than the ranks.
    """

    ptr: Longs
    gpus: Ints
    size: Floats
    pxn: NDArray[np.bool_]
    explicit: Traffic = field(default_factory=lambda: join([]))

    @staticmethod
    def all_to_all(
        groups: ArrayLike | Sequence[ArrayLike],
        size_per_pair: float | ArrayLike,
        pxn: bool | ArrayLike = False,
        explicit: Traffic | None = None,
    ) -> Groups:
        """Groups of GPUs that each run an all-to-all, all at once.

        groups         (A, n) GPU ids, one group (n,), or a sequence of groups of any lengths
        size_per_pair  bytes each rank sends to each other one of its group, one number or (A,) [byte]
        pxn            one answer for all groups, or (A,)
        explicit       demands that start together with them
        Raises PlanError for a GPU twice in one group and for a negative size.
        """
        rows = _rows(groups)
        ptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        gpus = np.concatenate([np.zeros(0, np.int32), *rows]).astype(np.int32)
        size = np.broadcast_to(np.asarray(size_per_pair, np.float64), (len(rows),)).copy()
        relayed = np.broadcast_to(np.asarray(pxn, np.bool_), (len(rows),)).copy()
        for row, part in enumerate(rows):
            if len(part) and np.bincount(part).max() > 1:
                twice = int(np.bincount(part).argmax())
                raise PlanError(f"group {row} holds GPU {twice} twice; a rank is one GPU, list each GPU once")
        if np.any(~(size >= 0)):
            row = int(np.flatnonzero(~(size >= 0))[0])
            raise PlanError(f"group {row} sends {size[row]:g} bytes per pair; give a size of 0 or more")
        return Groups(ptr, gpus, size, relayed, join([]) if explicit is None else explicit)

    @property
    def num_groups(self) -> int:
        return len(self.size)

    def __len__(self) -> int:
        """Number of demands, as if they were enumerated."""
        ranks = np.diff(self.ptr)
        return int((ranks * (ranks - 1)).sum()) + len(self.explicit)

    def members(self, group: int) -> Ints:
        """(n,) GPU ids of one group."""
        return self.gpus[self.ptr[group] : self.ptr[group + 1]]

    def expand(self, fabric: Fabric) -> Traffic:
        """Every demand written out: groups in order, each as `traffic.all_to_all` lists it, explicit last."""
        parts = [
            all_to_all(fabric, Communicator(self.members(g)), float(self.size[g]), bool(self.pxn[g]))
            for g in range(self.num_groups)
        ]
        return join([*parts, self.explicit])

    def scaled(self, factor: float) -> Groups:
        """The same demands, each `factor` times as large."""
        return Groups(self.ptr, self.gpus, self.size * factor, self.pxn, self.explicit.scaled(factor))


def together(parts: Sequence[Groups | Traffic]) -> Groups:
    """All demands of several descriptions that run at the same time."""
    groups = [part for part in parts if isinstance(part, Groups)]
    written = [part if isinstance(part, Traffic) else part.explicit for part in parts]
    ranks = np.concatenate([np.zeros(0, np.int64), *(np.diff(g.ptr) for g in groups)])
    return Groups(
        np.concatenate([[0], np.cumsum(ranks)]).astype(np.int64),
        np.concatenate([np.zeros(0, np.int32), *(g.gpus for g in groups)]).astype(np.int32),
        np.concatenate([np.zeros(0), *(g.size for g in groups)]),
        np.concatenate([np.zeros(0, np.bool_), *(g.pxn for g in groups)]),
        join(written),
    )


def _rows(groups: ArrayLike | Sequence[ArrayLike]) -> list[Ints]:
    if isinstance(groups, np.ndarray):
        return [np.asarray(row, np.int32) for row in np.atleast_2d(groups)]
    listed = list(groups)  # type: ignore[arg-type]
    if listed and np.ndim(listed[0]) == 0:
        return [np.asarray(listed, np.int32)]
    return [np.asarray(row, np.int32).reshape(-1) for row in listed]
