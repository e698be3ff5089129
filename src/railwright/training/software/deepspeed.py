"""What DeepSpeed holds and moves beside a job's tensors, where an era runs on it (`Era.deepspeed`).

Its pipeline engine keeps a part of what a stage sent of every pass in flight; its optimizers keep gradients
twice or copy them for the step; its process groups are more than one for each way of parallelism.
Source: DeepSpeed 0.6.0 (2151c787, February 2022); BF16_Optimizer of 27 February 2022 (82450539), in
memory as merged in April (56c52238).
"""

from __future__ import annotations

from railwright.model import AdamTypes, Operator, optimizer_operators
from railwright.model.operators.kernels import ELEMENT
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.layout.sizes import tokens_of
from railwright.training.software.eras import era_of

BUCKET = 500_000_000
"""Gradients that are reduced at once, and weights that are gathered at once (zero/constants.py,
ZERO_OPTIMIZATION_REDUCE_BUCKET_SIZE_DEFAULT, ZERO_OPTIMIZATION_ALLGATHER_BUCKET_SIZE_DEFAULT)."""

BUCKETS = "gradients copied for the step"
"""Beside the gradients themselves."""

GROUPS = 2
"""Groups of weights that the optimizer joins into one tensor each: halves by their count, since apex's
FusedAdam failed at more (bigscience's Megatron-DeepSpeed, 541b967f of 17 February 2022, megatron/optimizer/
__init__.py); norms and biases are a small third one."""

FP16_STEP_BYTES = (2.0 + 4 + 4) + (2.0 + 4) + (4.0 + 4) + (4.0 + 4) + 4.0
"""HBM bytes per parameter of FP16_Optimizer's step beyond norm and Adam: gradients looked through for
overflow in a copy of 4 bytes and its sum, cast to fp32, flattened, unscaled; the master read again for the
16-bit weight.
Source: DeepSpeed 0.7.0, runtime/fp16/fused_optimizer.py, step; runtime/utils.py, CheckOverflow."""

FP16_AVERAGE_BYTES = 3 * (2.0 + 2)
"""The same of its average over replicas: 16-bit gradients flattened into a bucket, divided, copied back.
Source: DeepSpeed 0.7.0, runtime/engine.py, allreduce_and_copy."""

SECOND_GRADIENTS = "16-bit gradients beside their sums in fp32"
"""Of BF16_Optimizer: every pass leaves them where autograd does, and fp32_groups_gradients_flat has the sums
of all parameters, sharded or not."""


def communicators(tensor: int, pipeline: int, ranks: int) -> tuple[tuple[int, int], ...]:
    """(ranks, ranks from its first to its last one) of the communicators beyond one for each way of
    parallelism.

    All ranks of the job (torch.distributed.barrier) and those of one copy of the model (gradient norm and
    overflow; runtime/pipe/topology.py, ds_model_proc_group).  DeepSpeed has groups of its own for pipelines
    (the loss; pp_proc_group) and replicas (dp_proc_group) beside Megatron's, which wait there for the data's
    index (megatron/data/gpt_dataset.py, _build_index_mappings).  A stage sends by torch.distributed.send, for
    which PyTorch makes a communicator of two ranks for each neighbour; the ends have one neighbour, and the
    tied embedding's pair.  What it sends it makes whole again over the tensor ranks, in a group of its own
    beside Megatron's (topology.py, slice_proc_group; runtime/utils.py, PartitionedTensor.full).

    ranks  that hold the same dense parameters
    """
    stage, all_ranks = tensor * ranks, tensor * pipeline * ranks
    copy = (tensor * pipeline, all_ranks if pipeline > 1 else tensor)
    found = [(all_ranks, all_ranks), copy, (pipeline, all_ranks), (ranks, stage)]
    if pipeline > 1:
        # a neighbour's rank with the same place in its stage
        found += [(2, stage + 1), (2, stage + 1), (tensor, tensor)]
    return tuple(found)


def runs_engine(job: TrainingJob) -> bool:
    """Whether DeepSpeed runs a job as it is known here: what is known of its engine is known of its
    pipelines, which shard no gradients."""
    return era_of(job).deepspeed and job.layout.zero < 2


def runs_fp16_optimizer(job: TrainingJob) -> bool:
    """Whether FP16_Optimizer updates a job's weights: that of 16-bit gradients without ZeRO."""
    return era_of(job).deepspeed and job.dtype == "fp16" and not job.layout.zero


def update_operators(job: TrainingJob, held: float, replicas: int, types: AdamTypes) -> tuple[Operator, ...]:
    """An optimizer's step over `held` parameters of this GPU; without ZeRO FP16_Optimizer's is many kernels.

    replicas  that average their gradients; types  of what Adam's own kernels work on
    """
    update = optimizer_operators(held, types)
    if not runs_fp16_optimizer(job):
        return update
    moved = FP16_STEP_BYTES + (FP16_AVERAGE_BYTES if replicas > 1 else 0.0)
    return (*update, Operator("fp16 optimizer", "memory", 0.0, moved * held, "fp32", phase="optimizer"))


