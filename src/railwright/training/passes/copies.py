"""Activations on their way to the host and back, as tasks beside a pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railwright.model.shape.pattern import Layer
from railwright.spec.training import TrainingJob
from railwright.training.lanes.tasks import Task, ahead_of
from railwright.training.memory.activations import layers_away
from railwright.training.passes.chain import woven

TO_HOST, FROM_HOST = "activations to host", "activations from host"
"""Names of the copies."""


def copy_tasks(
    job: TrainingJob, copies: Mapping[Layer, Task], layers: Sequence[Layer], name: str
) -> dict[int, tuple[Task, ...]]:
    """Copies of a chunk's layers whose activations go to the host; the last of a chunk is needed at once.

    copies  of a layer's activations, where they are offloaded (`offload.layer_copies`)
    """
    if not copies:
        return {}
    return {
        i: (copies[layers[i]]._replace(name=name, layer=i),) for i in range(layers_away(job, len(layers)))
    }


def copied_both(
    job: TrainingJob,
    copies: Mapping[Layer, Task],
    tasks: list[Task],
    ahead: Sequence[Layer],
    back: Sequence[Layer],
) -> list[Task]:
    """A forward pass through some layers and a backward one through others at once, with their copies."""
    leaving, coming = copy_tasks(job, copies, ahead, TO_HOST), copy_tasks(job, copies, back, FROM_HOST)
    if not (leaving or coming):
        return tasks
    order = [*range(len(back))[::-1], *map(ahead_of, range(len(ahead)))]
    return woven(tasks, order, coming, {ahead_of(i): found for i, found in leaving.items()}, 1)
