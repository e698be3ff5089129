"""What DeepSpeed holds beside a job's tensors, where an era runs on it (`Era.deepspeed`).

Its pipeline engine keeps what a stage received and what it sent of every pass in flight; its optimizers keep
gradients twice or flatten them at the step; its process groups are more than one for each way of parallelism.
Source: DeepSpeed 0.6.0 (2151c787, February 2022); BF16_Optimizer as merged in April 2022 (56c52238).
"""

from __future__ import annotations

BUCKET = 500_000_000
"""Gradients that are reduced at once (runtime/engine.py, buffered_allreduce_fallback)."""

SECOND_GRADIENTS = "16-bit gradients beside their sums in fp32"
"""Of BF16_Optimizer: every pass leaves them where autograd does, and fp32_groups_gradients_flat has the sums
of all parameters, sharded or not."""


def communicators(tensor: int, pipeline: int, ranks: int) -> tuple[int, ...]:
    """Ranks of the communicators beyond one for each way of parallelism.

    All ranks of the job (torch.distributed.barrier) and those of one copy of the model (gradient norm and
    overflow; runtime/pipe/topology.py, ds_model_proc_group).  A stage sends by torch.distributed.send, for
    which PyTorch makes a communicator of two ranks for each neighbour; the ends have one neighbour, and the
    tied embedding's pair.

    ranks  that hold the same dense parameters
    """
    pairs = (2, 2) if pipeline > 1 else ()
    return (tensor * pipeline * ranks, tensor * pipeline, *pairs)


def second_gradients(trained: float, zero: int, gradient: float) -> dict[str, float]:
    """Bytes that BF16_Optimizer holds beside sums of `gradient` bytes each."""
    return {SECOND_GRADIENTS: 2.0 * trained} if zero == 1 and gradient == 4.0 else {}


def flattened(trained: float, copy: float, gradient: float) -> float:
    """Bytes of cached memory that the step's flat tensors add.

    PyTorch's allocator does not join segments, so what many activations leave holds none of them.  With
    gradients in fp16, flattening this rank's share takes the segment that initialising the states left
    (runtime/zero/stage_1_and_2.py, initialize_optimizer_states), and its fp32 copy a new one; BF16_Optimizer
    flattens one bucket to reduce it.

    copy  fp32 copy of this rank's share of the gradients [byte]
    """
    return copy if gradient < 4.0 else gradient * min(BUCKET, trained)
