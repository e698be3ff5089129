"""Ranks that keep step pass by pass: they end every pass with the slowest of them.

What a GPU needs for the same pass varies: by 0.2 % from pass to pass between tensor-parallel groups, and by
milliseconds in rare detours (`stragglers.pass_wait`).  Over a step that averages out where ranks meet only
when gradients are reduced.  Where they meet in every pass it does not: under ZeRO-3 (parameters are gathered
layer by layer, unless a pipeline keeps them), in groups that exchange tokens between experts or blocks of a
sequence, and under fp8 with delayed scaling.

Every rank is taken to have the same work.  Where attention stays inside documents of different lengths it has
not: microbatches of the traced job differ by 1.5 % forward and 2.1 % backward, on all stages alike, those of
another by half.  Ranks that meet within a pass (experts' all-to-alls, gathers in the open) meet at its end
once all the same, which is the least that they wait; ranks whose gathers are hidden are apart by less than a
pass at its end and wait a little less.

There Transformer Engine gathers the absolute maxima ("amax") of a pass in one small tensor and all-reduces it
with MAX when the outermost fp8 region ends, forward, and when its first module has its gradients, backward;
compute waits.  Megatron-LM does so over all tensor-, context- and data-parallel ranks of a stage, or over the
tensor-parallel ones alone (tp_only_amax_red).  The message is a few hundred bytes, so its price is latency
and grows with the job; passes of one layer (deep interleaving) feel it most.
Sources: Transformer Engine, pytorch/fp8.py, FP8GlobalStateManager.reduce_and_update_fp8_tensors; Megatron-LM,
core/transformer/transformer_block.py and parallel_state.py, get_amax_reduction_group; JAX: flax,
linen/fp8_ops.py, compute_amax_history (the maximum of a global array: all devices that hold a part of it);
spreads: training/data/constants.yaml, pass_spread and detour_*.
"""

from __future__ import annotations

from math import hypot, lcm
from typing import Literal

from railwright.spec.training import TrainingJob
from railwright.training.lanes.tasks import Task, is_ahead
from railwright.training.layers.communication import Prices
from railwright.training.layout.placement import GroupKind
from railwright.training.layout.sizes import Sizes
from railwright.training.software.constants import constant
from railwright.training.software.formats import amax_over
from railwright.training.software.stragglers import pass_wait

Way = Literal["forward", "backward"]

WAIT, MAXIMA = "waiting for other ranks", "fp8 maxima"
"""Names of what follows a pass."""

PRODUCTS = 4
"""Modules of a layer that multiply in fp8: qkv, attention output, up and down (all experts count once)."""

ENTRIES: dict[Way, int] = {"forward": 3, "backward": 2}
"""Maxima of one product: input, weight and output; the two gradients.  Source: Transformer Engine,
pytorch/module/base.py, set_meta_tensor."""

GROUPS: dict[str, GroupKind] = {"stage": "stage", "tensor": "tp"}


def in_step(job: TrainingJob, sizes: Sizes) -> int:
    """Tensor-parallel groups with tokens of their own that end every pass together; 1: none waits.

    Groups are blocks of neighbouring ranks of a stage.  Where blocks of two kinds cut each other, as those of
    experts over 3 ranks and of tensors over 2, all that hang together wait for each other.
    """
    blocks = [sizes.tensor, sizes.context * sizes.tensor]
    if amax_over(job) == "stage":
        blocks.append(sizes.replicas * sizes.tensor)
    if job.layout.zero == 3 and not job.layout.gathers_once:
        blocks.append(sizes.shard * sizes.tensor)
    if sizes.expert > 1:
        blocks.append(sizes.expert * sizes.expert_tensor)
    return lcm(*blocks) // sizes.tensor


class Lockstep:
    """What follows each pass of a job: the wait for the slowest rank, and the agreement on maxima."""

    def __init__(self, job: TrainingJob, prices: Prices) -> None:
        self.groups, self.gpus = in_step(job, prices.groups.sizes), prices.groups.sizes.tensor
        self.prices, self.kind = prices, GROUPS.get(amax_over(job))

    def after(self, tasks: list[Task], layers: int, way: Way) -> list[Task]:
        """Tasks that follow those of a pass through some layers; none where no rank waits for another."""
        found: list[Task] = []
        layer = layers if way == "forward" else -1
        compute = sum(task.duration for task in tasks if task.lane == "compute" and task.name != WAIT)
        if wait := self._wait(compute):
            found.append(Task("compute", WAIT, WAIT, wait, _ends(tasks), layer))
        if self.kind is not None and layers:
            size = 4.0 * PRODUCTS * ENTRIES[way] * layers
            if seconds := self.prices.time("tp", MAXIMA, "all_reduce", size, self.kind):
                after = _ends([*tasks, *found])
                found.append(Task("tp", MAXIMA, "all_reduce", seconds, after, layer, size))
        return found

    def after_both(self, tasks: list[Task], ahead: int, back: int) -> list[Task]:
        """The same of a forward pass through `ahead` layers and a backward one through `back` at once.

        Ranks end both together, and what the two take varies independently.
        """
        seconds = {True: 0.0, False: 0.0}
        for task in tasks:
            if task.lane == "compute":
                seconds[is_ahead(task.layer)] += task.duration
        found: list[Task] = []
        if wait := self._wait(*seconds.values()):
            found.append(Task("compute", WAIT, WAIT, wait, _ends(tasks), -1))
        if self.kind is not None and ahead + back:
            size = 4.0 * PRODUCTS * (ENTRIES["forward"] * ahead + ENTRIES["backward"] * back)
            if spent := self.prices.time("tp", MAXIMA, "all_reduce", size, self.kind):
                found.append(Task("tp", MAXIMA, "all_reduce", spent, _ends([*tasks, *found]), -1, size))
        return found

    def _wait(self, *passes: float) -> float:
        """For the slowest of the ranks, behind passes of so many seconds that end together. [s]"""
        deviation = constant("pass_spread") * hypot(*passes)
        return pass_wait(self.groups, self.gpus, sum(passes), deviation)


def _ends(tasks: list[Task]) -> tuple[int, ...]:
    """The last task of every lane: what a task waits for that waits for all."""
    return tuple(sorted({task.lane: i for i, task in enumerate(tasks)}.values()))


def without_waits(tasks: list[Task]) -> list[Task]:
    """A pass without what follows it; copies to and from the host may be listed behind that."""
    kept = [i for i, task in enumerate(tasks) if task.name not in (WAIT, MAXIMA)]
    if not kept or kept[-1] == len(kept) - 1:  # what follows is listed last
        return tasks[: len(kept)]
    place = {old: new for new, old in enumerate(kept)}
    return [tasks[i].behind(tuple(place.get(a, a) for a in tasks[i].after)) for i in kept]
