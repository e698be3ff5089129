"""Muon: the momentum of every matrix is made orthogonal before it updates the weights.

Newton-Schulz steps of three products each run over whole matrices, so optimizer states are not cut into
equal pieces: with a distributed optimizer every data-parallel rank updates matrices of its own, and the step
ends with the rank that has most to do.  Embedding, head, norms and biases keep Adam.
Sources: Jordan et al., Muon (2024); Liu et al., Muon is Scalable for LLM Training (arXiv 2502.16982);
Megatron-LM d98e8a64, core/optimizer/emerging_optimizers.py and layer_wise_optimizer.py; Emerging-Optimizers
fd77292, orthogonalized_optimizers/muon_utils.py and orthogonalized_optimizer.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from heapq import heapify, heapreplace
from typing import NamedTuple

from railwright.collectives.prediction import Op
from railwright.errors import PlanError
from railwright.model.counts.matrices import Matrix, layer_matrices, prediction_matrices
from railwright.model.shape.architecture import Operator, Transformer
from railwright.spec.training import Layout, Muon, TrainingJob
from railwright.training.layers.communication import Prices
from railwright.training.layers.stages import StageShape
from railwright.training.layout.placement import GroupKind
from railwright.training.software.constants import constant
from railwright.training.software.hosted import updates_on_host

GATHERED = "momentum of Muon"
"""Purpose of what tensor-parallel ranks exchange of a matrix."""

ITERATION = "Newton-Schulz iteration"
"""What the largest matrix of a GPU takes while it is made orthogonal."""

ITERATED_BYTES = 4 + 8 + 6 + 6
"""HBM traffic of a weight around the iteration: norm read, divided, cast to 16 bits and back."""

UPDATED_BYTES = 8 + 12 + 16 + 12 + 6
"""The same of the update of a weight of this GPU's own: decay in place, momentum, two scalings of what came
out, master weight, 16-bit weight.  Each is a kernel of its own in fp32."""

PRODUCTS = 3
"""Of one step: X X', its square, and what they add up to times X."""

UPDATE_LAUNCHES = 10
"""Kernels of one matrix beside its products: those of ITERATED_BYTES and UPDATED_BYTES."""

ELEMENT = 2.0
"""Bytes of an element in the iteration: Megatron multiplies in 16 bits (muon_fp32_matmul_prec: medium)."""


class MatrixGroup(NamedTuple):
    """Matrices that one group of ranks shares: how many of each lie in a stage, and what cuts them.

    parts  tensor-parallel ranks; kind  their group; ranks  data-parallel ones that share states
    """

    matrices: tuple[tuple[Matrix, int], ...]
    parts: int
    kind: GroupKind
    ranks: int


