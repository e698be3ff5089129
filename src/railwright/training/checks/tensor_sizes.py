"""Into how many parts tensor parallelism can cut a model, a server and a job's GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.mixers import check_mixer
from railwright.model.shape.pattern import has_attention, has_dense
from railwright.spec.training import TrainingJob
from railwright.training.checks.experts import working_cuts
from railwright.training.layout.divisors import MOST, working
from railwright.training.layout.sizes import domain_of, job_gpus


class Width(NamedTuple):
    """Something of a model that is cut into equal parts, and the field of the layout that says how many."""

    what: str
    width: int
    field: str
    parts: int


def check_tensor(job: TrainingJob, arch: Transformer, fabric: Fabric) -> None:
    """Refuse tensor parallelism that cuts a model unevenly (PlanError)."""
    tensor = job.layout.tensor
    for what, width, field, parts in _uneven(arch, tensor, job.layout.expert_tensor):
        fitting = (
            working_cuts(arch, job_gpus(job, fabric) // job.layout.pipeline, job.layout.expert)
            if field == "expert_tensor"
            else working_sizes(job, arch, fabric)
        )
        raise PlanError(
            f"{job.name}: the {width} {what} of {arch.name} cannot be cut into layout.{field} = {parts} "
            f"equal parts; {working(fitting)}."
        )
    if _splits_heads(arch, tensor):
        raise PlanError(
            f"{job.name}: layout.tensor = {tensor} is not a multiple of the {arch.kv_heads} key-value heads "
            f"of {arch.name}, so they can be neither cut nor replicated evenly; "
            f"{working(working_sizes(job, arch, fabric))}."
        )


def working_sizes(job: TrainingJob, arch: Transformer, fabric: Fabric) -> list[int]:
    """Values of `layout.tensor` that no check of tensor parallelism refuses, the rest of the job as it is.

    Where the rest leaves none, because pipeline, context or experts do not divide the GPUs, it is not asked.
    """
    layout, gpus, domain = job.layout, job_gpus(job, fabric), domain_of(job, fabric)

    def divides(tensor: int) -> bool:
        return gpus % (tensor * layout.context * layout.pipeline) == 0

    def spreads_experts(tensor: int) -> bool:
        return gpus // layout.pipeline // (layout.expert_tensor or tensor) % layout.expert == 0

    sizes = [
        size
        for size in range(1, MOST + 1)
        if cuts_evenly(arch, size, layout.expert_tensor) and not straddles(size, domain, gpus)
    ]
    for fits in (divides, spreads_experts):
        sizes = [size for size in sizes if fits(size)] or sizes
    return sizes


def cuts_evenly(arch: Transformer, tensor: int, expert_tensor: int | None) -> bool:
    """Whether all layers of a model can be cut into so many parts; experts into their own number of them."""
    uneven = (one.field for one in _uneven(arch, tensor, expert_tensor))
    if _splits_heads(arch, tensor) or "tensor" in uneven:
        return False
    try:
        if arch.linear is not None:
            check_mixer(arch, tensor)
    except PlanError:
        return False
    return True


def straddles(tensor: int, domain: int, gpus: int) -> bool:
    """Whether some group of so many GPUs would lie on part of one server and part of another.

    domain  GPUs of a server that the job uses
    """
    if tensor > domain:
        return tensor % domain > 0
    return gpus > domain and domain % tensor > 0


def _uneven(arch: Transformer, tensor: int, expert_tensor: int | None) -> Iterator[Width]:
    """The widths of a model that do not come out even."""
    return (one for one in _widths(arch, tensor, expert_tensor) if one.width % one.parts)


def _widths(arch: Transformer, tensor: int, expert_tensor: int | None) -> Iterator[Width]:
    if has_attention(arch):
        yield Width("attention heads", arch.heads, "tensor", tensor)
    if arch.window_heads:
        yield Width("attention heads of windowed layers", arch.window_heads, "tensor", tensor)
    if arch.kv_heads > tensor and arch.attention == "gqa":
        yield Width("key-value heads", arch.kv_heads, "tensor", tensor)
    if has_dense(arch):
        yield Width("MLP width", arch.ffn, "tensor", tensor)
    if arch.is_moe:
        field = "expert_tensor" if expert_tensor else "tensor"
        yield Width("expert width", arch.expert_ffn, field, expert_tensor or tensor)


def _splits_heads(arch: Transformer, tensor: int) -> bool:
    """Whether ranks would hold key-value heads that are neither whole nor copied equally often."""
    return arch.attention == "gqa" and tensor > arch.kv_heads and tensor % arch.kv_heads > 0
