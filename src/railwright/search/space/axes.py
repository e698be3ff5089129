"""The space of layouts as data: its axes, the values of each, and what they are called in a study.

A block is one choice of the axes that decide which GPUs talk to which, and how many layers of a stage run
again (structure); the other axes of a block (choices) are arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from pydantic import ValidationError

from railwright.errors import Mistake, SpecError, nearest
from railwright.spec.check import flaw_of
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training.layers.stages import quarters
from railwright.training.layout.sizes import Sizes

STRUCTURE = (
    "tensor",
    "context",
    "context_kind",
    "pipeline",
    "virtual_pipeline",
    "schedule",
    "expert",
    "expert_tensor",
    "placement",
    "shard",
    "reshard",
    "reduce_each",
    "recompute_layers",
)
CHOICES = (
    "micro_batch",
    "sequence_parallel",
    "recompute",
    "overlap_tp",
    "overlap_ep",
    "overlap_cp",
    "zero",
    "offload",
    "overlap_dp",
    "overlap_pp",
)
"""In the order of a block's array: what changes a pass, what changes memory and gradients, what overlaps."""

AXES = STRUCTURE + CHOICES
OF_LAYOUT = tuple(a for a in AXES if a in Layout.model_fields)
OF_OVERLAP = tuple((a, a.removeprefix("overlap_")) for a in AXES if a.startswith("overlap_"))
"""Axes that are fields of a study's layout, and those of its overlap with their names there."""

SHARDING = {"shard": 1, "reshard": 3, "reduce_each": 2}
"""Axes of how ranks share what ZeRO shards, whose default is the job's own value alone, and the stage of ZeRO
from which they do something."""

DEFAULTS: dict[str, tuple[Any, ...]] = {
    "context_kind": ("ring", "all-to-all", "all-gather"),
    "schedule": ("auto", "zb-h1", "zb-v", "dualpipe", "dualpipe-v", "gpipe"),
    "expert_tensor": (None, 1),
    "placement": ("packed", "expert-across", "spread"),
    "sequence_parallel": (True, False),
    "recompute": ("none", "selective", "full"),
    "overlap_tp": (False, True),
    "overlap_ep": (False, True),
    "overlap_cp": (True, False),
    "zero": (0, 1, 2, 3),
    "offload": ((),),
    "overlap_dp": (True, False),
    "overlap_pp": (True, False),
}
"""Default values of the other axes.  Of `offload` a job's own value is tried too; more is left to the
user."""


PARTS: dict[Any, Callable[[int], Sequence[int]]] = {
    "every": lambda most: range(1, most),
    "quarters": quarters,
}
"""Words among the values of `recompute_layers`, and the numbers that they stand for where the largest piece
of the model has so many layers."""

SERVERS = "servers"
"""Word among the values of `shard`: the ranks of one server, of two, … while there are several groups."""

WORDS = {"recompute_layers": tuple(PARTS), "shard": (SERVERS,)}
"""Axes that take words beside what a study's layout takes."""


@dataclass(frozen=True)
class Space:
    """Axes and their values; an axis that is not named has its default: DEFAULTS's, else the job's
    own (SHARDING) or every number that divides what there is to divide.

    fsdp  whether defaults of `zero` and of SHARDING are what PyTorch's FSDP2 has (`Framework.fsdp`)
    """

    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    fsdp: bool = False

    @classmethod
    def of(cls, given: Any, name: str = "<memory>") -> Space:
        """A space from {axis: values}, as a YAML file holds it.

        Raises SpecError naming every axis that is not known, empty, or has a value the study would refuse.
        """
        mistakes: list[Mistake] = []
        values: dict[str, tuple[Any, ...]] = {}
        if not isinstance(given, Mapping):
            raise SpecError(
                [Mistake(name, 0, 0, "", "a space is a set of axes, like 'tensor: [1, 2, 4, 8]'")]
            )
        for axis, raw in given.items():
            if axis not in AXES:
                hint = nearest(str(axis), AXES) or f"; axes are {', '.join(AXES)}"
                mistakes.append(Mistake(name, 0, 0, str(axis), f"there is no such axis{hint}"))
                continue
            found = _listed(raw)
            if not found:
                mistakes.append(Mistake(name, 0, 0, axis, "the axis is empty; name a value, or leave it out"))
                continue
            wrong = _refused(axis, found)
            mistakes += [Mistake(name, 0, 0, axis, why) for why in wrong]
            values[axis] = found if wrong else tuple(dict.fromkeys(found))
        if mistakes:
            raise SpecError(mistakes)
        return cls(values)

    def of_axis(self, axis: str) -> tuple[Any, ...] | None:
        """Values of an axis; None where they depend on the job or the rest of a layout."""
        return self.values.get(axis, DEFAULTS.get(axis))


