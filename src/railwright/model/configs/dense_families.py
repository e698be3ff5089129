"""Families of decoders with a dense MLP in every layer.

Each function knows what its family fixes outside the config (biases, norms, gating, defaults of missing
keys), as in that family's configuration and modelling code in huggingface/transformers (5.24).
"""

from __future__ import annotations

from dataclasses import replace

from railwright.model.configs.family_parts import (
    full_layers_of,
    gpt,
    last_windowed,
    llama,
    need_heads_divide,
    normed_queries,
    plain,
    tied,
    unbiased,
    untied,
    window_of,
    windowed,
    without,
)
from railwright.model.configs.keys import Keys
from railwright.model.shape.architecture import Transformer


def mistral(keys: Keys, name: str) -> Transformer:
    """Mistral, Phi-3 and Phi-4: one window in all layers, or none; Ministral's layer_types may mix them."""
    arch = unbiased(keys, name)
    return windowed(arch, window_of(keys), full_layers_of(keys, arch.layers, 0))


def qwen2(keys: Keys, name: str) -> Transformer:
    """Qwen 2 and 2.5: biases on queries, keys and values."""
    window = window_of(keys) if keys.flag("use_sliding_window", False) else 0
    arch = replace(plain(keys, name), attention_bias=True, output_bias=False)
    return last_windowed(keys, arch, window)


def qwen3(keys: Keys, name: str) -> Transformer:
    """Qwen 3: norms on queries and keys instead of biases."""
    biased = keys.flag("attention_bias", False)
    return normed_queries(replace(qwen2(keys, name), attention_bias=biased, output_bias=biased))


def nemotron(keys: Keys, name: str) -> Transformer:
    """Nemotron-4 and Jais 2: an MLP of two matrices, norms with biases."""
    return replace(llama(keys, name), gated=False, norm_bias=True)


def glm(keys: Keys, name: str) -> Transformer:
    """GLM-4 of 2024: biases on queries, keys and values only."""
    biased = keys.flag("attention_bias", True)
    return replace(plain(keys, name), attention_bias=biased, output_bias=False)


def glm4(keys: Keys, name: str) -> Transformer:
    """GLM-4 of 2025 (9B, 32B): outputs are normed too."""
    return replace(glm(keys, name), norms_per_layer=4)


def olmo(keys: Keys, name: str) -> Transformer:
    """OLMo of 2024: Llama's layers, norms without parameters."""
    return replace(plain(keys, name), norm_gain=False)


def nanochat(keys: Keys, name: str) -> Transformer:
    """nanochat: an MLP of two matrices, norms without parameters, one of them behind the embedding."""
    arch = replace(plain(keys, name), gated=False, norm_gain=False, embedding_norm=True)
    return normed_queries(arch, "none")


def olmo2(keys: Keys, name: str) -> Transformer:
    """OLMo 2: norms behind the blocks instead of before, and over all heads of queries and keys."""
    return normed_queries(plain(keys, name), "all")


def olmo3(keys: Keys, name: str) -> Transformer:
    """OLMo 3: as OLMo 2; one layer in four sees everything."""
    arch = olmo2(keys, name)
    return windowed(arch, window_of(keys), full_layers_of(keys, arch.layers, 4))


def exaone4(keys: Keys, name: str) -> Transformer:
    """EXAONE 4: norms behind the blocks, and on queries and keys; one layer in four sees everything."""
    arch = normed_queries(unbiased(keys, name))
    pattern = keys.raw("sliding_window_pattern")
    if isinstance(pattern, str) and pattern == "L" * (len(pattern) - 1) + "G":
        every = len(pattern)
    else:
        every = keys.whole("sliding_window_pattern", 4, least=0)
    return windowed(arch, window_of(keys), full_layers_of(keys, arch.layers, every))


def hunyuan(keys: Keys, name: str) -> Transformer:
    """Hunyuan: norms on queries and keys; layers that share them (use_cla, Hunyuan-Large's) are not read."""
    without(keys, "use_cla")
    return normed_queries(plain(keys, name))


def ernie(keys: Keys, name: str) -> Transformer:
    """ERNIE 4.5: tied embeddings."""
    without(keys, "use_bias")
    return tied(keys, unbiased(keys, name))


def smollm3(keys: Keys, name: str) -> Transformer:
    """SmolLM 3: tied embeddings; layers without rotary positions count as those with them."""
    window = window_of(keys) if keys.flag("use_sliding_window", False) else 0
    arch = tied(keys, llama(keys, name))
    return windowed(arch, window, full_layers_of(keys, arch.layers, 0) if window else [True])


def cwm(keys: Keys, name: str) -> Transformer:
    """CWM: Llama's layers; the first of every four sees everything, the others have a window."""
    arch = replace(llama(keys, name), attention_bias=False, output_bias=False)
    return windowed(arch, window_of(keys), full_layers_of(keys, arch.layers, 4, first=True))


def granite_swa(keys: Keys, name: str) -> Transformer:
    """Granite with windows as CWM's, and a learned sink per head; tied embeddings."""
    arch = replace(tied(keys, llama(keys, name)), attention_sinks=True)
    return windowed(arch, window_of(keys), full_layers_of(keys, arch.layers, 4, first=True))