def second_gradients(trained: float, gradient: float) -> dict[str, float]:
    """Bytes that BF16_Optimizer holds beside sums of `gradient` bytes each; it is all there is for bf16 in
    pipelines, which shard no gradients (engine.py, _configure_optimizer; pipe/engine.py, __init__)."""
    return {SECOND_GRADIENTS: 2.0 * trained} if gradient == 4.0 else {}


def copied(trained: float, zero: int, offload: bool) -> dict[str, float]:
    """Bytes at the optimizer's step beside gradients in 16 bits.

    ZeRO-1: the bucket into which they are joined to be averaged; this rank's share stays where it is (zero/
    stage_1_and_2.py, allreduce_bucket, get_flat_partition).  Offloaded, the bucket in which they lie one
    after the other (`contiguous_gradients`, which only this asks for).  Without ZeRO all of them flattened in
    fp32 (fp16/fused_optimizer.py, step).  By its code the widened ones are there beside the flat ones;
    vTrain's 3.6B, which ran on 80 GB, would need 82.4 GiB of 80 then.

    trained  parameters of the stage that are trained
    offload  the optimizer to the host, which DeepSpeed's ZeRO does alone
    """
    if offload:
        return {BUCKETS: 2.0 * BUCKET}
    return {BUCKETS: 2.0 * min(BUCKET, trained) if zero else 4.0 * trained}


def averaged(trained: float, gradient: float) -> dict[str, float]:
    """Bytes at the step of BF16_Optimizer: the sums of one of its two groups of weights travel in 16 bits.

    trained   parameters of the stage that are trained
    gradient  bytes of one sum
    Source: 82450539 of 27 February 2022, which bigscience ran: runtime/engine.py, communication_data_type,
    allreduce_bucket; pipe/engine.py, _bf16_reduce_grads.
    """
    return {BUCKETS: 2.0 * trained / GROUPS} if gradient == 4.0 else {}


def gradient_on_its_way(job: TrainingJob, largest: float) -> dict[str, float]:
    """Bytes of the buffer in which ZeRO-Offload adds a gradient to what the host has of it.

    largest  parameters of the stage's largest weight
    Source: zero/stage_1_and_2.py, temp_grad_buffer_for_gpu_offload.
    """
    offload = runs_engine(job) and "optimizer" in job.layout.offload
    return {"gradient on its way to the host": 2.0 * largest} if offload else {}


def sent_kept(job: TrainingJob, arch: Transformer) -> float:
    """What DeepSpeed keeps of a pass's output until its backward pass: this tensor rank's part of it. [byte]

    Source: runtime/pipe/engine.py, _exec_forward_pass (is_pipe_partitioned); pipe_recv_buf and grad_layer,
    into which a stage receives, are as large and stay.  Megatron-LM frees the output since 2022
    (schedules.py, deallocate_output_tensor).
    """
    handed = era_of(job).deepspeed and job.layout.pipeline > 1
    return tokens_of(job) * ELEMENT * arch.hidden / job.layout.tensor if handed else 0.0


def received_kept(job: TrainingJob, arch: Transformer) -> float:
    """What DeepSpeed keeps of a pass's input beside the first layer's: a second copy, where tensor ranks do
    not send parts of it. [byte]"""
    return sent_kept(job, arch) if job.layout.tensor == 1 else 0.0


def mask_kept(job: TrainingJob) -> float:
    """The causal mask that DeepSpeed's first stage keeps of every microbatch, a byte per pair of tokens,
    though no layer reads it. [byte]

    Source: Megatron-DeepSpeed, pretrain_gpt.py, get_batch_pipe; megatron/utils.py,
    get_ltor_masks_and_position_ids; DeepSpeed, runtime/pipe/engine.py, _exec_load_micro_batch.
    """
    return float(job.sequence) ** 2 if runs_engine(job) else 0.0


OUTPUTS = "logits of passes before"
"""What `outputs_kept` says, beside what stays for good."""


def outputs_kept(job: TrainingJob, arch: Transformer) -> float:
    """What DeepSpeed's last stage keeps of passes that are over: the logits in fp32 of two, which the buffers
    of its pipeline name until the next pass comes. [byte]

    Source: runtime/pipe/engine.py, _exec_backward_pass (returns before it lets go of `outputs`);
    pipe/schedule.py, num_pipe_buffers; Megatron-DeepSpeed, gpt_model.py (float16_to_fp32 is the last layer).
    """
    return 2 * tokens_of(job) * 4.0 * arch.vocab / job.layout.tensor if runs_engine(job) else 0.0
