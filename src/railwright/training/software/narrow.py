"""Attention in 8 bits, and inputs of SwiGLU kept in 8: which jobs and GPUs their frameworks run them for."""

from __future__ import annotations

from railwright.catalog.parts import LIKE_BLACKWELL, Gpu
from railwright.errors import PlanError
from railwright.model.operators.narrow import Scaling
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.flops import value_width
from railwright.spec.training import TrainingJob
from railwright.training.software.eras import era_of
from railwright.training.software.formats import amax_over

BLOCK = 32
"""Elements that share a scale in MXFP8 (OCP Microscaling Formats, version 1.0)."""

TOKENS = 128
"""Tokens of a rank that attention in MXFP8 wants a multiple of (Transformer Engine 2.16,
dot_product_attention/utils.py, combine_and_quantize)."""

WIDTHS = {"hopper": ((128, 128),), "blackwell": ((128, 128), (192, 128))}
"""Generation -> widest heads of queries and keys, and of values, of cuDNN's backward pass in fp8; Hopper's
takes that width alone.  Source: Transformer Engine 2.16, common/fused_attn/fused_attn.cpp,
nvte_get_fused_attn_backend (cuDNN 9.7, and 9.21 for heads of 192 and 128)."""

STEP = 16
"""Width that those of heads in fp8 are a multiple of (same place)."""

SLOWER_FROM = 8192
"""Shortest measured sequence whose causal backward pass in fp8 is slower than in 16 bits on Hopper
(compute/data/attention.yaml: 430 and 541 TFLOP/s; at 4,096 tokens 471 and 474)."""

LEAVE = "leave attention out of dtype_also"


def scaling_of(job: TrainingJob) -> Scaling:
    """How a job's attention scales what it multiplies in 8 bits; '' in 16 bits."""
    if "attention" not in job.dtype_also:
        return ""
    if job.dtype == "mxfp8":
        return "mxfp8"
    return "current" if amax_over(job) == "none" else "delayed"


def check_attention(job: TrainingJob, arch: Transformer, generation: str) -> None:
    """Raise PlanError where Transformer Engine does not run a job's attention in 8 bits.

    generation  of its GPUs; '' where none is known
    Source: Transformer Engine 2.16, dot_product_attention/utils.py (get_attention_backend,
    combine_and_quantize) and common/fused_attn/fused_attn.cpp (nvte_get_fused_attn_backend).
    """
    scaling = scaling_of(job)
    if not scaling:
        return
    why = _refused(job, arch, scaling) or (generation and _refused_on(job, arch, generation, scaling))
    if why:
        raise PlanError(f"{job.name}: attention in {job.dtype} {why}; {LEAVE}.")


def _refused(job: TrainingJob, arch: Transformer, scaling: Scaling) -> str:
    """Why no GPU runs it; '' where some do."""
    if era_of(job).attention != "flash":
        return f"is a fused kernel, and software {job.software} writes scores to memory"
    if job.attended < job.sequence:
        return "takes no packed samples (sample_length)"
    if scaling != "mxfp8":
        if era_of(job).framework != "megatron":
            return f"is Transformer Engine's in Megatron-LM and NeMo, and software is {job.software}"
        return "takes no ALiBi" if arch.alibi else ""
    here = job.sequence // job.layout.context
    if here % TOKENS:
        return f"wants a multiple of {TOKENS} tokens of a sequence on every rank, and there are {here}"
    odd = sorted(width for width in widths_of(arch) if width % BLOCK)
    return f"wants heads of a multiple of {BLOCK}, and {arch.name} has {odd[0]}" if odd else ""


def widths_of(arch: Transformer) -> tuple[int, int]:
    """Elements of a head's queries and keys, and of its values."""
    if arch.attention == "mla":
        return arch.head_dim + arch.rope_dim, arch.v_head_dim
    return arch.head_dim, value_width(arch)


