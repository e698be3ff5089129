"""A model's shape as Megatron-LM's arguments, and what of the model they do not say.

Only what our description holds is written; what it does not know (rotary base, router) and what Megatron has
no argument for is a comment.
Source, read 2026-11-25: Megatron-LM d98e8a6, megatron/training/arguments.py and core/transformer/
transformer_config.py.
"""

from __future__ import annotations

from shlex import quote

from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import PARTS, has_attention, has_dense, is_hybrid, layer_kinds
from railwright.search.exports.details import (
    activation,
    normalization,
    other,
    pattern,
    rotary_base,
    taken,
    unturned,
)
from railwright.spec.training import TrainingJob
from railwright.units import number

DIVISIBLE = 128
"""Megatron's default of --make-vocab-size-divisible-by."""

QK_NORMS = {"head": "--qk-layernorm", "none": "--qk-l2-norm"}
"""Norms of queries and keys by whose gains they have; none is Llama 4's (`TransformerConfig.qk_l2_norm`)."""


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
    return [*(f"# {sentence}" for sentence in _to_add(job, arch)), *lines]


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
    if arch.attention == "mla":
        # Megatron's latents have norms with this argument alone (gpt_layer_specs.py), its hybrids' never.
        lines += [] if is_hybrid(arch) else [QK_NORMS["head"]]
    elif arch.qk_norm and arch.qk_norm_gains in QK_NORMS:
        lines.append(QK_NORMS[arch.qk_norm_gains])
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
    lines = [f"--position-embedding-type {kind}", f"--max-position-embeddings {most}"]
    if kind not in ("rope", "yarn"):
        return lines
    return [*lines, *rotary_base(arch), *unturned(arch)]


def _layers(arch: Transformer) -> list[str]:
    """What all layers are made of: activation, norms, biases."""
    lines = [*activation(arch), *normalization(arch)]
    lines += [] if has_biases(arch) else ["--disable-bias-linear"]
    if _biases(arch) == {"qkv"}:
        lines.append("--add-qkv-bias")
    return lines


def has_biases(arch: Transformer) -> bool:
    """Whether Megatron's linear layers all have biases: it has a switch for those of queries, keys and values
    alone, and one for all (--disable-bias-linear)."""
    return arch.output_bias or arch.mlp_bias


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
    """Which layers have experts."""
    return pattern([PARTS[kind].mlp == "moe" for kind in layer_kinds(arch)[: arch.layers]])


def _to_add(job: TrainingJob, arch: Transformer) -> list[str]:
    """What the arguments of a shape leave to the reader."""
    first, *rest = taken(arch)
    found = [
        f"the shape of {arch.name}; {first}",
        *rest,
        *other(arch),
        f"to add: the tokenizer, which brings the {arch.vocab} rows of the vocabulary (--tokenizer-type)",
    ]
    if has_attention(arch) and arch.rotary and not arch.position_embeddings and not arch.alibi:
        base = "" if rotary_base(arch) else "--rotary-base, "
        found.append(f"to add: {base}--rotary-percent and scaling of its rotary positions")
    if not arch.details.norm_epsilon:
        found.append("to add: --norm-epsilon, unless that of its norms is Megatron's 1e-5")
    if arch.is_moe:
        single = "; of one expert a token not softmax behind the choice, Megatron's default, which it refuses"
        found.append(
            "to add: the router's scores, groups and balancing (--moe-router-…)"
            f"{single if arch.experts_per_token == 1 else ''}"
        )
    if arch.linear is not None:
        found.append("to add: heads and states of its linear layers (--mamba-… or --linear-…)")
    if arch.window_chunked and job.sequence > arch.sliding_window:
        found.append(
            f"attention within blocks of {arch.sliding_window} tokens that do not see each other: not in "
            "Megatron-LM, whose windows look back so far from every token"
        )
    elif arch.sliding_window and not arch.window_chunked:
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
        "norms of latents": arch.attention == "mla" and is_hybrid(arch),
        "norms of queries and keys over all heads": arch.qk_norm and arch.qk_norm_gains == "all",
        "norms of values": arch.value_norm,
        "values made by the product of the keys": arch.shared_values,
        "sinks in windowed layers alone": arch.window_sinks,
        "ALiBi": arch.alibi,
        "attention and MLP beside each other": arch.parallel_blocks,
        f"{number(arch.norms_per_layer, 'norm')} in a layer": arch.norms_per_layer != 2,
        "norms without gains": not arch.norm_gain,
        "a norm behind the embedding": arch.embedding_norm,
        "a dense MLP beside the experts": arch.shared_norm,
        "norms of the router and of what experts give": arch.branch_norms,
        "biases of the LM head": arch.head_bias,
    }
