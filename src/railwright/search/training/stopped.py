"""Why a search has no answer, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.search.bounds.allocator import Allocations
from railwright.search.bounds.blocks import Refusal
from railwright.search.bounds.impossible import Impossible
from railwright.spec.training import TrainingJob
from railwright.units import GIB, show_size


def none_can_work(job: TrainingJob, why: Impossible) -> str:
    """The constraints that no layout avoids, in the training room's words."""
    none = f"{job.name}: no layout of the space can work"
    if not why.layouts:
        return f"{none}; its axes leave nothing to try; give them more values."
    every = "the only one is" if why.layouts == 1 else f"all {why.layouts:,}{_dividing(why)} are"
    if why.by_all:
        return f"{none}; {every} refused because {' And because '.join(why.by_all)}"
    first, *others = why.by_some
    return (
        f"{none}; of {why.layouts:,}{_dividing(why)} {first.layouts:,} are refused because {first.example}"
        + "".join(f" Of the others {one.layouts:,} because {one.example}" for one in others)
    )


def _dividing(why: Impossible) -> str:
    """Of which layouts constraints are told, where some are not worth a word."""
    return f" that divide the {why.gpus} GPUs" if why.uneven else ""


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
