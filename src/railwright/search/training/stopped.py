"""Why a search has no answer, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from railwright.search.bounds.allocator import Allocations
from railwright.search.bounds.blocks import Refusal
from railwright.spec.training import TrainingJob
from railwright.units import GIB, show_size


def none_can_work(job: TrainingJob, refused: Sequence[Refusal]) -> str:
    """The constraint that stops most layouts, in the training room's words."""
    why = "its axes leave nothing to try; give them more values."
    if refused:
        total = sum(one.layouts for one in refused)
        most = refused[0].layouts
        share = f"most ({most:,} of {total:,})" if most < total else f"all {total:,}"
        why = f"{share} are refused because {refused[0].example}"
    return f"{job.name}: no layout of the space can work; {why}"


def none_fits(
    job: TrainingJob, layouts: int, setting: Mapping[str, Any], least: float, capacity: float, advice: str
) -> str:
    """That no layout's tensors fit.

    setting, least  the layout whose memory has the least bound, and that [byte]
    advice          what can help (`leaner.leaner`)
    """
    shown = ", ".join(f"{a} {setting[a]}" for a in ("tensor", "pipeline", "micro_batch", "recompute", "zero"))
    all_of_them = "the only layout" if layouts == 1 else f"all {layouts:,} layouts"
    return (
        f"{job.name}: memory stops {all_of_them} of the space that could work otherwise: the "
        f"leanest ({shown}) needs at least {least / GIB:.1f} GiB and a GPU has {capacity / GIB:.1f} GiB; "
        + advice
    )


def none_is_carried(job: TrainingJob, apart: Refusal) -> str:
    """That every layout whose tensors fit sends what the network cannot carry: it does not connect all GPUs
    of a group, or is told to run an algorithm that cannot.

    apart  how many were asked, and what the network said of one
    """
    return (
        f"{job.name}: no layout of the space can work: of each that fits ({apart.layouts:,} were tried) the "
        f"network cannot carry what some group sends; {apart.example}"
    )


def none_is_held(job: TrainingJob, allocations: Allocations, advice: str) -> str:
    """That the allocator has no room for any layout whose tensors fit.

    advice  what may help (`leaner.untried`)
    """
    missing = allocations.least_missing()
    if missing is None:
        return f"{job.name}: no layout of the space fits a GPU, or with what it offloads its host; {advice}"
    return (
        f"{job.name}: the tensors of some layouts fit a GPU, but PyTorch's allocator has no room for the "
        f"holes between them: at least {show_size(missing)} are missing by its replay, with segments that "
        f"grow (expandable_segments:True) too; {advice}"
    )
