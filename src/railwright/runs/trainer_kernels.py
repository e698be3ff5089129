"""The kernels that a run of Hugging Face's Trainer asks for.

Sources: as `trainer`'s.
"""

from __future__ import annotations

from typing import Any

from railwright.model.shape.architecture import Transformer
from railwright.runs.given import Given
from railwright.spec.training import Software
from railwright.training.software.eras import eras

EAGER = ("rotary", "norm", "activation")
"""What Hugging Face's models run one kernel per operation."""

PLUGINS = ("CutCrossEntropyPlugin", "LigerPlugin", "SwanLabPlugin")
"""Axolotl's plugins whose effect is read, or that have none on a step."""

WRITTEN = {
    ("flash_attn", "disabled"), ("flash_attn", "false"), ("attn_implementation", "eager"),
    ("eager_attention", "true"),
}  # fmt: skip
"""What asks for attention that is no fused kernel (LLaMA-Factory, model/model_utils/attention.py: eager)."""

FLASH_2 = ("fa2", "flash_attention_2", "true", "xformers")
"""FlashAttention-2, and what is predicted as it; 'true' of a key that names no kernel, as Axolotl's."""

FLASH_3 = ("fa3", "flash_attention_3")
"""FlashAttention-3, of which cuDNN's kernels are the nearest (compute/data/attention.yaml, Hopper)."""

CHOSEN = ("", "auto", "sdpa")
"""What leaves the kernel to PyTorch (LLaMA-Factory's 'auto' names none to transformers, which take sdpa)."""

SWITCHES = ("flash_attention", "xformers_attention", "flex_attention", "eager_attention")
"""Axolotl's keys that ask for a kernel by being true."""


def kernels(given: Given) -> dict[str, Any]:
    """Liger's kernels, or Hugging Face's own."""
    whole = given.yes("enable_liger_kernel") or given.yes("use_liger_kernel") or given.yes("use_liger")
    parts = {"rotary": "liger_rope", "norm": "liger_rms_norm", "activation": "liger_glu_activation"}
    fused = {part for part, key in parts.items() if whole or given.yes(key)}
    if given.yes("torch_compile"):
        fused |= set(EAGER)
    unfused = tuple(part for part in EAGER if part not in fused)
    found: dict[str, Any] = {"unfused": unfused} if unfused else {}
    plugins = {one.rsplit(".", 1)[-1] for one in given.words("plugins")}
    if other := sorted(plugins - set(PLUGINS)):
        given.doubts.append(f"what {', '.join(other)} changes is not modelled")
    if whole or given.yes("liger_fused_linear_cross_entropy"):
        found["chunked_loss"] = "liger"
    # on unless it is turned off, once its plugin is there (integrations/cut_cross_entropy/args.py)
    elif given.yes("cut_cross_entropy", PLUGINS[0] in plugins):
        given.doubts.append("Cut Cross-Entropy is predicted as Liger's loss in chunks")
        found["chunked_loss"] = "liger"
    return found


def attention(given: Given, software: Software, arch: Transformer) -> dict[str, Any]:
    """Whose kernel runs attention, and what it is predicted as where that is another one.

    Nothing in a script tells PyTorch's release, so that its own choice is that of today's.  With sinks it has
    none: transformers' gpt-oss runs eager attention where no kernel is named (_supports_sdpa is False).
    """
    asked = [(name, given.told(name).lower()) for name in ("flash_attn", "attn_implementation")]
    asked += [(name, "true") for name in SWITCHES if given.yes(name)]
    named = [(name, told) for name, told in asked if told not in CHOSEN]
    for name, told in named:
        if (name, told) in WRITTEN:
            given.doubts.append(
                f"attention that writes its scores ({name}: {told}) is predicted as a fused kernel, which "
                "takes less time and memory"
            )
            return {}
    if not named and (arch.attention_sinks or arch.window_sinks):
        given.doubts.append(
            "attention with sinks writes its scores where no other is named (attn_implementation), and is "
            "predicted as a fused kernel, which takes less time and memory"
        )
        return {}
    if not named:
        older = eras()[software].like
        before = f"--software {older}" if older else "attention_backend: flash"
        given.doubts.append(
            "attention is PyTorch's own choice, predicted as of 2.11: cuDNN's on H100 and B200; with an "
            f"older one say {before}"
        )
        return {} if older else {"attention_backend": "fused"}
    name, told = named[0]
    kernel = told.rsplit("/", 1)[-1]
    if kernel in FLASH_3 or kernel.endswith("flash-attn3"):
        given.doubts.append(f"attention by {told} is predicted as cuDNN's")
        return {"attention_backend": "fused"}
    if kernel not in FLASH_2 or name == "flex_attention":
        other = name if told == "true" else told
        given.doubts.append(f"attention by {other} is predicted as FlashAttention-2")
    return {"attention_backend": "flash"}
