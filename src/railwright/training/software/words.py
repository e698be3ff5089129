"""Software eras in words: what each runs, and which GPUs have published steps behind it.

For lists and pages (`railwright catalog list software`, docs/training/eras.md); nothing here changes a step.
"""

from __future__ import annotations

from railwright.spec.training import TrainingJob
from railwright.training.software.eras import Era, Pace, eras
from railwright.units import show_time

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Heads and rows."""

DEFAULT = str(TrainingJob.model_fields["software"].default)
"""The era of a job that names none."""

ATTENTION = {
    "flash": "the GPU's usual fused kernel",
    "unfused": "scores written to memory",
}
KERNELS = {"flash-2": "FlashAttention-2", "triton flash-2": "FlashAttention-2 in Triton"}
"""Of those named in compute/data/attention.yaml."""

LOSS = {
    "fused": "one kernel forward, one backward (Transformer Engine)",
    "compiled": "compiled into a few kernels",
    "torch": "PyTorch's own kernels",
    "eager": "Megatron's, a kernel per operation",
    "traced": "PyTorch's, over the sequence (vTrain's profiler)",
}
ALLOCATOR = {
    "segments": "PyTorch's, segments of fixed sizes",
    "growing": "PyTorch's, segments that grow (expandable_segments)",
    "jax": "JAX's",
}
LAUNCHER = {
    "python": "PyTorch, one by one",
    "inductor": "torch.compile's wrapper of a layer",
    "native": "a compiled program, without Python",
}
HIDES_SENDS = {"never": "no", "interleaved": "interleaved schedules", "always": "yes"}


def known() -> Table:
    """Every era: which software it is, and who should choose it."""
    return ("era", "software", "choose it when"), [(e.name, e.what, e.when) for e in eras().values()]


def differing() -> Table:
    """Every era: how it runs what eras run differently."""
    told = {name: differences(one) for name, one in eras().items()}
    heads = tuple(what for what, _ in next(iter(told.values())))
    return ("era", *heads), [(name, *(how for _, how in rows)) for name, rows in told.items()]


def behind() -> Table:
    """Every era: the GPUs and widths whose published steps it was fitted on, with how many."""
    none = {one.name: f"none: those of {one.like}" if one.like else "none" for one in eras().values()}
    rows: list[tuple[str, ...]] = [(e.name, steps_of(e) or none[e.name]) for e in eras().values()]
    return ("era", "published steps"), rows


def differences(era: Era) -> list[tuple[str, str]]:
    """(part of a step, how an era runs it)."""
    return [
        ("attention", _attention(era)),
        ("cross-entropy", LOSS[era.loss]),
        ("memory allocator", ALLOCATOR[era.allocator]),
        ("launches kernels", LAUNCHER[era.launcher]),
        ("hides pipeline sends", HIDES_SENDS[era.hides_sends]),
        ("besides", "; ".join(_besides(era)) or "–"),
    ]


def _attention(era: Era) -> str:
    how = KERNELS[era.flash] if era.flash else ATTENTION[era.attention]
    return f"{how}, with dropout" if era.dropout else how


def _besides(era: Era) -> list[str]:
    """What an era does that most do not."""
    told = {
        "DeepSpeed runs it and holds memory of its own": era.deepspeed,
        "FSDP2 gathers and reduces on streams of its own": bool(era.units),
        "embedding and head are one unit of its shards": era.units == "joined",
        "gradients are reduced and kept in 16 bits; ZeRO-1 and 2 reduce them whole and gather weights behind "
        "the step": era.zero_engine,
        "CUDA loads all kernels at the start": not era.lazy_kernels,
        "pipeline sends are cut over tensor ranks": era.scatter_gather,
        "weight gradients of microbatches are added by kernels of their own": era.sums_gradients,
        "linear layers reduce the gradient of their input beside that of their weights": era.async_linear,
        "recomputation drops what the backward pass does not read": not era.repeats,
        "fp8 maxima are agreed on by all of a pipeline stage": era.amax_over == "stage",
        "fp8 casts are kernels of torch.compile": era.compiled_casts,
        "YaRN's rotary positions are not fused": not era.fuses_yarn,
        "parts of layers can be CUDA graphs (`cuda_graphs`)": era.graphs,
        "8-bit experts on Blackwell are one fused MLP": era.fused_experts,
        "one kernel casts to NVFP4 along rows and columns": era.turns_while_casting,
        "its backward kernel keeps sums of biases' gradients in memory": era.spills_biases,
    }
    return [words for words, so in told.items() if so]


def steps_of(era: Era) -> str:
    """'H100 16-bit: 46, H100 fp8: 64'; '' where the era has none of its own."""
    if era.like:
        return ""
    return ", ".join(f"{titled(key)}: {pace.records}" for key, pace in era.pace.items() if pace.records)


def titled(key: str) -> str:
    """'GB200 fp8' and 'Hopper 16-bit' of an era's keys: GPUs have digits in their names, generations none."""
    name, width = key.split(" ")
    return f"{name.upper() if any(c.isdigit() for c in name) else name.capitalize()} {width}"


def factors(pace: Pace) -> str:
    """'products 1.33, attention 1.37, memory-bound kernels 1.26 times as long as alone; …'."""
    if pace == Pace():
        return "kernels as long as alone"
    told = (
        f"products {pace.gemm:.3g}, attention {pace.attention:.3g}, memory-bound kernels {pace.memory:.3g} "
        "times as long as alone"
    )
    told += f"; {show_time(pace.gap)} more between two kernels" if pace.gap else ""
    return told + (f"; {show_time(pace.step)} more a step" if pace.step else "")