@dataclass(frozen=True)
class Block:
    """All layouts of one structure.

    structure  axis -> value
    choices    (axis, values) in the order of the block's array; shape and size are the array's
    data       data-parallel size
    """

    structure: Mapping[str, Any]
    choices: tuple[tuple[str, tuple[Any, ...]], ...]
    data: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(values) for _, values in self.choices)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def copies(self) -> int:
        """Ranks that hold the same parameters."""
        return copies(self.structure, self.data)

    def of(self, axis: str) -> tuple[Any, ...]:
        """Values of one choice."""
        return dict(self.choices)[axis]

    def at(self, index: tuple[int, ...]) -> dict[str, Any]:
        """Axis -> value of one layout."""
        return {**self.structure, **{a: v[i] for (a, v), i in zip(self.choices, index, strict=True)}}


def sizes(structure: Mapping[str, Any], data: int) -> Sizes:
    """Sizes of the groups of a structure, whichever ranks share one copy."""
    names = ("tensor", "context", "pipeline", "expert", "expert_tensor")
    return Sizes.under(Layout(**{axis: structure[axis] for axis in names}), data)


def copies(structure: Mapping[str, Any], data: int) -> int:
    """Ranks that hold the same parameters, dense ones or experts, under a structure."""
    return sizes(structure, data).copies


def whole_servers(structure: Mapping[str, Any], data: int, server: int) -> list[int]:
    """Ranks with the same parameters on one server, and on more while there are several copies (HSDP).

    All context-parallel ranks are among them, as FSDP2's meshes have it, and all experts.  A structure that
    is larger than the job has no ranks, and is refused for that.
    """
    context, one = structure["context"], server // structure["tensor"]
    if one < 2 or not data:
        return []
    *fewer, _ = sizes(structure, data).shardings()
    return [n for n in fewer if n % one == 0 and n % context == 0]


def apply(job: TrainingJob, setting: Mapping[str, Any]) -> TrainingJob:
    """The job with one layout of the space."""
    layout = {a: setting[a] for a in OF_LAYOUT if a in setting}
    overlap = {short: setting[a] for a, short in OF_OVERLAP if a in setting}
    update: dict[str, Any] = {}
    if layout:
        update["layout"] = job.layout.model_copy(update=layout)
    if overlap:
        update["overlap"] = job.overlap.model_copy(update=overlap)
    if "micro_batch" in setting:
        update["micro_batch"] = setting["micro_batch"]
    return job.model_copy(update=update)


def setting_of(job: TrainingJob) -> dict[str, Any]:
    """The job's own layout as a point of a space."""
    return {axis: _own(job, axis) for axis in AXES}


def _own(job: TrainingJob, axis: str) -> Any:
    if axis == "micro_batch":
        return job.micro_batch
    return getattr(job.overlap, axis[8:]) if axis.startswith("overlap_") else getattr(job.layout, axis)


def _listed(raw: Any) -> tuple[Any, ...]:
    found = tuple(raw) if isinstance(raw, list | tuple) else (raw,)
    return tuple(tuple(v) if isinstance(v, list) else v for v in found)


def _refused(axis: str, values: tuple[Any, ...]) -> list[str]:
    """What the study's own types say against the values."""
    wrong = []
    for value in values:
        try:
            if axis == "micro_batch":
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    wrong.append(f"{value!r} is not a whole number of sequences, 1 or more")
            elif value in WORDS.get(axis, ()):
                continue
            elif axis.startswith("overlap_"):
                Overlap(**{axis[8:]: value})
            else:
                Layout(**{axis: value})
        except ValidationError as no:
            if axis == "offload" and not isinstance(value, tuple):
                wrong.append(f"{value!r} is no list; write a list of lists, like [[], [optimizer]]")
            else:
                told = f", or a word ({', '.join(WORDS[axis])})" if axis in WORDS else ""
                wrong.append(flaw_of(dict(no.errors(include_url=False)[0])).message + told)
    return wrong
