"""Copies of what tensor-parallel ranks gather and scatter along the sequence.

Collectives put the parts of all ranks one behind the other.  Megatron's tensors have the sequence as their
first dimension, so that this is their order; torchtitan's have the batch, and DTensor, which sends along the
second one, copies what was gathered into its order, and what is scattered out of it.
Under asynchronous tensor parallelism a product computes its rows in the order in which they are sent; the
partial sums of all ranks lie side by side and are read once more to be added.  What was gathered comes out in
that order too, and is copied wherever something reads it in the sequence's; which readers do depends on the
compiled graph, so all are counted.

Sources: PyTorch 2.13, torch/distributed/_functional_collectives.py (all_gather_single: chunks of the first
dimension are joined along another one; reduce_scatter_single: the reverse before it), and since 2023;
torch/distributed/_symmetric_memory (_fused_all_gather_matmul_impl, unflatten;
_fused_matmul_reduce_scatter_impl, reduce_partials); torchtitan 9dec370, parallelisms/parallelize_llama.py,
apply_tp (Shard(1)).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from railwright.model.operators.kernels import ELEMENT
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Operator, Phase, Transformer
from railwright.spec.training import TrainingJob
from railwright.training.layers.casts import GATHERED_GRADIENT, GATHERED_INPUT
from railwright.training.layers.gathers import gathers_of
from railwright.training.layers.unhidden import hides_products, sums_first
from railwright.training.layout.sizes import rows_of
from railwright.training.software.eras import era_of

COPIED = 2.0
"""Times that rows are read or written where they are copied."""

ADDED = 1.0
"""The same where partial sums lie side by side; the result, a rank's own part, is left out."""


def copies_rows(job: TrainingJob) -> bool:
    """Whether a job's tensor ranks gather and scatter along a dimension that is not the first."""
    layout = job.layout
    return era_of(job).batch_first and layout.tensor > 1 and layout.sequence_parallel


def with_copied_rows(operators: LayerOperators, job: TrainingJob, arch: Transformer) -> LayerOperators:
    """A layer's operators with the copies around its products; experts' rows are not among them.

    Of operators that run again alone PyTorch keeps what was scattered (torchtitan's _save_list); a layer that
    runs again whole scatters again.
    """
    rows = rows_of(job) * arch.hidden * ELEMENT
    gathers, hidden = gathers_of(job), hides_products(job, arch)
    added = (ADDED if hidden else COPIED) * rows
    # sums of several gradients are made before they are reduced, which no product hides
    summed = sums_first(job, arch)
    ahead = {
        name: (COPIED * gathers.inputs * rows, COPIED * rows if name in summed else added)
        for name in GATHERED_INPUT
    }
    behind = dict.fromkeys(GATHERED_GRADIENT, (added, COPIED * gathers.gradients * rows))
    return replace(
        operators,
        forward=_forward(operators.forward, ahead, behind),
        recomputed=_forward(operators.recomputed, ahead, {}),
        backward_input=_backward(operators.backward_input, ahead, behind),
    )


Moved = Mapping[str, tuple[float, float]]
"""Product -> what the copies beside it move, forward and backward. [byte]"""


def _forward(found: Iterable[Operator], ahead: Moved, behind: Moved) -> tuple[Operator, ...]:
    made: list[Operator] = []
    for op in found:
        if op.name in ahead:
            made.append(_copy(f"{op.name}, gathered rows", ahead[op.name][0], "forward"))
        made.append(op)
        if op.name in behind:
            made.append(_copy(f"{op.name}, scattered rows", behind[op.name][0], "forward"))
    return tuple(made)


def _backward(found: Iterable[Operator], ahead: Moved, behind: Moved) -> tuple[Operator, ...]:
    """What was scattered is gathered, and the other way round."""
    made: list[Operator] = []
    for op in found:
        name = op.name.removesuffix(", input gradient")
        if name in behind:
            made.append(_copy(f"{name}, scattered rows, backward", behind[name][1], "backward_input"))
        made.append(op)
        if name in ahead:
            made.append(_copy(f"{name}, gathered rows, backward", ahead[name][1], "backward_input"))
    return tuple(made)


def _copy(name: str, moved: float, phase: Phase) -> Operator:
    return Operator(name, "memory", 0.0, moved, "bf16", phase=phase)
