"""Embedding tables over GPUs: which GPU looks up what, and what it sends.

Legend: a domain is what holds a piece of a table by rows: one GPU, one server, or all GPUs.  B samples per
batch, W columns of a piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from railwright.errors import PlanError
from railwright.model.operators.kernels import ELEMENT
from railwright.model.recommendation.dlrm import Recommender
from railwright.model.recommendation.operators import (
    INDEX_BYTES,
    ROW_STATE_BYTES,
    STATE_BYTES,
    Held,
    distinct_rows,
)
from railwright.spec.recommendation import RecommendationJob
from railwright.training.layout.divisors import divisors, working
from railwright.units import GIB
from railwright.units import number as number_of

TABLE_BYTES = {"fp32": 4.0, "fp16": 2.0}

GRADIENT_BYTES = {"bf16": 4.0, "fp16": 2.0}
"""Bytes of a reduced gradient, by the job's dtype: as in `communication.gradient_type`."""

BATCHES = {True: 2, False: 1}
"""Batches whose indices a GPU holds, where those of the next one are exchanged beside this one, or not.
Source: TorchRec, distributed/planner/shard_estimators.py, calculate_pipeline_io_cost (TRAIN_SPARSE_DIST)."""


@dataclass(frozen=True)
class Piece:
    """A part of a table: some rows of some of its columns, and the lookups per sample that meet it."""

    table: int
    rows: float
    width: float
    lookups: float


@dataclass(frozen=True)
class Sharding:
    """Where the tables are.

    domain_gpus  GPUs that share a piece by rows
    busiest      what a GPU of the busiest domain holds and does for a batch
    sent         columns whose sums the domain with the most of them sends
    placed       columns of all tables that are not on every GPU
    arriving     sums of them that a sample gets from all domains, pieces by rows apart; 0 from one
    indices      of one sample that go to other GPUs; those of replicated tables do not
    received     of one sample those that the GPU with most of them looks up for others
    memory       tables and optimiser state on the fullest GPU, and gradients of replicated ones [byte]
    buffers      what it holds of exchanges: indices, and the sums of its lookups or their gradients [byte]
    replicated   numbers in tables that every GPU holds
    balance      busiest domain's memory traffic over the mean
    """

    domain_gpus: int
    busiest: Held
    sent: float
    placed: float
    arriving: float
    indices: float
    received: float
    memory: float
    buffers: float
    replicated: float
    balance: float


def domain_sizes(job: RecommendationJob, gpus: int, per_server: int) -> tuple[int, ...]:
    """GPUs of a domain, as the job's sharding says; 'auto' can have either of two."""
    if job.sharding == "auto":
        return tuple(dict.fromkeys((min(per_server, gpus), 1)))
    within = {"row-wise": gpus, "table-row-wise": per_server}.get(job.sharding, 1)
    return (min(within, gpus),)


def shard(
    job: RecommendationJob, model: Recommender, gpus: int, within: int, room: float, *, cut: bool = False
) -> Sharding:
    """Place the tables of a job over `gpus` GPUs, the heaviest first, each where least is to do.

    within  GPUs of a domain (`domain_sizes`)
    room    bytes of a GPU that tables and what is exchanged of them may fill
    cut     tables with more lookups than a domain's mean are in pieces by rows, over several domains
    Raises PlanError where they do not fit, or where columns cannot be cut.
    """
    number = TABLE_BYTES[job.table_dtype]
    kept = number + STATE_BYTES[job.optimizer]
    small = [t for t, r in enumerate(model.rows) if r * model.width * number <= job.replicate_below]
    domains = gpus // within
    pieces = _pieces(job, model, [t for t in range(len(model.rows)) if t not in set(small)], domains, cut)
    state = ROW_STATE_BYTES[job.optimizer]
    batch = float(job.global_batch)
    named = INDEX_BYTES * BATCHES[job.overlap] / within
    sums = ELEMENT if gpus > 1 else 0.0

    def memory(piece: Piece) -> float:
        return piece.rows * (piece.width * kept + state) / within

    def buffers(piece: Piece) -> float:
        return batch * (piece.width * sums + piece.lookups * named)

    reduced = 2.0 * GRADIENT_BYTES[job.dtype]  # the gradient, and the buffer of its all-reduce
    copies = sum(model.rows[t] * (model.width * (kept + reduced) + state) for t in small)
    if copies > room:
        raise PlanError(
            f"{job.name}: the {number_of(len(small), 'table')} below replicate_below "
            f"{'takes' if len(small) == 1 else 'take'} {copies / GIB:.1f} GiB on every GPU, more than the "
            f"{room / GIB:.1f} GiB that each has for tables; lower replicate_below."
        )
    found = _place(job, pieces, memory, buffers, domains, room - copies)
    placed = [_joined(held) if cut else held for held in found]
    fullest = max(placed, key=lambda held: sum(memory(p) + buffers(p) for p in held))
    helds = [_held(held, batch, within) for held in placed]
    traffic = [h.values * (number + 2.0) + 2.0 * h.touched * kept for h in helds]
    columns = [sum(p.width for p in held) for held in placed]
    most = max(range(domains), key=lambda d: (traffic[d], -d))
    mean = sum(traffic) / domains
    return Sharding(
        domain_gpus=within,
        busiest=_with_copies(helds[most], model, small, batch / gpus),
        sent=max(columns),
        placed=float((len(model.rows) - len(small)) * model.width),
        arriving=sum(columns) if domains > 1 else 0.0,
        indices=sum(p.lookups for p in pieces),
        received=max(sum(p.lookups for p in held) for held in placed) / within,
        memory=copies + sum(memory(p) for p in fullest),
        buffers=sum(buffers(p) for p in fullest),
        replicated=float(sum(model.rows[t] * model.width for t in small)),
        balance=traffic[most] / mean if mean else 1.0,
    )


