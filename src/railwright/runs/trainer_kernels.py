"""The kernels that a run of Hugging Face's Trainer asks for.

Sources: as `trainer`'s.
"""

from __future__ import annotations

from typing import Any

from railwright.runs.given import Given

EAGER = ("rotary", "norm", "activation")
"""What Hugging Face's models run one kernel per operation."""

PLUGINS = ("CutCrossEntropyPlugin", "LigerPlugin", "SwanLabPlugin")
"""Axolotl's plugins whose effect is read, or that have none on a step."""

WRITTEN = {
    ("flash_attn", "disabled"), ("flash_attn", "false"), ("attn_implementation", "eager"),
    ("eager_attention", "true"),
}  # fmt: skip
"""What asks for attention that is no fused kernel (LLaMA-Factory, model/model_utils/attention.py: eager)."""

FUSED = ("", "auto", "true", "fa2", "sdpa", "flash_attention_2", "xformers")
"""Kernels of attention that are predicted as they are."""


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


def told_of_attention(given: Given) -> None:
    """Attention's kernel, where it is not the one that is predicted: FlashAttention-2, or PyTorch's of it."""
    asked = [(name, given.told(name).lower()) for name in ("flash_attn", "attn_implementation")]
    if given.yes("eager_attention"):
        asked.append(("eager_attention", "true"))
    for name, told in asked:
        if (name, told) in WRITTEN:
            given.doubts.append(
                f"attention that writes its scores ({name}: {told}) is predicted as a fused kernel, which "
                "takes less time and memory"
            )
        elif told not in FUSED:
            given.doubts.append(f"attention by {told} is predicted as FlashAttention-2")
