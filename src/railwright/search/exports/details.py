"""What a model computes beside its shape, as Megatron-LM's arguments, and as comments where those are other.

Sources, at Megatron-LM d98e8a6: megatron/training/argument_utils.py (core_transformer_config_from_args: gated
are --swiglu and --quick-geglu alone), arguments.py (--no-rope-freq; softmax_scale, activation_func and
gated_linear_unit are excluded), core/transformer/torch_norm.py (L2Norm); examples/gptoss/02_train.sh.
"""

from __future__ import annotations

from itertools import groupby
from shlex import quote

from railwright.model.operators.mlp_kernels import SQUARED
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import is_hybrid

SWIGLU = ("", "silu", "swish", "swiglu")
"""What --swiglu is; a model of which nothing is said is taken for one of these."""


def activation(arch: Transformer) -> list[str]:
    """Arguments for what MLPs and experts multiply by, or the nearest that there are."""
    if not arch.gated:
        if arch.details.activation not in SQUARED:
            return []
        # beside biases it would be fused with them, which only GeLU is (TransformerConfig.__post_init__)
        biased = arch.mlp_bias or arch.output_bias
        return ["--squared-relu", *(["--no-bias-gelu-fusion"] if biased else [])]
    if arch.details.activation != "quick_gelu":
        return ["--swiglu"]
    lines = ["--quick-geglu"]
    if arch.details.gate_offset:
        lines.append(f"--glu-linear-offset {arch.details.gate_offset}")
    if arch.details.gate_limit:
        lines.append(f"--activation-func-clamp-value {arch.details.gate_limit}")
    return lines


def normalization(arch: Transformer) -> list[str]:
    """Arguments for the kind of its norms, and for their epsilon where it is known."""
    layer_norm = arch.norm_bias or arch.details.norm == "LayerNorm"
    epsilon = arch.details.norm_epsilon
    said = [f"--norm-epsilon {epsilon:g}"] if epsilon else []
    return [f"--normalization {'LayerNorm' if layer_norm else 'RMSNorm'}", *said]


def rotary_base(arch: Transformer) -> list[str]:
    """The argument for the base of rotary positions, a whole number there; none where it is not known."""
    base = arch.details.rotary_base
    return [f"--rotary-base {base:.0f}"] if base and base == int(base) else []


def unturned(arch: Transformer) -> list[str]:
    """The argument for layers without rotary positions: every so many, or each."""
    skipped = arch.details.unturned
    if not skipped or is_hybrid(arch):
        return []
    every = skipped[0] + 1
    if skipped == tuple(range(every - 1, arch.layers, every)) and arch.layers % every == 0:
        return [f"--no-rope-freq {every}"]
    return [f"--no-rope-freq {quote(pattern([i in skipped for i in range(arch.layers)]))}"]


def pattern(has: list[bool]) -> str:
    """'([0]*3+[1]*58)': one number a layer, as a list in Python's words."""
    return "(" + "+".join(f"[{int(value)}]*{len(list(run))}" for value, run in groupby(has)) + ")"


def taken(arch: Transformer) -> list[str]:
    """What was taken for granted, and what must be compared with the model's own file."""
    found = []
    if not arch.details.activation:
        found.append("SiLU in its gated MLPs (--swiglu)" if arch.gated else "GeLU in its MLPs (no --swiglu)")
    if not arch.details.norm and not arch.norm_bias:
        found.append("RMSNorm")
    assumed = [f"taken, since neither its config.json nor its family says it here: {', '.join(found)}"]
    return [
        *(assumed if found else []),
        "read for its shape, and for little beside it: compare with its config.json the activation, the kind "
        "of norms and what their gains are added to, multipliers of embeddings, residuals, attention and "
        "logits, softcaps, and which layers have which positions",
    ]


def other(arch: Transformer) -> list[str]:
    """What is known of it and has no argument."""
    details, name = arch.details, arch.details.activation
    found = []
    if arch.gated and name not in (*SWIGLU, "quick_gelu"):
        found.append(
            f"gates of {name}: --swiglu has the same shape and SiLU; a field (activation_func beside "
            "gated_linear_unit), no argument"
        )
    elif not arch.gated and name not in ("", "gelu", *SQUARED):
        found.append(f"activation {name}: GeLU is what runs; a field (activation_func), no argument")
    if details.scales:
        found.append(f"{', '.join(details.scales)}: multipliers and caps, for which there are no arguments")
    if details.norm == "LayerNorm" and not arch.norm_bias and arch.norm_gain:
        found.append("norms without biases: Megatron's LayerNorm has them")
    # Llama 4's; Muse Glimmer, with windows, norms them in all layers
    if details.unturned and arch.window_chunked and arch.qk_norm and arch.qk_norm_gains == "none":
        found.append("queries and keys without rotary positions are not normed: --qk-l2-norm norms all")
    if details.unturned and is_hybrid(arch):
        found.append("some layers have no rotary positions: --no-rope-freq counts other layers here")
    return found
