"""Jobs and spaces whose bounds are held against exact figures: (model, job, axes) by name."""

from __future__ import annotations

from dataclasses import replace

from railwright.spec.lora import Lora
from railwright.spec.training import Overlap
from search_cases import (
    AGAIN,
    ALTERNATING,
    CHOOSING,
    DELAYED,
    GATED,
    HEADED,
    LATENT,
    PACKED,
    SHARING,
    TORCHAO,
    WINDOWED,
)
from training_cases import BLOCKS, DELTA, DENSE, KIMI, LATENTS, LIGHTNING, MIXED, MOE, changed, job

CASES = {
    "dense": (DENSE, job(batch=32), {}),
    "all axes": (
        DENSE,
        job(batch=32),
        {"zero": (0, 1, 2, 3), "offload": ((), ("activations",), ("optimizer",))},
    ),
    "under DeepSpeed": (
        DENSE,
        job(batch=32).model_copy(update={"software": "megatron-2021"}),
        {"pipeline": (1, 2, 4), "zero": (0, 1), "tensor": (1, 2)},
    ),
    "under DeepSpeed, gradients in 16 bits": (
        DENSE,
        job(batch=32, dtype="fp16").model_copy(update={"software": "megatron-2021"}),
        {"pipeline": (1, 2, 4), "zero": (0, 1), "tensor": (1, 2)},
    ),
    "under DeepSpeed, whose engine runs no pipelines where gradients are sharded": (
        DENSE,
        job(batch=32, sequence=4096).model_copy(update={"software": "megatron-2021"}),
        {"pipeline": (1, 2), "zero": (0, 2), "micro_batch": (4,), "recompute": ("full",)},
    ),
    "gradients that DeepSpeed's ZeRO engine sends": (
        DENSE,
        changed(job(batch=64, zero=3), software="deepspeed-2024"),
        {"tensor": (1,), "pipeline": (1,), "zero": (1, 2, 3), "micro_batch": (1, 2), "recompute": ("none",)},
    ),
    "parameters behind the optimizer": (
        DENSE,
        job(batch=32, overlap=Overlap(gather=False)),
        {"pipeline": (1, 2), "virtual_pipeline": (1, 2), "zero": (0, 1, 2), "overlap_dp": (True, False)},
    ),
    "apex": (
        DENSE,
        changed(job(batch=32), software="nemo-2024", apex_bucket=4 * 2.0**20, gradient_dtype="bf16"),
        {"pipeline": (1, 2), "virtual_pipeline": (1, 2), "overlap_dp": (True, False)},
    ),
    "moments of 16 bits that are widened": (
        DENSE,
        changed(job(batch=32), moment_dtype="bf16"),
        {"pipeline": (1, 2), "virtual_pipeline": (1, 2), "zero": (0, 1, 2), "overlap_dp": (True, False)},
    ),
    "schedules": (DENSE, job(batch=32), {"schedule": ("zb-h1", "dualpipe", "gpipe"), "pipeline": (2, 4)}),
    "folded": (DENSE, job(batch=32), {"schedule": ("zb-v", "dualpipe-v"), "pipeline": (2, 4)}),
    "split, with virtual stages": (
        DENSE,
        job(batch=32),
        {"schedule": ("zb-h1",), "pipeline": (2, 4), "virtual_pipeline": (2, 4), "zero": (0, 1, 2)},
    ),
    "experts folded": (MOE, job(batch=64), {"schedule": ("zb-v", "dualpipe-v"), "pipeline": (2, 4)}),
    "alternating experts folded": (
        ALTERNATING,
        job(batch=64),
        {"schedule": ("zb-v", "dualpipe-v"), "pipeline": (2,), "recompute": ("none", "selective", "full")},
    ),
    "context": (DENSE, job(batch=16, sequence=8192), {"context": (2, 4)}),
    "packed": (DENSE, PACKED, {"context": (1, 2), "context_kind": ("ring", "all-to-all")}),
    "torchao, scale per tensor": (DENSE, TORCHAO, {"zero": (1, 3)}),
    "weights on the host": (
        DENSE,
        TORCHAO,
        {"zero": (0, 3), "offload": ((), ("weights",), ("optimizer",)), "pipeline": (1, 2)},
    ),
    "torchao, scale per row": (MOE, TORCHAO.model_copy(update={"dtype": "fp8_rowwise"}), {"zero": (1, 3)}),
    "sharded in groups": (DENSE, job(batch=32, zero=3, shard=4), {}),
    "groups as axes": (
        DENSE,
        job(batch=32),
        {"shard": (None, 2, 4, 8), "reshard": (True, False), "reduce_each": (True, False), "zero": (2, 3)},
    ),
    "groups under FSDP2": (
        DENSE,
        changed(job(batch=32, sequence=4096), software="fsdp-2025"),
        {"shard": (None, 2, 8), "reshard": (True, False), "reduce_each": (False,), "zero": (3,)},
    ),
    "experts, parameters kept": (
        MOE,
        job(batch=32),
        {"reshard": (False, True), "reduce_each": (False, True), "zero": (2, 3), "pipeline": (1, 2, 4)},
    ),
    "experts": (MOE, job(batch=32), {}),
    "states in groups": (
        DENSE,
        job(batch=32),
        {"shard": (None, 2, 4), "zero": (1, 2), "pipeline": (1, 2, 4), "virtual_pipeline": (1, 2)},
    ),
    "experts in groups": (
        MOE,
        job(batch=64),
        {"shard": (4, 8), "zero": (1, 2, 3), "pipeline": (1, 2), "expert": (1, 2, 4)},
    ),
    "experts, sharded": (MOE, job(batch=32, imbalance=1.2), {"zero": (2, 3)}),
    "experts one after the other": (
        MOE,
        changed(job(batch=32), software="fsdp-2024-eager", unfused=("experts", "activation")),
        {"zero": (1, 3), "pipeline": (1, 2), "recompute": ("none", "full"), "expert": (1, 2)},
    ),
    "experts of fixed capacity": (MOE, job(batch=32).model_copy(update={"expert_capacity": 1.0}), {}),
    "behind shared experts": (
        ALTERNATING,
        job(batch=32, overlap=Overlap(shared=True)).model_copy(
            update={"unfused": ("rotary", "router", "loss", "norm", "activation")}
        ),
        {"tensor": (1, 2), "expert": (1, 2, 8), "schedule": ("auto", "dualpipe")},
    ),
    "experts both ways": (MOE, job(batch=64), {"schedule": ("dualpipe",), "pipeline": (2, 4)}),
    "alternating experts both ways": (
        ALTERNATING,
        job(batch=64),
        {"schedule": ("dualpipe",), "pipeline": (2, 4), "recompute": ("none", "selective", "full")},
    ),
    "experts of fixed capacity both ways": (
        MOE,
        job(batch=64).model_copy(update={"expert_capacity": 1.0}),
        {"schedule": ("dualpipe",), "pipeline": (2, 4)},
    ),
    "experts paired": (
        MOE,
        job(batch=64),
        {"expert": (2, 4, 8), "pipeline": (1, 2), "virtual_pipeline": (1, 2, 4), "zero": (0, 1, 2, 3)},
    ),
    "alternating experts paired": (
        ALTERNATING,
        job(batch=64),
        {"expert": (2, 8), "pipeline": (1, 2), "virtual_pipeline": (1, 3), "overlap_ep": (True,)},
    ),
    "experts of fixed capacity paired": (
        MOE,
        job(batch=64).model_copy(update={"expert_capacity": 1.0}),
        {"expert": (2, 8), "pipeline": (1, 4), "virtual_pipeline": (1, 2), "overlap_ep": (True,)},
    ),
    "alternating experts": (ALTERNATING, job(batch=32), {"pipeline": (1, 2, 4), "zero": (1, 3)}),
    "parts computed again": (ALTERNATING, AGAIN, {"expert": (1, 2, 8), "recompute": ("none", "selective")}),
    "parts computed again both ways": (
        ALTERNATING,
        AGAIN,
        {"schedule": ("dualpipe", "zb-v"), "pipeline": (2,), "recompute": ("selective",)},
    ),
    "some layers computed again": (
        DENSE,
        job(batch=32),
        {"recompute_layers": (None, 1, 2, 3), "pipeline": (1, 2, 4), "zero": (0, 1, 3), "tensor": (1, 2)},
    ),
    "some layers computed again, split": (
        DENSE,
        job(batch=32),
        {
            "recompute_layers": (1, 3),
            "schedule": ("zb-h1", "zb-v", "gpipe"),
            "pipeline": (2,),
            "zero": (0, 1),
        },
    ),
    "some layers of alternating experts computed again": (
        ALTERNATING,
        job(batch=32),
        {"recompute_layers": (1, 2, 3), "pipeline": (1, 2), "zero": (1, 3), "virtual_pipeline": (1, 3)},
    ),
    "some layers of experts computed again both ways": (
        MOE,
        job(batch=64),
        {"recompute_layers": (1, 2), "schedule": ("dualpipe", "dualpipe-v"), "pipeline": (2,)},
    ),
    "some layers of alternating experts computed again in pairs": (
        ALTERNATING,
        job(batch=64),
        {
            "recompute_layers": (1, 2),
            "pipeline": (1, 2),
            "virtual_pipeline": (1, 3),
            "overlap_ep": (True,),
            "expert": (2, 8),
        },
    ),
    "some layers of experts of fixed capacity computed again": (
        MOE,
        job(batch=32).model_copy(update={"expert_capacity": 1.0}),
        {"recompute_layers": (1, 2), "pipeline": (1, 2, 4), "expert": (2, 8)},
    ),
    "some layers with adapters computed again": (
        LATENT,
        job(batch=32).model_copy(update={"lora": Lora(rank=8, targets=("mlp up",))}),
        {"recompute_layers": (1, 2), "tensor": (1, 2), "zero": (0, 3), "schedule": ("auto",)},
    ),
    "blocks side by side": (
        replace(DENSE, parallel_blocks=True, norms_per_layer=1),
        job(batch=32),
        {"schedule": ("auto", "zb-h1"), "tensor": (2, 4)},
    ),
    "latent attention": (
        LATENT,
        job(batch=32, recompute="selective", recompute_modules=("mla_up_proj",)),
        {"schedule": ("auto", "zb-h1"), "tensor": (2, 4), "recompute": ("none", "selective")},
    ),
    "chosen keys": (
        CHOOSING,
        job(batch=32, recompute="selective"),
        {
            "schedule": ("auto", "zb-h1"),
            "tensor": (1, 2, 4),
            "context": (1, 2),
            "context_kind": ("all-gather",),
            "recompute": ("none", "selective", "full"),
        },
    ),
    "keys that other layers chose": (
        SHARING,
        job(batch=32),
        {"pipeline": (1, 2), "tensor": (1, 2, 4), "recompute": ("none", "selective", "full")},
    ),
    "heads of windowed layers": (
        HEADED,
        job(batch=32),
        {"pipeline": (1, 2, 3), "tensor": (1, 2, 4), "recompute": ("none", "selective", "full")},
    ),
    "gates, and layers of no pattern": (
        GATED,
        job(batch=32),
        {"pipeline": (1, 2, 3), "virtual_pipeline": (1, 2), "recompute": ("none", "selective", "full")},
    ),
    "latent experts": (
        LATENTS,
        job(batch=32, dtype="fp8"),
        {"expert": (1, 2, 8), "tensor": (1, 2), "recompute": ("none", "selective")},
    ),
    "layers of one block": (
        BLOCKS,
        job(batch=32),
        {"pipeline": (1, 2, 3), "virtual_pipeline": (1, 2), "recompute": ("none", "selective", "full")},
    ),
    "layers of one block over context ranks": (
        BLOCKS,
        job(batch=32, sequence=4096),
        {"context": (1, 2, 4), "tensor": (1, 2), "context_kind": ("ring", "all-to-all")},
    ),
    "delta nets": (
        DELTA,
        job(batch=32, sequence=2048),
        {"expert": (1, 2, 8), "tensor": (1, 2), "zero": (0, 1, 2, 3), "context": (1, 2)},
    ),
    "Kimi delta attention": (
        KIMI,
        job(batch=32),
        {"tensor": (1,), "expert": (1, 2, 8), "pipeline": (1, 2, 4)},
    ),
    "lightning attention": (LIGHTNING, job(batch=32), {"tensor": (1,), "pipeline": (1, 2), "zero": (1, 3)}),
    "every kind of layer, both ways": (
        MIXED,
        job(batch=64),
        {"schedule": ("dualpipe", "zb-v"), "pipeline": (2,), "recompute": ("none", "selective", "full")},
    ),
    "every kind of layer, paired": (
        MIXED,
        job(batch=64),
        {"expert": (2, 8), "pipeline": (1, 2), "virtual_pipeline": (1, 2), "overlap_ep": (True,)},
    ),
    "windows": (WINDOWED, job(batch=32), {"recompute": ("none", "selective")}),
    "adapters": (
        DENSE,
        job(batch=32).model_copy(update={"lora": Lora(rank=8, targets=("mlp up",))}),
        {"tensor": (1, 2), "zero": (0, 1, 2, 3), "offload": ((), ("optimizer",))},
    ),
    "adapters of some layers": (
        ALTERNATING,
        job(batch=32, recompute_modules=("shared_experts",)).model_copy(
            update={"lora": Lora(rank=8, targets=("mlp down",)), "expert_capacity": 1.0}
        ),
        {"tensor": (1,), "expert": (1, 8), "zero": (1, 2), "offload": ((), ("optimizer",))},
    ),
    "weights in 4 bits": (
        DENSE,
        job(batch=32).model_copy(update={"lora": Lora(rank=8, frozen_dtype="nf4"), "software": "fsdp-2025"}),
        {"tensor": (1, 2), "pipeline": (1, 2), "zero": (0, 3), "offload": ((), ("weights",))},
    ),
    "maxima agreed on": (DENSE, DELAYED, {"zero": (1, 3), "virtual_pipeline": (1, 2)}),
}


