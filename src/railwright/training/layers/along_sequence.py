"""Copies of what tensor-parallel ranks gather and scatter along the sequence.

Collectives put the parts of all ranks one behind the other.  Megatron's tensors have the sequence as their
first dimension, so that this is their order; torchtitan's have the batch, and DTensor, which sends along the
second one, copies what was gathered into its order, and what is scattered out of it.
Under asynchronous tensor parallelism a product computes its rows in the order in which they are sent; the
partial sums of all ranks lie side by side and are read once more to be added.  What was gathered comes out in
that order too, and is copied wherever something reads it in the sequence's; which readers do depends on the
compiled graph, so all are counted.

Sources: PyTorch 2.13, torch/distributed/_functional_collectives.py (all_gather_single: chunks of the first
dimension are joined along another one; reduce_scatter_single: the reverse before it; of releases before, from
memory); torch/distributed/_symmetric_memory (_fused_all_gather_matmul_impl, unflatten;
_fused_matmul_reduce_scatter_impl, reduce_partials); torchtitan 9dec370, parallelisms/parallelize_llama.py,
apply_tp (Shard(1)).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from railwright.model.operators.kernels import Block, elementwise
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Operator, Transformer
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
    elements = rows_of(job) * arch.hidden
    gathers, hidden = gathers_of(job), hides_products(job, arch)
    added = ADDED if hidden else COPIED
    # sums of several gradients are made before they are reduced, which no product hides
    summed = sums_first(job, arch)
    ahead = {
        name: elementwise(
            f"{name}, gathered rows",
            elements,
            reads=COPIED * gathers.inputs,
            writes=0,
            back=COPIED if name in summed else added,
        )
        for name in GATHERED_INPUT
    }
    behind = {
        name: elementwise(
            f"{name}, scattered rows", elements, reads=added, writes=0, back=COPIED * gathers.gradients
        )
        for name in GATHERED_GRADIENT
    }
    return replace(
        operators,
        forward=_forward(operators.forward, ahead, behind),
        recomputed=_forward(operators.recomputed, ahead, {}),
        backward_input=_backward(operators.backward_input, ahead, behind),
    )


Copies = Mapping[str, Block]
"""Product -> the copies beside it."""


def _forward(found: Iterable[Operator], ahead: Copies, behind: Copies) -> tuple[Operator, ...]:
    made: list[Operator] = []
    for op in found:
        made += [ahead[op.name].forward] if op.name in ahead else []
        made.append(op)
        made += [behind[op.name].forward] if op.name in behind else []
    return tuple(made)


def _backward(found: Iterable[Operator], ahead: Copies, behind: Copies) -> tuple[Operator, ...]:
    """What was scattered is gathered, and the other way round."""
    made: list[Operator] = []
    for op in found:
        name = op.name.removesuffix(", input gradient")
        made += behind[name].backward_input if name in behind else ()
        made.append(op)
        made += ahead[name].backward_input if name in ahead else ()
    return tuple(made)
