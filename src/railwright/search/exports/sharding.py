"""What data-parallel ranks share of a job, in the names of Megatron-LM's DistributedDataParallelConfig.

Sources: those of `megatron` and `nemo`, at the same commits.
"""

from __future__ import annotations

from railwright.search.exports.dispatcher import Hosts
from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import gradient_type
from railwright.training.layers.unhidden import gathers_late
from railwright.training.layout.sizes import Sizes
from railwright.training.software.narrow_weights import gathers_narrow, shares_gradients_buffer

STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}
"""Megatron-FSDP's names of ZeRO-2 and ZeRO-3 (--data-parallel-sharding-strategy)."""


def copies(job: TrainingJob, hosts: Hosts) -> int:
    """Groups of neighbouring ranks that each hold one copy of what is sharded.

    Source: parallel_state.py, intra_partial_data_parallel_size; mcore_fsdp_adapter.py, enable_hsdp.
    """
    return Sizes.under(job.layout, hosts.data).instances


def sharers(job: TrainingJob, hosts: Hosts) -> int:
    """Ranks that hold the same parameters, the more of dense ones and experts."""
    return Sizes.under(job.layout, hosts.data).copies


def sharding(job: TrainingJob, hosts: Hosts, optimizer: bool) -> list[str]:
    """Megatron-LM's arguments for what data-parallel ranks share, hide, and reduce in which type.

    optimizer  whether the optimizer has settings that only the distributed one takes
    """
    zero, gradients = job.layout.zero, gradient_type(job)
    same = sharers(job, hosts)
    narrow = gathers_narrow(job, same)
    lines = ["--use-distributed-optimizer"] if zero or optimizer or narrow else []
    if zero >= 2:
        lines += ["--use-megatron-fsdp", f"--data-parallel-sharding-strategy {STRATEGIES[zero]}"]
        lines.append("--ckpt-format fsdp_dtensor")
        # by default the type of the parameters, 16 bits
        lines.append(f"--megatron-fsdp-main-grads-dtype {gradients}")
    elif job.dtype == "fp16":
        lines += ["--accumulate-allreduce-grads-in-fp32"] if gradients == "fp32" else []
    elif gradients == "bf16":
        lines.append("--grad-reduce-in-bf16")
    if (instances := copies(job, hosts)) > 1:
        lines.append(f"--num-distributed-optimizer-instances {instances}")
    if job.overlap.dp:
        lines.append("--overlap-grad-reduce")
        if zero and job.overlap.gather:
            lines.append("--overlap-param-gather")
            lines += ["--no-align-param-gather"] if gathers_late(job) else []
    if job.ddp_bucket is not None and zero < 2:
        lines.append(f"--ddp-bucket-size {job.ddp_bucket:.0f}")
    if narrow:
        lines.append("--fp8-param-gather")
    if shares_gradients_buffer(job, same):
        lines.append("--reuse-grad-buf-for-mxfp8-param-ag")
    return lines