def helium(keys: Keys, name: str) -> Transformer:
    """Helium: no bias on attention's output."""
    return replace(llama(keys, name), output_bias=False)


def hyperclovax(keys: Keys, name: str) -> Transformer:
    """HyperCLOVA X: outputs are normed too, unless the keys say otherwise."""
    return replace(llama(keys, name), norms_per_layer=4 if keys.flag("use_post_norm", True) else 2)


def seed_oss(keys: Keys, name: str) -> Transformer:
    """Seed-OSS: biases on queries, keys and values, and one of its own on the output."""
    arch = llama(keys, name)
    out = keys.flag("attention_out_bias", False)
    return replace(arch, attention_bias=keys.flag("attention_bias", True), output_bias=out)


def cohere(keys: Keys, name: str) -> Transformer:
    """Command R: attention and MLP side by side behind one norm; perhaps norms of every head."""
    arch = replace(tied(keys, plain(keys, name)), norms_per_layer=1, parallel_blocks=True)
    return normed_queries(arch, "all") if keys.flag("use_qk_norm", False) else arch


def cohere2(keys: Keys, name: str) -> Transformer:
    """Command R7B and A: as Command R; one layer in four sees everything."""
    arch = replace(tied(keys, plain(keys, name)), norms_per_layer=1, parallel_blocks=True)
    every = keys.whole("sliding_window_pattern", 4)
    return windowed(arch, window_of(keys), full_layers_of(keys, arch.layers, every))


def starcoder2(keys: Keys, name: str) -> Transformer:
    """StarCoder 2: biases everywhere, an MLP of two matrices, tied embeddings."""
    biased = keys.flag("use_bias", True)
    return replace(
        tied(keys, plain(keys, name)),
        gated=False,
        norm_bias=True,
        attention_bias=biased,
        output_bias=biased,
        mlp_bias=biased,
        sliding_window=window_of(keys),
    )


def internlm2(keys: Keys, name: str) -> Transformer:
    """InternLM 2 and 2.5: Llama's layers; one key for the biases of attention."""
    biased = keys.flag("bias", True)
    return replace(plain(keys, name), attention_bias=biased, output_bias=biased)


def bloom(keys: Keys, name: str) -> Transformer:
    """BLOOM: GPT-3's layers with ALiBi instead of positions, and a norm behind the embedding."""
    heads = keys.whole("n_head")
    width = "n_embed" if keys.raw("n_embed") is not None else "hidden_size"
    hidden = keys.whole(width)
    if width == "n_embed":
        need_heads_divide(keys, hidden, heads, width, "n_head")
    positions = keys.whole("seq_length", 2048)
    base = gpt(keys, name, "n_layer", hidden, heads, 4 * hidden, biased=True, positions=positions)
    return replace(base, alibi=True, embedding_norm=True)


def mpt(keys: Keys, name: str) -> Transformer:
    """MPT: neither biases nor positions but ALiBi; an MLP of four times the width."""
    hidden, heads = keys.whole("d_model"), keys.whole("n_heads")
    need_heads_divide(keys, hidden, heads, "d_model", "n_heads")
    keys.need(keys.whole("expansion_ratio", 4) == 4, "expansion_ratio", "only 4 is supported.")
    keys.need(keys.flag("no_bias", True), "no_bias", "only true is supported.")
    if keys.raw("attn_config") is not None:
        attention = keys.inside("attn_config")
        attention.need(attention.flag("alibi", True), "alibi", "only true is supported.")
        usual = attention.raw("attn_type") in (None, "multihead_attention")
        attention.need(usual, "attn_type", "only multihead_attention is supported.")
        without(attention, "qk_ln")
    positions = keys.whole("max_seq_len", 2048)
    base = gpt(keys, name, "n_layers", hidden, heads, 4 * hidden, biased=False, positions=positions)
    return replace(base, alibi=True)


def internlm3(keys: Keys, name: str) -> Transformer:
    """InternLM 3: Llama's layers, other names of the biases."""
    biased = keys.flag("bias", False)
    projections = keys.flag("qkv_bias", keys.flag("attention_bias", False))
    arch = replace(llama(keys, name), attention_bias=projections)
    return replace(arch, output_bias=biased, mlp_bias=biased) if keys.raw("bias") is not None else arch


def arcee(keys: Keys, name: str) -> Transformer:
    """AFM: an MLP of two matrices (squared ReLU)."""
    return replace(llama(keys, name), gated=False)


def apertus(keys: Keys, name: str) -> Transformer:
    """Apertus: two matrices with xIELU (its two numbers a layer are not counted), normed queries and keys."""
    rows = keys.whole("vocab_size")
    keys.need(
        keys.whole("output_vocab_size", rows) == rows,
        "output_vocab_size",
        f"an LM head of fewer rows than the embedding's {rows} is not modelled; take it out for a whole one.",
    )
    return normed_queries(replace(plain(keys, name), gated=False))


