"""What a space that memory stops leaves out and that would save some: axes with other values, tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.model.shape.architecture import Transformer
from railwright.search.bounds.blocks import blocks
from railwright.search.space.axes import Block, Space, apply
from railwright.search.space.changes import changed
from railwright.spec.training import TrainingJob
from railwright.training.layout.divisors import divisors
from railwright.training.layout.sizes import job_gpus
from railwright.training.software.hosted import check_offload
from railwright.units import listed

SAVING = (
    "pipeline", "tensor", "context", "expert", "zero", "recompute", "micro_batch",
    "sequence_parallel",
)  # fmt: skip
"""Axes whose other values may save memory, and whose default has every value."""

OFFLOADS = (("optimizer",), ("activations",), ("optimizer", "activations"), ("weights",))
"""What may lie in host memory; the default of a space is only what the job says."""

LIKE = 1.01
"""Layouts within 1 % of the least memory count as leanest too."""

GPUS = "use more or larger GPUs"


def leaner(
    space: Space,
    job: TrainingJob,
    arch: Transformer,
    fabric: Fabric,
    bounds: Callable[[Block], tuple[Any, NDArray[np.float32]]],
    capacity: float,
) -> str:
    """What to do where no layout of a space fits.

    bounds  of a block, the memory that each of its layouts needs at least is the second [byte]

    An axis is named where, with all its values, some layout's bound is within the capacity; two or more of
    them where only together they reach that far.
    """
    left = dict(_left_out(space, job, arch, fabric))

    def fits(axes: Sequence[str]) -> bool:
        wider = replace(space, values=_with(space, {axis: left[axis] for axis in axes}))
        return any(bounds(block)[1].min() <= capacity for block in blocks(wider, job, arch, fabric)[0])

    alone = [axis for axis in left if fits((axis,))]
    if alone:
        return f"{GPUS}, or give the space more values of {' or '.join(alone)}."
    if len(left) > 1 and fits(tuple(left)):
        return f"{GPUS}, or give the space more values of {listed(tuple(left))} together."
    if left:
        return f"{GPUS}: other values of {listed(tuple(left))} do not make it fit either."
    return f"{GPUS}: the space leaves out nothing leaner."


def leanest(
    block: Block, memory: NDArray[np.float32], own: Mapping[str, Any]
) -> tuple[dict[str, Any], float]:
    """The leanest layout of a block, and what it needs at least [byte]; of those that need hardly more that
    which is nearest to the job's own.

    memory  bounds of all but the last two choices, which take none [byte]
    """
    step = prod(block.shape[-2:])

    def setting(at: int) -> dict[str, Any]:
        return block.at(tuple(int(n) for n in np.unravel_index(at * step, block.shape)))

    alike = np.flatnonzero(memory <= memory.min() * LIKE).tolist()
    at = min(alike, key=lambda at: len(changed(own, setting(at))))
    return setting(at), float(memory.flat[at])


def untried(space: Space, job: TrainingJob, arch: Transformer, fabric: Fabric) -> str:
    """What to do where layouts nearly fit: axes of which a space leaves out values that may save memory."""
    left = tuple(axis for axis, _ in _left_out(space, job, arch, fabric))
    return f"{GPUS}, or give the space more values of {' or '.join(left)}." if left else f"{GPUS}."


def _with(space: Space, wider: Mapping[str, tuple[Any, ...] | None]) -> dict[str, tuple[Any, ...]]:
    """Values of a space with other ones of some axes; None for the axis' default."""
    values = {axis: found for axis, found in space.values.items() if axis not in wider}
    return values | {axis: found for axis, found in wider.items() if found is not None}


def _left_out(
    space: Space, job: TrainingJob, arch: Transformer, fabric: Fabric
) -> Iterator[tuple[str, tuple[Any, ...] | None]]:
    """Axes that a space restricts, and the values to try; None for the axis' default."""
    for axis in SAVING:
        if axis in space.values and (axis != "expert" or arch.is_moe):
            yield axis, None
    shards = space.values.get("shard", (job.layout.shard,))
    if not space.fsdp and None not in shards:
        yield "shard", (None, *divisors(job_gpus(job, fabric)))
    tried = space.values.get("offload", ((), job.layout.offload))
    held = [parts for parts in OFFLOADS if not any(set(parts) <= set(one) for one in tried)]
    more = [parts for parts in held if _may_offload(job, parts)]
    if more:
        yield "offload", (*tried, *more)


def _may_offload(job: TrainingJob, parts: tuple[str, ...]) -> bool:
    """Whether the job's software offloads these parts, in the layout that allows most."""
    zero = 3 if "weights" in parts else job.layout.zero
    setting = {"offload": parts, "zero": zero, "recompute": "none", "pipeline": 1}
    try:
        check_offload(apply(job, setting))
    except PlanError:
        return False
    return True
