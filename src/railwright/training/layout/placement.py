"""Ranks on GPUs: which GPUs form the groups of every kind of parallelism of a job.

Legend: T, C, D, P tensor-, context-, data- and pipeline-parallel sizes; E, F expert-parallel size and
tensor-parallel size inside an expert.
Rank r = t + T (c + C (d + D p)), Megatron's order: tensor fastest, pipeline slowest.  Experts see the same
ranks as r = f + F (e + E (k + K p)): their replicas are what E and F leave of a stage's T C D ranks.
Source: Megatron-LM, megatron/core/parallel_state.py, initialize_model_parallel (order 'tp-cp-ep-dp-pp', with
a rank generator of its own for experts).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.faults import INSTEAD, check_joins
from railwright.fabric.graph import Fabric
from railwright.spec.training import TrainingJob
from railwright.traffic.demand import Communicator
from railwright.training.layout.sizes import Sizes, domain_of

Ints = NDArray[np.int32]
GroupKind = Literal[
    "tp",
    "cp",
    "ep",
    "ep_local",
    "ep_rail",
    "etp",
    "dp",
    "expert_dp",
    "shard",
    "expert_shard",
    "copies",
    "expert_copies",
    "stage",
    "pp",
    "embedding",
    "mirror",
]


@dataclass(frozen=True, eq=False)
class Groups:
    """All groups of each kind; the groups of one kind run at the same time and share links.

    grid    (P, D C, T) GPU id of every rank
    server  (G,) server of every GPU of the fabric
    notes   what a reader should know about the placement

    Kinds, made when first asked for:
    tp      ranks that share the tensors of one layer
    cp      ranks that share the tokens of one sequence
    ep      ranks that hold different experts and exchange tokens; ep_local  those of them in one server,
            ep_rail  those at the same place of all servers
    etp     ranks that share the tensors of one expert
    dp      ranks that hold the same dense parameters (D C of them)
    expert_dp   ranks that hold the same experts
    shard, copies   ranks that share one copy of what is sharded of dense parameters, and those with the same
            shard of all copies; expert_shard, expert_copies  the same of experts
    stage   all ranks of one pipeline stage
    pp      the stages of one pipeline, first to last
    embedding   first and last stage, which share a tied embedding or one that multi-token prediction reads
    mirror  the two stages that hold the same layers under DualPipe
    """

    grid: Ints
    server: Ints
    sizes: Sizes
    notes: tuple[str, ...] = ()
    _made: dict[str, tuple[Communicator, ...]] = field(default_factory=dict, repr=False)
    _parts: dict[str, frozenset[tuple[int, ...]]] = field(default_factory=dict, repr=False)

    def of(self, kind: GroupKind) -> tuple[Communicator, ...]:
        """All groups of one kind; none where the layout has no such groups."""
        if kind not in self._made:
            self._made[kind] = tuple(
                Communicator(np.ascontiguousarray(row), f"{kind.replace('_', ' ')} group {i}")
                for i, row in enumerate(_ROWS[kind](self))
            )
        return self._made[kind]

    def servers(self, kind: GroupKind) -> int:
        """Servers that the most spread group of a kind lies on; 0 without such groups."""
        return max(map(len, self.parts(kind)), default=0)

    def parts(self, kind: GroupKind) -> frozenset[tuple[int, ...]]:
        """Ranks on each of its servers, fewest first, of every group of a kind; of groups alike once."""
        if kind not in self._parts:
            on = (Counter(self.server[group.gpus].tolist()) for group in self.of(kind))
            self._parts[kind] = frozenset(tuple(sorted(ranks.values())) for ranks in on)
        return self._parts[kind]

    @property
    def tp(self) -> tuple[Communicator, ...]:
        """All tensor-parallel groups."""
        return self.of("tp")

    @property
    def ep(self) -> tuple[Communicator, ...]:
        """All expert-parallel groups."""
        return self.of("ep")

    @property
    def dp(self) -> tuple[Communicator, ...]:
        """All data-parallel groups."""
        return self.of("dp")

    @property
    def pp(self) -> tuple[Communicator, ...]:
        """All pipeline groups."""
        return self.of("pp")

    @property
    def embedding(self) -> tuple[Communicator, ...]:
        """First and last stages, which both hold a tied embedding."""
        return self.of("embedding")


_PLACED: WeakKeyDictionary[Fabric, dict[object, Groups]] = WeakKeyDictionary()
_MOST_PLACED = 256


def place(job: TrainingJob, fabric: Fabric) -> Groups:
    """Put every rank of a job on a GPU and name its groups; jobs placed alike share them.

    Raises PlanError where the placement asked for is impossible on this fabric, or takes a server that
    cannot join.
    """
    sizes = Sizes.of(job, fabric)
    used = domain_of(job, fabric)
    key = (sizes, job.layout.placement, job.servers, used)
    known = _PLACED.setdefault(fabric, {})
    if key not in known:
        if len(known) >= _MOST_PLACED:
            known.clear()
        order, notes = PLACEMENTS[job.layout.placement](job, fabric, sizes)
        gpus = allocated(job, fabric)
        grid = gpus[order].reshape(sizes.pipeline, sizes.replicas, sizes.tensor)
        check_joins(fabric, grid.reshape(-1), job.name, INSTEAD)
        known[key] = Groups(grid.astype(np.int32), fabric.server[: fabric.num_gpus], sizes, notes)
    return known[key]


def taken(job: TrainingJob, fabric: Fabric) -> Ints:
    """GPU ids that a job takes, in the order of its ranks."""
    return place(job, fabric).grid.reshape(-1)


def allocated(job: TrainingJob, fabric: Fabric) -> Ints:
    """GPU ids that a job may use, in the order that packed ranks fill them: of the servers that it names,
    else of all.  A job of fewer GPUs takes the first, or under `spread` some of every scalable unit."""
    used = domain_of(job, fabric)
    if job.servers is None and used == fabric.gpus_per_server:
        return np.arange(fabric.num_gpus, dtype=np.int32)
    server = fabric.server[: fabric.num_gpus]
    servers = range(fabric.num_servers) if job.servers is None else job.servers
    return np.concatenate([np.flatnonzero(server == s)[:used] for s in servers]).astype(np.int32)


def _experts(groups: Groups) -> Ints:
    """(P, K, E, F) GPU ids as experts see the ranks."""
    s = groups.sizes
    return groups.grid.reshape(s.pipeline, s.expert_replicas, s.expert, s.expert_tensor)


def _dense(groups: Groups) -> Ints:
    """(P, D, C, T) GPU ids."""
    s = groups.sizes
    return groups.grid.reshape(s.pipeline, s.data, s.context, s.tensor)


def _copies(groups: Groups) -> Ints:
    """(P, copies, shard, T) GPU ids."""
    s = groups.sizes
    return groups.grid.reshape(s.pipeline, s.instances, s.shard, s.tensor)


def _expert_copies(groups: Groups) -> Ints:
    """(P, copies, expert shard, E, F) GPU ids."""
    s = groups.sizes
    return groups.grid.reshape(s.pipeline, s.instances, s.expert_shard, s.expert, s.expert_tensor)


def _rows(grid: Ints, axis: int) -> Ints:
    """(groups, size): the ranks along one axis, for every place on the others in their order."""
    return np.moveaxis(grid, axis, -1).reshape(-1, grid.shape[axis])


def _local(groups: Groups) -> list[Ints]:
    """The parts of expert groups that lie in one server each, of two ranks or more."""
    found = []
    for row in _rows(_experts(groups), 2):
        servers = groups.server[row]
        found += [row[servers == s] for s in dict.fromkeys(servers.tolist())]
    return [part for part in found if len(part) > 1]


def _rails(groups: Groups) -> list[Ints]:
    """The parts of expert groups that have the same place in their servers, of two ranks or more; a group
    that lies on its servers in unequal parts stays whole."""
    found = []
    for row in _rows(_experts(groups), 2):
        servers = groups.server[row]
        parts = [row[servers == s] for s in dict.fromkeys(servers.tolist())]
        if len({len(part) for part in parts}) == 1:
            found += list(np.stack(parts, 1))
        else:
            found.append(row)
    return [part for part in found if len(part) > 1]


def _mirrored(groups: Groups) -> Ints:
    half = groups.sizes.pipeline // 2
    pairs = np.stack([groups.grid[:half], groups.grid[::-1][:half]])
    return _rows(pairs, 0)


_ROWS: dict[str, Callable[[Groups], Ints | list[Ints]]] = {
    "tp": lambda g: g.grid.reshape(-1, g.sizes.tensor),
    "cp": lambda g: _rows(_dense(g), 2),
    "ep": lambda g: _rows(_experts(g), 2),
    "ep_local": _local,
    "ep_rail": _rails,
    "etp": lambda g: _experts(g).reshape(-1, g.sizes.expert_tensor),
    "dp": lambda g: _rows(g.grid, 1),
    "expert_dp": lambda g: _rows(_experts(g), 1),
    "shard": lambda g: _rows(_copies(g), 2),
    "expert_shard": lambda g: _rows(_expert_copies(g), 2),
    "copies": lambda g: _rows(_copies(g), 1),
    "expert_copies": lambda g: _rows(_expert_copies(g), 1),
    "stage": lambda g: g.grid.reshape(g.sizes.pipeline, -1),
    "pp": lambda g: _rows(g.grid, 0),
    "embedding": lambda g: _rows(g.grid[[0, -1]], 0) if g.sizes.pipeline > 1 else [],
    "mirror": _mirrored,
}


def _packed(job: TrainingJob, fabric: Fabric, sizes: Sizes) -> tuple[Ints, tuple[str, ...]]:
    """Ranks fill servers in rank order."""
    return np.arange(sizes.pipeline * sizes.replicas * sizes.tensor, dtype=np.int32), ()


def _expert_across(job: TrainingJob, fabric: Fabric, sizes: Sizes) -> tuple[Ints, tuple[str, ...]]:
    """Consecutive data-parallel ranks go to consecutive servers, at the same place inside each.

    The slots (T neighbouring GPUs) of a stage's servers are walked place by place, all servers first;
    so E consecutive ranks sit on E different servers whenever the stage has that many.
    """
    tensor, pipeline, expert, data = sizes.tensor, sizes.pipeline, sizes.expert, sizes.replicas
    if expert == 1:
        return _packed(job, fabric, sizes)  # no expert group to lay out: context-parallel ranks stay together
    per_server = domain_of(job, fabric)
    if sizes.expert_tensor != tensor:
        raise PlanError(
            f"{job.name}: placement expert-across needs experts cut like the rest, but layout.expert_tensor "
            f"is {sizes.expert_tensor} and layout.tensor {tensor}; make them equal or use placement packed."
        )
    if tensor > per_server or (data * tensor) % per_server:
        raise PlanError(
            f"{job.name}: placement expert-across needs whole servers per pipeline stage, but a stage has "
            f"{data * tensor} GPUs and a server {per_server}; use placement packed or fewer stages."
        )
    servers = data * tensor // per_server
    if expert > servers:
        raise PlanError(
            f"{job.name}: placement expert-across puts the {expert} ranks of an expert group on different "
            f"servers, but a pipeline stage has only {servers}; lower layout.expert to at most {servers} "
            "or use placement packed."
        )
    slots = per_server // tensor
    gpu = np.arange(pipeline * data * tensor, dtype=np.int32).reshape(pipeline, servers, slots, tensor)
    order = np.ascontiguousarray(gpu.transpose(0, 2, 1, 3)).reshape(-1)
    straddling = sum(
        1 for first in range(0, data, expert) if first // servers != (first + expert - 1) // servers
    )
    if not straddling:
        return order, ()
    return order, (
        f"{servers} servers per stage are not a multiple of the expert group's {expert} ranks, "
        f"so {straddling} of {data // expert} expert groups of a stage sit on two rails instead of one.",
    )


def _spread(job: TrainingJob, fabric: Fabric, sizes: Sizes) -> tuple[Ints, tuple[str, ...]]:
    """Ranks fill servers in rank order, and consecutive servers come from different scalable units in turn.

    Data-parallel groups then cross the spines from their first neighbour on: what a scheduler that spreads
    jobs does, against `packed`.
    """
    per_server = domain_of(job, fabric)
    needed = sizes.pipeline * sizes.replicas * sizes.tensor
    gpus = allocated(job, fabric)
    servers = gpus[: len(gpus) // per_server * per_server].reshape(-1, per_server)
    unit = fabric.group[servers[:, 0]]
    seen: dict[int, int] = {}
    turn = []
    for index, one in enumerate(unit.tolist()):
        turn.append((seen.get(one, 0), one, index))
        seen[one] = seen.get(one, 0) + 1
    walk = [index for _, _, index in sorted(turn)]
    order: Ints = np.concatenate([np.arange(i * per_server, (i + 1) * per_server) for i in walk])
    order = order[:needed].astype(np.int32)
    if len(seen) > 1:
        return order, ()
    return order, ("all servers share one set of leaves, so placement spread is the same as packed.",)


PLACEMENTS: dict[str, Callable[[TrainingJob, Fabric, Sizes], tuple[Ints, tuple[str, ...]]]] = {
    "packed": _packed,
    "expert-across": _expert_across,
    "spread": _spread,
}
