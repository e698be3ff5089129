"""What a run of Megatron-LM hides behind compute, and in which buckets its gradients leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.model.shape.architecture import Transformer
from railwright.runs.given import Given


def overlap_of(given: Given, arch: Transformer, layout: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `Overlap` that are not its defaults."""
    found: dict[str, Any] = {}
    gathered = given.yes("overlap_param_gather")
    if not given.yes("overlap_grad_reduce"):
        found["dp"] = False
    elif not gathered and layout["zero"] in (1, 2):
        found["gather"] = False
    elif layout["zero"] in (1, 2) and layout.get("virtual_pipeline", 1) > 1:
        found |= {} if given.yes("align_param_gather", True) else {"aligned": False}
    if given.yes("tp_comm_overlap"):
        found["tp"] = True
    if arch.is_moe and given.yes("overlap_moe_expert_parallel_comm"):
        found["ep"] = True
    if arch.is_moe and given.yes("moe_shared_expert_overlap"):
        found["shared"] = True
    # a log's list has it off wherever stages are not virtual (validate_args)
    if not given.yes("overlap_p2p_comm", True) and (
        not given.everything or layout.get("virtual_pipeline", 1) > 1
    ):
        found["pp"] = False
    if given.yes("overlap_cpu_optimizer_d2h_h2d"):
        found["offload"] = True
    return found


def buckets_of(given: Given, filled: bool) -> dict[str, Any]:
    """The size of buckets, where a run names one and they are filled to it."""
    if given.whole("ddp_num_buckets"):
        given.doubts.append(
            "so many buckets of gradients (--ddp-num-buckets) are predicted as buckets of the default size; "
            "ddp_bucket says another"
        )
    size = given.whole("ddp_bucket_size")
    return {"ddp_bucket": size} if size and filled else {}
