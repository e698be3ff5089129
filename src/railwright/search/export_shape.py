"""A model's shape as Megatron-LM's arguments, and what of the model they do not say.

Only sizes that our description holds are written; what it does not know (activation, rotary base, router) and
what Megatron has no argument for is a comment.
Source, read 2026-11-25: Megatron-LM d98e8a6, megatron/training/arguments.py and core/transformer/
transformer_config.py.
"""

from __future__ import annotations

from itertools import groupby
from shlex import quote

from railwright.model.architecture import Transformer
from railwright.model.pattern import PARTS, has_attention, has_dense, is_hybrid, layer_kinds
from railwright.spec.training import TrainingJob

DIVISIBLE = 128
"""Megatron's default of --make-vocab-size-divisible-by."""


def shape(job: TrainingJob, arch: Transformer) -> list[str]:
    """Arguments for the sizes of a model's parts, behind comments."""
    lines = [] if is_hybrid(arch) else [f"--num-layers {arch.layers}"]
    lines.append(f"--hidden-size {arch.hidden}")
    if has_dense(arch):
        lines.append(f"--ffn-hidden-size {arch.ffn}")
    lines += [*_attention(arch), *_positions(job, arch), *_layers(arch), *_experts(arch)]
    if arch.mtp_layers and not is_hybrid(arch):
        lines.append(f"--mtp-num-layers {arch.mtp_layers}")
    if not arch.tied_embeddings:
        lines.append("--untie-embeddings-and-output-weights")
    if arch.vocab_multiple != DIVISIBLE:
        lines.append(f"--make-vocab-size-divisible-by {arch.vocab_multiple}")
    return [*(f"# {sentence}" for sentence in _to_add(arch)), *lines]


def _attention(arch: Transformer) -> list[str]:
    if not has_attention(arch):
        return []
    lines = [f"--num-attention-heads {arch.heads}"]
    if arch.heads * arch.head_dim != arch.hidden:
        lines.append(f"--kv-channels {arch.head_dim}")
    if arch.attention == "mla":
        lines.append("--multi-latent-attention")
        lines += [f"--q-lora-rank {arch.q_lora}"] if arch.q_lora else []
        lines += [
            f"--kv-lora-rank {arch.kv_lora}",
            f"--qk-head-dim {arch.head_dim}",
            f"--qk-pos-emb-head-dim {arch.rope_dim}",
            f"--v-head-dim {arch.v_head_dim}",
        ]
    elif arch.kv_heads != arch.heads:
        lines += ["--group-query-attention", f"--num-query-groups {arch.kv_heads}"]
    if arch.qk_norm and arch.qk_norm_gains == "head":
        lines.append("--qk-layernorm")
    if arch.attention_sinks and not arch.window_sinks:
        lines.append("--softmax-type learnable")
    return lines


def _positions(job: TrainingJob, arch: Transformer) -> list[str]:
    kind = "none"
    if arch.position_embeddings:
        kind = "learned_absolute"
    elif has_attention(arch) and arch.rotary and not arch.alibi:
        kind = "yarn" if arch.yarn and arch.attention == "gqa" else "rope"
    most = max(arch.position_embeddings or arch.max_positions, job.sequence)
    return [f"--position-embedding-type {kind}", f"--max-position-embeddings {most}"]


def _layers(arch: Transformer) -> list[str]:
    """What all layers are made of: gated MLPs, norms, biases."""
    lines = ["--swiglu"] if arch.gated else []
    lines.append(f"--normalization {'LayerNorm' if arch.norm_bias else 'RMSNorm'}")
    biases = _biases(arch)
    if biases in (set(), {"qkv"}):
        lines.append("--disable-bias-linear")
    if biases == {"qkv"}:
        lines.append("--add-qkv-bias")
    return lines


def _biases(arch: Transformer) -> set[str]:
    given = {"qkv": arch.attention_bias, "output": arch.output_bias, "mlp": arch.mlp_bias}
    return {name for name, has in given.items() if has}


def _experts(arch: Transformer) -> list[str]:
    if not arch.is_moe:
        return []
    lines = [
        f"--num-experts {arch.experts}",
        f"--moe-router-topk {arch.experts_per_token}",
        f"--moe-ffn-hidden-size {arch.expert_ffn}",
    ]
    if has_dense(arch) and not is_hybrid(arch):
        lines.append(f"--moe-layer-freq {quote(_frequency(arch))}")
    if arch.shared_ffn and not arch.shared_norm:
        lines.append(f"--moe-shared-expert-intermediate-size {arch.shared_ffn}")
        lines += ["--moe-shared-expert-gate"] if arch.shared_gate else []
    if arch.expert_latent:
        lines.append(f"--moe-latent-size {arch.expert_latent}")
    return lines


def _frequency(arch: Transformer) -> str:
    """'([0]*3+[1]*58)': which layers have experts, as a list in Python's words."""
    has = [int(PARTS[kind].mlp == "moe") for kind in layer_kinds(arch)[: arch.layers]]
    return "(" + "+".join(f"[{value}]*{len(list(run))}" for value, run in groupby(has)) + ")"


def _to_add(arch: Transformer) -> list[str]:
    """What the arguments of a shape leave to the reader."""
    activation = "SiLU in its gated MLPs (--swiglu)" if arch.gated else "GeLU in its MLPs (no --swiglu)"
    norms = "" if arch.norm_bias else ", RMSNorm where norms have no biases"
    found = [
        f"the shape of {arch.name}; taken, since it is not known here: {activation}{norms}",
        f"to add: the tokenizer, which brings the {arch.vocab} rows of the vocabulary (--tokenizer-type)",
    ]
    if has_attention(arch) and arch.rotary and not arch.position_embeddings and not arch.alibi:
        found.append("to add: --rotary-base, --rotary-percent and scaling of its rotary positions")
    if arch.is_moe:
        found.append("to add: the router's scores, groups and balancing (--moe-router-…)")
    if arch.linear is not None:
        found.append("to add: heads and states of its linear layers (--mamba-… or --linear-…)")
    if arch.sliding_window:
        found.append(
            f"to add: windows of {arch.sliding_window} tokens (--window-size, --window-attn-skip-freq)"
        )
    beyond = [words for words, so in _beyond(arch).items() if so]
    if beyond:
        found.append(f"not in these arguments, and to be looked after: {'; '.join(beyond)}")
    return found


def _beyond(arch: Transformer) -> dict[str, bool]:
    """What a model has that the arguments above do not describe."""
    return {
        "biases on some linear layers only": _biases(arch) not in (set(), {"qkv"}, {"qkv", "output", "mlp"}),
        "biases of the router": arch.router_bias,
        "norms of queries and keys over all heads or without gains": arch.qk_norm
        and arch.qk_norm_gains != "head",
        "norms of values": arch.value_norm,
        "values made by the product of the keys": arch.shared_values,
        "sinks in windowed layers alone": arch.window_sinks,
        "ALiBi": arch.alibi,
        "attention and MLP beside each other": arch.parallel_blocks,
        f"{arch.norms_per_layer} norms in a layer": arch.norms_per_layer != 2,
        "norms without gains": not arch.norm_gain,
        "a norm behind the embedding": arch.embedding_norm,
        "a dense MLP beside the experts": arch.shared_norm,
        "biases of the LM head": arch.head_bias,
    }