def matrix_groups(
    arch: Transformer, layout: Layout, shape: StageShape, over: float, expert_over: float
) -> tuple[MatrixGroup, ...]:
    """The matrices of a stage, dense ones and experts apart."""
    found: Counter[Matrix] = Counter()
    for chunk in shape.chunks:
        for kind, layers in Counter(chunk.layers).items():
            for matrix in layer_matrices(arch, kind):
                found[matrix] += layers * matrix.count
        if chunk.head:
            for matrix in prediction_matrices(arch):
                found[matrix] += matrix.count
    dense = tuple((m, n) for m, n in found.items() if not m.expert)
    experts = tuple((m, n // layout.expert) for m, n in found.items() if m.expert)
    inside = layout.expert_cut
    groups = [MatrixGroup(dense, layout.tensor, "tp", round(over))]
    if experts:
        group: GroupKind = "tp" if inside == layout.tensor else "etp"
        groups.append(MatrixGroup(experts, inside, group, round(expert_over)))
    return tuple(groups)


def check_optimizer(job: TrainingJob) -> None:
    """Refuse what Muon cannot run with (PlanError): it needs whole matrices, on the GPU, in fp32."""
    if job.optimizer != "muon":
        return
    refused = {
        f"layout.zero {job.layout.zero} cuts matrices into pieces; choose 1, where each data-parallel rank "
        "updates matrices of its own, or 0": job.layout.zero >= 2,
        "lora trains thin adapters, for which it is not made; choose optimizer adam": job.lora is not None,
        "layout.offload optimizer runs Adam on the host; leave 'optimizer' out of it": updates_on_host(job),
        f"moment_dtype {job.moment_dtype} is Adam's; its momentum is fp32": job.moment_dtype != "fp32",
        f"master {job.master} is Adam's; its master weights are fp32": job.master != "fp32",
    }
    for reason, applies in refused.items():
        if applies:
            raise PlanError(f"{job.name}: optimizer muon updates whole matrices: {reason}.")


def on_gpu(matrix: Matrix, parts: int) -> float:
    """Weights of a matrix on one tensor-parallel rank."""
    return matrix.size / (parts if matrix.cut else 1)


def iterated(matrix: Matrix, parts: int, mode: str) -> tuple[float, float]:
    """The sides of what a rank makes orthogonal, the one that is squared first.

    mode  duplicated: the whole matrix on every rank; blockwise: a rank's block on its own; distributed: a
          rank's block, whose squares are summed over ranks, along the side that is not cut
    """
    rows, columns = float(matrix.rows), float(matrix.columns)
    if not matrix.cut or parts == 1 or mode == "duplicated":
        return min(rows, columns), max(rows, columns)
    if mode == "distributed":
        return (columns, rows / parts) if matrix.cut == "rows" else (rows, columns / parts)
    block = (rows / parts, columns) if matrix.cut == "rows" else (rows, columns / parts)
    return min(block), max(block)


def operators(matrix: Matrix, parts: int, muon: Muon) -> tuple[Operator, ...]:
    """What one GPU runs for one matrix: the products of one step, which it runs `muon.steps` times, and what
    passes over its elements."""
    short, long = iterated(matrix, parts, muon.tp_mode)
    moved = ITERATED_BYTES * short * long + UPDATED_BYTES * on_gpu(matrix, parts)
    return (
        _product("gram", short, short, long),
        _product("square", short, short, short),
        _product("apply", short, long, short),
        Operator("muon update", "memory", 0.0, moved, "fp32", phase="optimizer", launches=UPDATE_LAUNCHES),
    )


def _product(name: str, m: float, n: float, k: float) -> Operator:
    sides = (max(round(m), 1), max(round(n), 1), max(round(k), 1))
    moved = ELEMENT * (m * k + k * n + m * n)
    return Operator(f"muon {name}", "gemm", 2.0 * m * n * k, moved, "bf16", *sides, phase="optimizer")


@lru_cache(maxsize=4096)
def spread(group: MatrixGroup) -> tuple[tuple[int, ...], float]:
    """Matrices of the rank with most to do, as many of each as it has; weights of the one with most of them.

    Longest first, each to the rank with least to do: the larger side times the square of the smaller one, of
    the block that a rank holds (LayerWiseDistributedOptimizer, _ns_compute_cost).
    """
    sized = []
    for place, (matrix, count) in enumerate(group.matrices):
        rows = matrix.rows / (group.parts if matrix.cut == "rows" else 1)
        columns = matrix.columns / (group.parts if matrix.cut == "columns" else 1)
        sized.append((max(rows, columns) * min(rows, columns) ** 2, place, rows * columns, count))
    loads = [(0.0, rank) for rank in range(group.ranks)]
    counts = [[0] * len(group.matrices) for _ in range(group.ranks)]
    weights = [0.0] * group.ranks
    for cost, place, size, count in sorted(sized, key=lambda one: (-one[0], one[1])):
        # all of many alike but the last one or two go round evenly
        even = max(count // group.ranks - 1, 0)
        if even:
            loads = [(load + even * cost, rank) for load, rank in loads]
            for rank in range(group.ranks):
                counts[rank][place] += even
                weights[rank] += even * size
        heapify(loads)
        for _ in range(count - even * group.ranks):
            load, rank = loads[0]
            heapreplace(loads, (load + cost, rank))
            counts[rank][place] += 1
            weights[rank] += size
    busiest = max(loads)[1]
    return tuple(counts[busiest]), max(weights)


class Weights(NamedTuple):
    """Weights in matrices of one GPU of a stage; fullest: of them the states of the fullest data-parallel
    rank."""

    dense: float
    expert: float
    fullest: float


def weights_of(groups: tuple[MatrixGroup, ...]) -> Weights:
    """How many weights of a stage Muon updates."""
    dense, expert = (
        sum(on_gpu(m, g.parts) * count for g in groups for m, count in g.matrices if m.expert is wanted)
        for wanted in (False, True)
    )
    return Weights(dense, expert, sum(spread(g)[1] for g in groups))


def iteration_bytes(groups: tuple[MatrixGroup, ...], mode: str) -> float:
    """Peak beside states while the largest matrix is made orthogonal. [byte]

    The momentum as it is (gathered: its parts and the whole), its normal form in fp32 and 16 bits, or in 16
    bits twice with two squares.
    """

    def peak(matrix: Matrix, parts: int) -> float:
        short, long = iterated(matrix, parts, mode)
        gathered = 8.0 if matrix.cut and parts > 1 and mode == "duplicated" else 0.0
        return gathered * matrix.size + max(6.0 * short * long, 4.0 * short * long + 4.0 * short**2)

    return max((peak(matrix, g.parts) for g in groups for matrix, _ in g.matrices), default=0.0)


class Exchanged(NamedTuple):
    """A collective of tensor-parallel ranks in an optimizer's step, so many times one after the other.

    size  as `Prices` have it [byte]; seconds  of one of them
    """

    purpose: str
    op: Op
    size: float
    seconds: float
    times: int


class Update(NamedTuple):
    """An optimizer's step on the GPU: what it computes [s], and what its tensor-parallel ranks exchange."""

    compute: float
    exchanged: tuple[Exchanged, ...] = ()

    @property
    def seconds(self) -> float:
        """All of it. [s]"""
        return self.compute + exchange_time(self.exchanged)


def exchange_time(exchanged: tuple[Exchanged, ...]) -> float:
    """How long collectives take, one after the other. [s]"""
    return sum(one.seconds * one.times for one in exchanged)


def muon_update(
    job: TrainingJob,
    groups: tuple[MatrixGroup, ...],
    prices: Prices,
    timed: Callable[[Operator], float],
    host: float,
) -> Update:
    """The update of all matrices by the rank that has most to do.

    host  launching one matrix [s]: kernels of small ones take less time than that
    """
    compute = 0.0
    exchanged: list[Exchanged] = []
    for group in groups:
        for (matrix, _), count in zip(group.matrices, spread(group)[0], strict=True):
            if count:
                *products, update = operators(matrix, group.parts, job.muon)
                ran = job.muon.steps * sum(map(timed, products)) + timed(update)
                compute += count * max(ran, host)
                exchanged += _exchanged(matrix, count, group, job.muon, prices)
    return Update(compute, tuple(exchanged))


def _exchanged(matrix: Matrix, count: int, group: MatrixGroup, muon: Muon, prices: Prices) -> list[Exchanged]:
    """What tensor-parallel ranks exchange of alike matrices: the momentum in fp32, or the square of each
    step."""
    if not matrix.cut or group.parts == 1 or muon.tp_mode == "blockwise":
        return []
    purpose, size = f"{group.kind} {GATHERED}, {matrix.name}", 4.0 * matrix.size
    op: Op = "all_gather"
    if muon.tp_mode == "distributed":
        op, size = "all_reduce", ELEMENT * iterated(matrix, group.parts, muon.tp_mode)[0] ** 2
        count *= muon.steps
    return [Exchanged(purpose, op, size, prices.time("tp", purpose, op, size, group.kind), count)]


def launching(steps: int, cpu: float, factor: float) -> float:
    """Host time to launch the kernels of one matrix: one call, then operations in a row (`host`). [s]

    cpu  time of this CPU over that of the sources'; factor  of the job's era, 0 where launches take no time
    """
    if factor == 0:
        return 0.0
    launches = UPDATE_LAUNCHES + PRODUCTS * steps
    return cpu * constant("host_operation_seconds") * (factor + launches - 1)
