"""What a search says of layouts that its space did not hold."""

from __future__ import annotations

from railwright.fabric.graph import Fabric
from railwright.model.shape.architecture import Transformer
from railwright.search.space.axes import SERVERS, Space, whole_servers
from railwright.search.training.result import Candidate
from railwright.spec.training import TrainingJob
from railwright.training.checks.experts import beyond_reach
from railwright.training.layers.stages import largest_piece
from railwright.training.layout.placement import place
from railwright.training.layout.sizes import data_parallel, domain_of
from railwright.units import show_time

EXPOSED = 0.01
"""Share of a step from which exchange of gradients and parameters is worth another look."""


def untold(best: Candidate, arch: Transformer, space: Space, fabric: Fabric, lean: bool) -> tuple[str, ...]:
    """Axes that were not tried and may better the best layout, and what of `expert_nodes` counts for nothing.

    lean  whether the leanest was asked for, which copies are not
    """
    groups = () if lean else _groups(best, space, fabric)
    beyond = beyond_reach(best.job, arch, place(best.job, fabric).servers("ep"))
    return (*_some_layers(best.job, arch, space), *groups, *beyond)


def _some_layers(best: TrainingJob, arch: Transformer, space: Space) -> tuple[str, ...]:
    """That fewer layers could be computed again, where the best layout does so of all and none were tried;
    torchtitan cannot.

    best  the job with the best layout
    """
    layout = best.layout
    every = layout.recompute == "full" and layout.recompute_layers is None
    if not every or space.fsdp or space.of_axis("recompute_layers") or largest_piece(arch, layout) == 1:
        return ()
    return (
        "All layers are computed again; with recompute_layers: [null, quarters] in its space the search "
        "tries a quarter, a half and three quarters of those of each stage too.",
    )


def _groups(best: Candidate, space: Space, fabric: Fabric) -> tuple[str, ...]:
    """That groups of ranks could each have a copy of what all of them share, where the exchange shows and
    none were tried; for torchtitan they always are."""
    job, data = best.job, data_parallel(best.job, fabric)
    shown = best.step.exposed("dp")
    shares = job.layout.zero > 0 and job.layout.shard is None and job.optimizer == "adam"
    if not shares or space.fsdp or space.of_axis("shard") or shown < EXPOSED * best.time:
        return ()
    if not whole_servers(best.setting, data, domain_of(job, fabric)):
        return ()
    return (
        f"Gradients and parameters expose {show_time(shown)} of {show_time(best.time)}; with shard: [null, "
        f"{SERVERS}] in its space the search tries groups of whole servers with copies of their own too.",
    )
