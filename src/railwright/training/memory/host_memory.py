"""Host memory: what all ranks of one host put there, and whether the host has as much.

PyTorch pins host memory in powers of two (CachingHostAllocator.h, `PowerOf2Ceil`), tensor by tensor, so a
pinned tensor takes up to twice its bytes; JAX's host memory is not rounded.
Pinned are fp32 masters and gradients of an optimizer on the host (Megatron-LM d98e8a64, core/optimizer/
cpu_offloading/hybrid_optimizer.py; PyTorch, FSDP2's CPUOffloadPolicy and fsdp/_fully_shard/
_fsdp_collectives.py, foreach_reduce; DeepSpeed, zero/stage_1_and_2.py) and activations (Transformer Engine
d0067d0d, pytorch/cpu_offload.py); Adam's moments are plain tensors in fp32 (torch.optim.AdamW on a CPU),
whatever the types of states on a GPU.
Not counted: the processes themselves, data loaders and the page cache.
"""

from __future__ import annotations

from collections import Counter
from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

from railwright.catalog.parts import HOST_SHARE, Server
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.model.operators.kernels import ELEMENT
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer
from railwright.spec.training import Layout, TrainingJob
from railwright.training.lanes.result import HostMemory
from railwright.training.layers.stages import StageShape, shapes_of
from railwright.training.layout.placement import Groups, place
from railwright.training.layout.sizes import Sizes
from railwright.training.memory.activations import layer_kept_parts, layers_away
from railwright.training.memory.peak import held_passes, peak_memory
from railwright.training.memory.stage_weights import weight_products
from railwright.training.memory.states import frozen_shard
from railwright.training.software.eras import era_of
from railwright.training.software.formats import frozen_bytes
from railwright.training.software.hosted import updates_on_host, weights_on_host
from railwright.units import GIB, number

FP32 = 4.0
"""Bytes of a master weight, a gradient or a moment on the host."""


def host_memory(job: TrainingJob, arch: Transformer, fabric: Fabric, server: Server) -> HostMemory | None:
    """What the fullest host holds of a job that passed `plan.check`; None where nothing is offloaded."""
    if not job.layout.offload:
        return None
    shapes = shapes_of(job, arch)
    stages = [_of_rank(job, arch, fabric, s, shape) for s, shape in enumerate(shapes)]
    names = list(dict.fromkeys(name for parts in stages for name in parts))
    each = np.array([[parts.get(name, 0.0) for name in names] for parts in stages])
    ranks_hp = ranks_on_hosts(place(job, fabric), fabric, server)
    held = ranks_hp @ each
    fullest = int(held.sum(1).argmax())
    parts = dict(zip(names, held[fullest].tolist(), strict=True))
    return HostMemory(parts, sum(parts.values()), server.memory, int(ranks_hp[fullest].sum()))


def check_host(
    job: TrainingJob, arch: Transformer, fabric: Fabric, server: Server, hbm: float
) -> HostMemory | None:
    """`host_memory`, or PlanError with the parts, the excess and what would fit.

    hbm  memory of a GPU [byte]
    """
    found = host_memory(job, arch, fabric, server)
    if found is None or not found.capacity or found.total <= found.capacity:
        return found
    parts = ", ".join(f"{n} {size / GIB:.0f}" for n, size in sorted(found.parts.items(), key=lambda p: -p[1]))
    put = f"{number(found.ranks, 'rank')} on one host put{'s' if found.ranks == 1 else ''}"
    raise PlanError(
        f"{job.name}: its {put} {found.total / GIB:.0f} GiB into host memory, "
        f"{(found.total - found.capacity) / GIB:.0f} GiB more than the {found.capacity / GIB:.0f} GiB of a "
        f"{server.name} ({parts}); {_help(job, arch, fabric, server, hbm)}"
    )


def fits_host(job: TrainingJob, arch: Transformer, fabric: Fabric, server: Server) -> bool:
    """Whether a host has room for what its ranks put there; also where nothing is known of it."""
    if not job.layout.offload or not server.memory:
        return True
    found = host_memory(job, arch, fabric, server)
    return found is None or found.total <= server.memory


def host_warnings(found: HostMemory | None, server: Server) -> tuple[str, ...]:
    """What is to be said of host memory that is nearly full, or of which nothing is known."""
    if found is None:
        return ()
    if not found.capacity:
        return (
            f"offload puts {found.total / GIB:.0f} GiB into the memory of a host, and nothing is known of "
            f"that of a '{server.name}'; say it in a catalogue of yours (`memory`).",
        )
    if found.total <= HOST_SHARE * found.capacity:
        return ()
    return (
        f"offload fills {found.total / found.capacity:.0%} of a host's {found.capacity / GIB:.0f} GiB; "
        f"firmware, kernel and the processes themselves want some {100 * (1 - HOST_SHARE):.0f} %.",
    )


def ranks_on_hosts(groups: Groups, fabric: Fabric, server: Server) -> NDArray[np.float64]:
    """(H, P) ranks of every pipeline stage on every host that has any."""
    grid = groups.grid
    inside = grid % fabric.gpus_per_server * server.hosts // fabric.gpus_per_server
    host_pdt = groups.server[grid] * server.hosts + inside
    stage_pdt = np.broadcast_to(np.arange(len(grid))[:, None, None], grid.shape)
    _, at = np.unique(host_pdt.ravel(), return_inverse=True)
    counts = np.zeros((int(at.max()) + 1, len(grid)))
    np.add.at(counts, (at, stage_pdt.ravel()), 1)
    return counts


