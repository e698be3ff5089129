"""What DeepSpeed holds beside a job's tensors, where an era runs on it (`Era.deepspeed`).

Its pipeline engine keeps a part of what a stage sent of every pass in flight; its optimizers keep gradients
twice or copy them at the step; its process groups are more than one for each way of parallelism.
Source: DeepSpeed 0.6.0 (2151c787, February 2022); BF16_Optimizer as merged in April 2022 (56c52238).
"""

from __future__ import annotations

BUCKET = 500_000_000
"""Gradients that are reduced at once, and weights that are gathered at once (zero/constants.py,
ZERO_OPTIMIZATION_REDUCE_BUCKET_SIZE_DEFAULT, ZERO_OPTIMIZATION_ALLGATHER_BUCKET_SIZE_DEFAULT)."""

BUCKETS = "gradients copied for the step"
"""Of the fp16 optimizer, beside the gradients themselves."""

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


def copied(shard: float) -> dict[str, float]:
    """Bytes at the optimizer's step with gradients in 16 bits: the bucket they are averaged in, and this
    rank's share of them, copied out of it (zero/stage_1_and_2.py, reduce_gradients, copy_grads_in_partition).

    shard  parameters of this rank's share
    """
    return {BUCKETS: 2.0 * (BUCKET + shard)}