def _pieces(
    job: RecommendationJob, model: Recommender, tables: Sequence[int], domains: int, cut: bool
) -> list[Piece]:
    """The tables, or their parts where the job asks for columns or those with many lookups are cut."""
    if job.sharding == "column-wise":
        if model.width % job.column_shards:
            raise PlanError(
                f"{job.name}: tables of {model.width} columns cannot be cut into column_shards = "
                f"{job.column_shards} equal parts; "
                f"{working(divisors(model.width))}."
            )
        each = model.width / job.column_shards
        return [
            Piece(t, model.rows[t], each, model.lookups[t]) for t in tables for _ in range(job.column_shards)
        ]
    mean = sum(model.lookups[t] for t in tables) / domains
    found = []
    for t in tables:
        parts = 1
        if cut:
            parts = min(domains, model.rows[t], max(1, math.ceil(model.lookups[t] / mean - 1e-9)))
        found += [Piece(t, model.rows[t] / parts, model.width, model.lookups[t] / parts)] * parts
    return found


def _place(
    job: RecommendationJob,
    pieces: Sequence[Piece],
    memory: Callable[[Piece], float],
    buffers: Callable[[Piece], float],
    domains: int,
    room: float,
) -> list[list[Piece]]:
    """Longest processing time first, among the domains that have room; where that leaves no room for a large
    piece with few lookups, the largest first.

    memory, buffers  of a piece on a GPU [byte]
    """
    weight = [p.lookups * p.width for p in pieces]
    size = [memory(p) + buffers(p) for p in pieces]
    by_work = sorted(range(len(pieces)), key=lambda i: (-weight[i], -size[i], i))
    placed, left = _fill(by_work, weight, size, domains, room)
    if left is not None:
        placed, still = _fill(sorted(by_work, key=lambda i: -size[i]), weight, size, domains, room)
        if still is not None:
            raise _no_room(job, pieces[left], size[left], buffers(pieces[left]), room, domains)
    return [[pieces[i] for i in held] for held in placed]


def _fill(
    order: Sequence[int], weight: Sequence[float], size: Sequence[float], domains: int, room: float
) -> tuple[list[list[int]], int | None]:
    """Pieces one by one to the domain with least to do that has room, and the first that found none."""
    load, full = [0.0] * domains, [0.0] * domains
    placed: list[list[int]] = [[] for _ in range(domains)]
    for i in order:
        fits = [d for d in range(domains) if full[d] + size[i] <= room]
        if not fits:
            return placed, i
        best = min(fits, key=lambda d: (load[d], full[d], d))
        load[best] += weight[i]
        full[best] += size[i]
        placed[best].append(i)
    return placed, None


def _joined(held: Sequence[Piece]) -> list[Piece]:
    """Pieces by rows of one table that came to one domain: as one, whose sums are sent once."""
    found: dict[int, Piece] = {}
    for p in held:
        had = found.get(p.table, Piece(p.table, 0.0, p.width, 0.0))
        found[p.table] = replace(had, rows=had.rows + p.rows, lookups=had.lookups + p.lookups)
    return list(found.values())


def _no_room(
    job: RecommendationJob, piece: Piece, size: float, buffers: float, room: float, domains: int
) -> PlanError:
    """Which table does not fit, and what of the job would have to change.

    domains  places that were tried; of one there is nothing to share rows with
    """
    if 2.0 * buffers > size:
        ways = [f"a global_batch below {job.global_batch}"]
        ways += ["more GPUs"] if job.sharding != "row-wise" else []
    else:
        ways = ["more GPUs"]
        ways += ["sharding 'row-wise'"] if job.sharding != "row-wise" and domains > 1 else []
        ways += ["table_dtype 'fp16'"] if job.table_dtype == "fp32" else []
        ways += ["optimizer 'rowwise-adagrad'"] if job.optimizer == "adagrad" else []
    return PlanError(
        f"{job.name}: table {piece.table + 1}, or its piece where it is cut, takes {size / GIB:.1f} GiB on "
        f"a GPU ({buffers / GIB:.1f} GiB of them indices and sums of its lookups), and beside the tables "
        f"placed before it none has that left of {room / GIB:.1f} GiB; "
        f"take {' or '.join(ways)}."
    )


def _held(pieces: Sequence[Piece], batch: float, within: int) -> Held:
    """What one GPU of a domain does with its part of the rows."""
    lookups = [batch * p.lookups / within for p in pieces]
    distinct = [distinct_rows(p.rows / within, n) for p, n in zip(pieces, lookups, strict=True)]
    return Held(
        rows=sum(p.rows for p in pieces) / within,
        lookups=sum(lookups),
        values=sum(n * p.width for p, n in zip(pieces, lookups, strict=True)),
        distinct=sum(distinct),
        touched=sum(n * p.width for p, n in zip(pieces, distinct, strict=True)),
        pooled=batch * sum(p.width for p in pieces),
    )


def _with_copies(held: Held, model: Recommender, small: Sequence[int], samples: float) -> Held:
    """And its own samples' lookups in the tables that every GPU holds; those are updated with the MLPs."""
    lookups = samples * sum(model.lookups[t] for t in small)
    return Held(
        held.rows + sum(model.rows[t] for t in small),
        held.lookups + lookups,
        held.values + lookups * model.width,
        held.distinct,
        held.touched,
        held.pooled + samples * model.width * len(small),
    )