def _refused_on(job: TrainingJob, arch: Transformer, generation: str, scaling: Scaling) -> str:
    """Why GPUs of a generation do not run it, or ''."""
    family = "blackwell" if generation in LIKE_BLACKWELL else generation
    if family not in WIDTHS or (scaling == "mxfp8" and family == "hopper"):
        runs = "Blackwell" if scaling == "mxfp8" else "Hopper and Blackwell"
        return f"runs on NVIDIA's data-centre GPUs of generation {runs}, and these are {generation}"
    if scaling == "mxfp8":
        return ""
    query, value = widths_of(arch)
    fits = any(query <= q and value <= v for q, v in WIDTHS[family])
    whole = query % STEP == value % STEP == 0 and (family != "hopper" or query == value == 128)
    if not (fits and whole):
        wide = " or ".join(f"{q} and {v}" for q, v in WIDTHS[family])
        of = "" if family == "hopper" else f" at most, multiples of {STEP}"
        return f"takes heads of {wide}{of} on {family}, and {arch.name} has {query} and {value}"
    return _refused_on_hopper(job, arch, scaling) if family == "hopper" else ""


def _refused_on_hopper(job: TrainingJob, arch: Transformer, scaling: Scaling) -> str:
    if scaling == "current":
        return (
            "with current scaling (amax_over none) runs on Blackwell alone, and these are hopper: set "
            "amax_over to stage or tensor, which is delayed scaling"
        )
    if arch.sliding_window or arch.attention_sinks or arch.window_sinks:
        what = "sliding windows" if arch.sliding_window else "attention sinks"
        return f"takes no {what} on Hopper, and {arch.name} has them"
    if job.layout.context > 1 and job.layout.context_kind == "all-gather":
        return "takes no context_kind all-gather on Hopper, whose masks all begin at the first key"
    return ""


def of_kernels(job: TrainingJob, gpu: Gpu) -> list[str]:
    """What is not known of the kernels of attention in fp8, and where they take longer than those in 16 bits.

    Source: compute/data/attention.yaml.
    """
    if scaling_of(job) not in ("delayed", "current"):
        return []
    hopper = gpu.generation == "hopper"
    measured = (
        "9.19 on H200; of other releases and GPUs of Hopper nothing is published."
        if hopper
        else "9.22 on GB200 and GB300; older ones are slower."
    )
    found = [
        "no published step in our tables has attention in fp8: its kernels are those of NVIDIA's benchmark, "
        f"cuDNN {measured}"
    ]
    if hopper and job.attended >= SLOWER_FROM:
        found.append(
            f"attention in fp8 takes longer than in 16 bits on Hopper from {SLOWER_FROM:,} tokens on, as "
            f"cuDNN's causal backward pass was measured; {LEAVE} to save that time."
        )
    return found


def check_stored(job: TrainingJob, arch: Transformer) -> None:
    """Raise PlanError where Megatron-LM does not keep the input of an activation in fp8.

    Source: Megatron-LM d98e8a6, core/transformer/transformer_config.py (SwiGLU alone), mlp.py and
    moe/experts.py (its fused activation alone).
    """
    if job.activation_input_dtype != "fp8":
        return
    era = era_of(job)
    wrong = {
        f"{arch.name} has none ({arch.details.activation or 'no gate'})": not has_swiglu(arch),
        f"it is Megatron-LM's and NeMo's since 2023, and software is {job.software}": (
            era.framework != "megatron" or era.attention != "flash"
        ),
        "its fused kernels alone do that, and unfused names activation": "activation" in job.unfused,
        f"kernels of software {job.software} that run experts as one MLP are not known to do so": (
            arch.is_moe and era.fused_experts
        ),
    }
    for why, is_so in wrong.items():
        if is_so:
            raise PlanError(
                f"{job.name}: activation_input_dtype fp8 keeps the input of SwiGLU in fp8; {why}. "
                "Leave activation_input_dtype at bf16."
            )


def has_swiglu(arch: Transformer) -> bool:
    """Whether a model's gates are SiLU's; where a configuration does not say, gates are taken for those."""
    return arch.gated and arch.details.activation in ("", "silu", "swish", "swiglu")


def of_narrow(job: TrainingJob) -> list[str]:
    """What does nothing of attention in 8 bits and of inputs kept in them, or is not known of it."""
    found = []
    if job.activation_input_dtype == "fp8" and job.layout.recompute == "full":
        layers = " of the layers that run again" if job.layout.recompute_layers is not None else ""
        found.append(
            f"activation_input_dtype fp8 saves nothing{layers}: with recompute full a layer keeps its input "
            "alone, and the casts run all the same."
        )
    if scaling_of(job) == "current":
        found.append(
            "attention in fp8 with current scaling takes the rates measured with outputs in 8 bits; its own "
            "are in 16, and none was published."
        )
    return found