def stablelm(keys: Keys, name: str) -> Transformer:
    """StableLM: norms with biases; in parallel blocks one norm serves both."""
    parallel = keys.flag("use_parallel_residual", False)
    arch = replace(
        plain(keys, name),
        norm_bias=True,
        attention_bias=keys.flag("use_qkv_bias", False),
        output_bias=False,
        parallel_blocks=parallel,
        norms_per_layer=1 if parallel else 2,
    )
    return normed_queries(arch, "all") if keys.flag("qk_layernorm", False) else arch


def _biased(keys: Keys, name: str) -> Transformer:
    """An MLP of two matrices, biases on every product of a layer and on its norms."""
    arch = replace(plain(keys, name), gated=False, norm_bias=True, mlp_bias=True)
    return replace(arch, attention_bias=True, output_bias=True)


def gpt_neox(keys: Keys, name: str) -> Transformer:
    """GPT-NeoX and Pythia: biases everywhere; attention and MLP side by side, each with its norm."""
    biased = keys.flag("attention_bias", True)
    return replace(
        _biased(keys, name),
        attention_bias=biased,
        output_bias=biased,
        parallel_blocks=keys.flag("use_parallel_residual", True),
    )


def persimmon(keys: Keys, name: str) -> Transformer:
    """Persimmon: GPT-NeoX' biases, one block behind the other, as many heads of keys as of queries."""
    arch = _biased(keys, name)
    arch = replace(arch, kv_heads=arch.heads)
    return replace(normed_queries(arch), qk_norm_bias=True) if keys.flag("qk_layernorm", True) else arch


def phi(keys: Keys, name: str) -> Transformer:
    """Phi-1 to Phi-2: biases everywhere, on the LM head too; attention and MLP side by side, one norm."""
    untied(keys)
    arch = replace(_biased(keys, name), head_bias=True, parallel_blocks=True, norms_per_layer=1)
    return replace(normed_queries(arch), qk_norm_bias=True) if keys.flag("qk_layernorm", False) else arch


def opt(keys: Keys, name: str) -> Transformer:
    """OPT: GPT-3's layers; two more rows of positions than there are."""
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    positions = keys.whole("max_position_embeddings", 2048)
    usually = {
        "do_layer_norm_before": True,
        "_remove_final_layer_norm": False,
        "layer_norm_elementwise_affine": True,
    }
    for key, usual in usually.items():
        keys.need(keys.flag(key, usual) == usual, key, f"only {str(usual).lower()} is supported.")
    keys.need(
        keys.whole("word_embed_proj_dim", hidden) == hidden,
        "word_embed_proj_dim",
        "an embedding of another width than hidden_size is not supported.",
    )
    biased = keys.flag("enable_bias", True)
    ffn = keys.whole("ffn_dim")
    base = gpt(keys, name, "num_hidden_layers", hidden, heads, ffn, biased=biased, positions=positions)
    return replace(base, norm_bias=True, position_embeddings=positions + 2)


def gpt2(keys: Keys, name: str) -> Transformer:
    """GPT-2 and GPT-3."""
    hidden, heads = keys.whole("n_embd"), keys.whole("n_head")
    positions = keys.whole("n_positions")
    need_heads_divide(keys, hidden, heads, "n_embd", "n_head")
    ffn = keys.whole("n_inner", 4 * hidden)
    base = gpt(keys, name, "n_layer", hidden, heads, ffn, biased=True, positions=positions)
    return replace(base, position_embeddings=positions)


def gpt_bigcode(keys: Keys, name: str) -> Transformer:
    """StarCoder: GPT-2 with one head of keys and values."""
    arch = gpt2(keys, name)
    return replace(arch, kv_heads=1 if keys.flag("multi_query", True) else arch.heads)


def falcon(keys: Keys, name: str) -> Transformer:
    """Falcon: GPT-3's MLP beside attention; the later decoder (40B, 180B, 11B) groups queries.

    The earlier one (7B) has one head of keys and values and one norm a layer; RW's has as many heads as of
    queries, and attention before the MLP.
    """
    later = keys.flag("new_decoder_architecture", False)
    parallel = keys.flag("parallel_attn", True)
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    positions = keys.whole("max_position_embeddings", 2048)
    ffn = keys.whole("ffn_hidden_size", 4 * hidden)
    norms = keys.whole("num_ln_in_parallel_attn", 2 if later else 1)
    most = 2 if later else 1
    keys.need(norms <= most, "num_ln_in_parallel_attn", f"{norms} norms; this decoder has at most {most}.")
    keys.need(parallel or not later, "parallel_attn", "the later Falcon decoder has it always.")
    # the earlier decoder has one head or as many as of queries, whatever this says
    given = keys.raw("num_kv_heads")
    grouped = keys.whole("num_kv_heads", heads) if later and given is not None else heads
    biased = keys.flag("bias", False)
    base = gpt(keys, name, "num_hidden_layers", hidden, heads, ffn, biased=biased, positions=positions)
    return replace(
        base,
        kv_heads=1 if keys.flag("multi_query", True) and not later else grouped,
        norm_bias=True,
        parallel_blocks=parallel,
        norms_per_layer=norms if parallel else 2,
        alibi=keys.flag("alibi", False),
    )