LAST = replace(DENSE, mtp_layers=2)
"""The last of its stages has most parameters."""

SLOW = {
    "over PCIe slots": (DENSE, job(batch=32), {"tensor": (2, 4), "zero": (0, 1, 2, 3), "pipeline": (1, 2)}),
    "experts over PCIe slots": (
        MOE,
        job(batch=32),
        {"tensor": (1, 2), "expert": (2, 8), "pipeline": (1, 2), "virtual_pipeline": (1, 2)},
    ),
    "experts over PCIe slots, both ways": (
        MOE,
        job(batch=64),
        {"tensor": (1, 2), "schedule": ("dualpipe", "dualpipe-v"), "pipeline": (2, 4)},
    ),
    "gradients reduced in every microbatch": (
        LAST,
        job(batch=64, sequence=256),
        {"pipeline": (2, 4), "zero": (2, 3), "tensor": (1,), "micro_batch": (1,), "overlap_dp": (True,)},
    ),
    "gradients behind sends": (
        LAST,
        job(batch=16, sequence=4096),
        {
            "pipeline": (2,),
            "zero": (0,),
            "tensor": (1,),
            "schedule": ("auto", "gpipe"),
            "overlap_pp": (False,),
        },
    ),
    "parameters gathered, nothing hidden": (
        DENSE,
        job(batch=32, zero=3),
        {"zero": (3,), "overlap_dp": (False,), "offload": ((), ("activations",)), "pipeline": (4,)},
    ),
    "experts' parameters gathered, nothing hidden": (
        MOE,
        job(batch=32, zero=3),
        {"zero": (3,), "overlap_dp": (False,), "offload": ((), ("activations",)), "pipeline": (1, 2)},
    ),
}
"""On servers without NVLink, where data-parallel communication takes longer than what it hides behind."""
