"""Families with GPT's layers under keys of their own: an MLP of two products, queries that are not grouped.

Each function knows what its family fixes outside the config, as in huggingface/transformers (5.24) and, for
Jais, in the modelling code beside its checkpoints.
"""

from __future__ import annotations

from dataclasses import replace

from railwright.model.configs.family_parts import gpt, need_heads_divide, untied, windowed
from railwright.model.configs.keys import Keys
from railwright.model.shape.architecture import Transformer


def gptj(keys: Keys, name: str) -> Transformer:
    """GPT-J and CodeGen: attention without biases beside the MLP behind one norm, a biased LM head."""
    hidden, heads = keys.whole("n_embd"), keys.whole("n_head")
    need_heads_divide(keys, hidden, heads, "n_embd", "n_head")
    untied(keys)
    positions, ffn = keys.whole("n_positions", 2048), keys.whole("n_inner", 4 * hidden)
    base = gpt(keys, name, "n_layer", hidden, heads, ffn, biased=True, positions=positions)
    return replace(
        base,
        tied_embeddings=False,
        attention_bias=False,
        output_bias=False,
        head_bias=True,
        parallel_blocks=True,
        norms_per_layer=1,
    )


def gpt_neo(keys: Keys, name: str) -> Transformer:
    """GPT-Neo: no bias on queries, keys and values; every other layer has a window, the first has none."""
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_heads")
    need_heads_divide(keys, hidden, heads, "hidden_size", "num_heads")
    positions = keys.whole("max_position_embeddings", 2048)
    ffn = keys.whole("intermediate_size", 4 * hidden)
    base = gpt(keys, name, "num_layers", hidden, heads, ffn, biased=True, positions=positions)
    arch = replace(base, attention_bias=False, position_embeddings=positions)
    full = _global_layers(keys, arch.layers)
    return windowed(arch, keys.whole("window_size", 256), full)


def _global_layers(keys: Keys, layers: int) -> list[bool]:
    """Which layers see the whole sequence, of [[[kind, …], times], …] under `attention_types`."""
    types = keys.raw("attention_types")
    if types is None:
        # the class' own default, of a model with 24 layers
        types = [[["global", "local"], 12]]
    right = isinstance(types, list) and all(_is_run(run) for run in types)
    right = right and sum(len(kinds) * times for kinds, times in types) == layers
    keys.need(
        right,
        "attention_types",
        f"pairs of a list of global, local and how often it comes are expected, {layers} layers in all.",
    )
    return (
        [kind == "global" for kinds, times in types for kind in kinds * times] if right else [True] * layers
    )


def _is_run(run: object) -> bool:
    if not isinstance(run, list) or len(run) != 2:
        return False
    kinds, times = run
    known = isinstance(kinds, list) and all(kind in ("global", "local") for kind in kinds)
    return known and type(times) is int and times > 0


def xglm(keys: Keys, name: str) -> Transformer:
    """XGLM: GPT-3's layers; sines are added to the embedding, which are no parameters."""
    hidden, heads = keys.whole("d_model"), keys.whole("attention_heads")
    need_heads_divide(keys, hidden, heads, "d_model", "attention_heads")
    positions, ffn = keys.whole("max_position_embeddings", 2048), keys.whole("ffn_dim")
    return gpt(keys, name, "num_layers", hidden, heads, ffn, biased=True, positions=positions)


def biogpt(keys: Keys, name: str) -> Transformer:
    """BioGPT: GPT-3's layers; two more rows of positions than there are."""
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    positions, ffn = keys.whole("max_position_embeddings", 1024), keys.whole("intermediate_size")
    base = gpt(keys, name, "num_hidden_layers", hidden, heads, ffn, biased=True, positions=positions)
    return replace(base, position_embeddings=positions + 2)


def jais(keys: Keys, name: str) -> Transformer:
    """Jais of 2023: GPT-2 with ALiBi and a gated MLP, as the keys say."""
    hidden, heads = keys.whole("n_embd"), keys.whole("n_head")
    need_heads_divide(keys, hidden, heads, "n_embd", "n_head")
    positions, ffn = keys.whole("n_positions", 1024), keys.whole("n_inner", 4 * hidden)
    base = gpt(keys, name, "n_layer", hidden, heads, ffn, biased=True, positions=positions)
    alibi = keys.raw("position_embedding_type") == "alibi"
    return replace(
        base,
        gated=keys.raw("activation_function") == "swiglu",
        alibi=alibi,
        position_embeddings=0 if alibi else positions,
    )
