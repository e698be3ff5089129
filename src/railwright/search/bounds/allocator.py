"""Which layouts PyTorch's allocator can hold: tensors come and go on it, once for layouts that are alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from railwright.fabric.graph import Fabric
from railwright.model.shape.architecture import Transformer
from railwright.search.space.axes import AXES
from railwright.spec.training import TrainingJob
from railwright.training.memory.cached import Reserved, is_held, reserved
from railwright.training.memory.peak import peak_memory
from railwright.training.software.eras import era_of

FULL = 0.75
"""Stages whose tensors take less of a GPU are not replayed, but the fullest one.
Measured on stages of layouts drawn from five jobs (dense models and experts, on H100 and GB200): of 999 that
take 60 to 75 % none was short of memory with segments that grow, and two with segments of fixed sizes; of 307
above 90 % there were 83 and 126."""

APART = {"placement", "overlap_tp", "overlap_cp", "overlap_dp", "overlap_pp"}
"""Axes that no tensor depends on, but for `overlap_dp` under DeepSpeed's ZeRO engine."""


@dataclass
class Allocations:
    """What the allocator holds of layouts of one job, each replayed when it is first asked for.

    capacity  of a GPU [byte]
    """

    job: TrainingJob
    arch: Transformer
    fabric: Fabric
    capacity: float
    _found: dict[tuple[Any, ...], Reserved | None] = field(default_factory=dict)

    def held(self, setting: Mapping[str, Any], job: TrainingJob) -> Reserved | None:
        """What it holds of the fullest GPU; None where the era's allocator is not PyTorch's.

        setting, job  a layout and the job with it, which must have passed `plan.check`
        """
        key = self._key(setting)
        if key not in self._found:
            memory = peak_memory(job, self.arch, self.fabric, self.capacity)
            stages = [s.stage for s in memory.stages if s.total >= FULL * self.capacity] or [memory.stage]
            self._found[key] = reserved(job, self.arch, self.fabric, memory, stages)
        return self._found[key]

    def holds(self, setting: Mapping[str, Any], job: TrainingJob) -> bool:
        """Whether it has room for a layout (`cached.is_held`)."""
        return is_held(self.held(setting, job), self.capacity)

    def refused(self, setting: Mapping[str, Any]) -> bool:
        """Whether it is known by now to have no room for a layout."""
        key = self._key(setting)
        return key in self._found and not is_held(self._found[key], self.capacity)

    def least_missing(self) -> float | None:
        """Of the layouts that it has no room for, how much is missing at least, with segments that grow or
        without [byte]; None where there is no such layout."""
        full = [one for one in self._found.values() if one and not is_held(one, self.capacity)]
        missing = (min(one.short, one.growing + one.system - self.capacity) for one in full)
        return min(missing, default=None)

    def _key(self, setting: Mapping[str, Any]) -> tuple[Any, ...]:
        """What the tensors of a layout depend on."""
        swapped = setting["context"] > 1 and setting["context_kind"] == "all-to-all"
        hidden = era_of(self.job).zero_engine and setting["overlap_dp"]  # by a second bucket
        alike = (setting[axis] for axis in AXES if axis not in APART and axis != "context_kind")
        return (swapped, hidden, *alike)