def pinned(size: float) -> float:
    """What PyTorch pins for a tensor. [byte]

    size  of the tensor [byte]
    """
    return 2.0 ** ceil(log2(size)) if size > 0 else 0.0


def _of_rank(
    job: TrainingJob, arch: Transformer, fabric: Fabric, stage: int, shape: StageShape
) -> dict[str, float]:
    """What one rank of a stage has on the host. [byte]"""
    parts: dict[str, float] = {}
    if updates_on_host(job):
        parts |= _states(job, arch, fabric, shape)
    if "activations" in job.layout.offload:
        away = [_away(job, arch, chunk.layers) for chunk in shape.chunks]
        moments = held_passes(job, fabric)[stage]
        most = max((sum(n * size for n, size in zip(held, away, strict=True)) for held in moments), default=0)
        parts["activations"] = float(most)
    return {name: size for name, size in parts.items() if size}


def _states(job: TrainingJob, arch: Transformer, fabric: Fabric, shape: StageShape) -> dict[str, float]:
    over, of_experts = Sizes.of(job, fabric).over(job.layout.zero)
    trained = shape.trained_shard(over, of_experts)
    rounded = _rounding(job, arch, shape, over, trained)
    updated = {"gradients": rounded * FP32 * trained, "moments": 2 * FP32 * trained}
    engine = era_of(job).zero_engine
    if engine and job.layout.zero == 3:
        updated["gradients"] *= (FP32 + ELEMENT) / FP32  # in 16 bits, and widened for the step
    if not weights_on_host(job):
        return {"master weights": rounded * FP32 * trained} | updated
    frozen = frozen_shard(job, shape, frozen_bytes(job), over, of_experts)
    if engine:
        weights = rounded * (ELEMENT * trained + frozen)
        return {"master weights": rounded * FP32 * trained, "weights": weights} | updated
    return {"weights": rounded * (FP32 * trained + frozen)} | updated


def _rounding(job: TrainingJob, arch: Transformer, shape: StageShape, over: int, shard: float) -> float:
    """Pinned bytes over bytes of the tensors of a rank's shard.

    FSDP cuts every weight, Megatron's distributed optimizer a buffer of all, so that a rank has whole weights
    or, of one that is larger than its share, that share; DeepSpeed has one tensor.
    """
    if era_of(job).allocator == "jax":
        return 1.0
    pinning = asked = 0.0
    for weight, count in _weights(job, arch, shape):
        piece = weight / over if job.layout.zero == 3 else min(weight, shard)
        piece = FP32 * (shard if era_of(job).deepspeed or era_of(job).zero_engine else piece)
        pinning += weight * count * pinned(piece) / piece
        asked += weight * count
    return pinning / asked if asked else 1.0


def tensors_of(job: TrainingJob, arch: Transformer, shape: StageShape, shard: float) -> float:
    """How many tensors a rank's shard of a stage consists of, in the mean.

    shard  parameters of it
    """
    whole = shape.trained_dense_total + shape.trained_expert_total
    pieces = sum(count * weight / min(weight, shard) for weight, count in _weights(job, arch, shape))
    return max(pieces * shard / whole, 1.0) if whole else 1.0


def _weights(job: TrainingJob, arch: Transformer, shape: StageShape) -> list[tuple[float, int]]:
    """Sizes of the weights of a stage on one GPU that train, and how many it has of each."""
    if shape.adapters is not None:
        return [(size, 1) for chunk in shape.adapters for size in chunk if size]
    found = [(end, 1) for end in (shape.embedding, shape.head) if end]
    for kind, layers in Counter(k for chunk in shape.chunks for k in chunk.layers).items():
        products = weight_products(job, arch, kind)
        found += [(float(op.m * op.n), layers * op.batch) for op in products if op.m * op.n]
    return found


def _away(job: TrainingJob, arch: Transformer, layers: tuple[Layer, ...]) -> float:
    """What one forward pass of a chunk has on the host. [byte]"""
    jax = era_of(job).allocator == "jax"
    sent = Counter(layers[: layers_away(job, len(layers))])
    kept = {kind: layer_kept_parts(job, arch, kind, job.layout.recompute).values() for kind in sent}
    sizes = {kind: [size if jax else pinned(size) for size in found] for kind, found in kept.items()}
    return sum(count * sum(sizes[kind]) for kind, count in sent.items())


def _help(job: TrainingJob, arch: Transformer, fabric: Fabric, server: Server, hbm: float) -> str:
    """Changes that fit the host and the GPU, found by trying them."""
    layout, tried = job.layout, dict[str, dict[str, object]]()
    if layout.zero == 0 and updates_on_host(job):
        tried["zero: 1"] = {"zero": 1}
    if "activations" in layout.offload:
        layers = layout.offload_layers or arch.layers
        for fewer in (layers // 2**n for n in range(1, layers.bit_length())):
            tried[f"offload_layers: {fewer}"] = {"offload_layers": fewer}
    for one in layout.offload:
        rest = tuple(other for other in layout.offload if other != one)
        tried[f"offload: [{', '.join(rest)}]"] = {"offload": rest}
    fitting: list[str] = []
    for label, change in tried.items():
        other = job.model_copy(update={"layout": Layout(**{**layout.model_dump(), **change})})
        if label.startswith("offload_layers") and any(f.startswith("offload_layers") for f in fitting):
            continue
        if not fits_host(other, arch, fabric, server):
            continue
        if peak_memory(other, arch, fabric, hbm).total <= hbm:
            fitting.append(label)
    if fitting:
        return f"what would fit: {'; '.join(fitting)}."
    return "use more servers, or a catalogue of yours with hosts of more memory."
