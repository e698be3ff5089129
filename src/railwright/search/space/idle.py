"""Settings of a job that do nothing under some layouts that a search tries.

A job holds them for other layouts of the space: recompute_modules for those that compute parts again,
ends_as_layers for pipelines.  Warnings that they do nothing (`training.checks.doubts`) are for a layout as
written.
"""

from __future__ import annotations

from typing import Any

from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training.layout.schedule import TOGETHER, order_name, route_of


def without_idle(job: TrainingJob, arch: Transformer) -> TrainingJob:
    """The job with defaults in place of what its layout gives nothing to do; its step is the same.

    What does nothing under any layout of the job, such as experts' settings of a dense model, is left.
    """
    return job.model_copy(
        update={
            "layout": _default(job.layout, Layout(), _idle_layout(job)),
            "overlap": _default(job.overlap, Overlap(), _idle_overlap(job, arch)),
            **_idle_experts(job, arch),
        }
    )


def _default(own: Any, plain: Any, idle: dict[str, bool]) -> Any:
    """A section with the defaults of those fields that are idle."""
    return own.model_copy(update={name: getattr(plain, name) for name, yes in idle.items() if yes})


def _idle_layout(job: TrainingJob) -> dict[str, bool]:
    layout = job.layout
    return {
        "recompute_modules": layout.recompute != "selective",
        "ends_as_layers": route_of(layout).model_pieces == 1,
        "offload_layers": "activations" not in layout.offload,
        "context_kind": layout.context == 1,
        "sequence_parallel": layout.tensor == 1,
        "reshard": layout.zero < 3,
        "reduce_each": layout.zero < 2,
    }


def _idle_overlap(job: TrainingJob, arch: Transformer) -> dict[str, bool]:
    layout = job.layout
    alone = arch.is_moe and layout.expert == 1
    return {
        "tp": layout.tensor == 1,
        "ep": alone,
        "shared": arch.shared_ffn > 0 and (alone or order_name(job) in TOGETHER),
        "prefetch": layout.zero < 3,
        "gather": layout.zero not in (1, 2),
    }


def _idle_experts(job: TrainingJob, arch: Transformer) -> dict[str, Any]:
    """What is asked of experts that no token leaves its GPU for."""
    if not arch.is_moe or job.layout.expert > 1:
        return {}
    even = {"expert_imbalance": 1.0} if job.expert_capacity is None else {}
    return {**even, "expert_nodes": None, "dispatch_dtype": "bf16"}
