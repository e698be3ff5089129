"""What several frameworks lack of a layout, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.model.shape.architecture import Transformer
from railwright.search.exports.dispatcher import sends_one_copy
from railwright.search.space.axes import apply
from railwright.spec.training import TrainingJob


def schedule_words(setting: Mapping[str, Any]) -> str:
    """The schedule of a layout by its name."""
    virtual = setting["virtual_pipeline"] > 1
    return f"schedule {setting['schedule']}{' with virtual stages' if virtual else ''}"


def shown_ring(setting: Mapping[str, Any], job: TrainingJob) -> list[str]:
    """Rings of Transformer Engine and of PyTorch pass a block on beside the attention of another; neither has
    a switch for it."""
    ring = setting["context"] > 1 and setting["context_kind"] == "ring"
    shown = ring and not setting["overlap_cp"] and not job.launch_blocking
    return ["a ring of keys and values that is not hidden"] if shown else []


def dispatched(setting: Mapping[str, Any], job: TrainingJob, arch: Transformer) -> list[str]:
    """What kernels of the expert exchange do not do; those that send one copy to each server want its ranks
    one after the other."""
    if job.dispatch_dtype == "fp8" and setting["expert"] > 1:
        return ["tokens dispatched in 8 bits"]
    if setting["placement"] == "expert-across" and sends_one_copy(apply(job, setting), arch):
        return ["one copy to each server (DeepEP) where an expert group has one rank on each"]
    return []


def has_sinks(arch: Transformer) -> bool:
    """Whether any layer's attention has a learned sink per head."""
    return arch.attention_sinks or arch.window_sinks
