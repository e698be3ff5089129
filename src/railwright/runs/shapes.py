"""The model that Megatron-LM's arguments describe: a bundled one, or a config.json of a family that has it.

Source, read 2026-11-29: Megatron-LM d98e8a6, megatron/training/arguments.py (validate_args: the widths that
follow from others; defaults of --kv-lora-rank 32, --qk-head-dim and --v-head-dim 128, --qk-pos-emb-head-dim
64) and megatron/core/transformer/transformer_config.py (moe_router_topk 2).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

from railwright.errors import RailwrightError
from railwright.model import bundled_models, load_model, parse_config
from railwright.model.operators.ends import padded_vocabulary
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import PARTS, is_hybrid, layer_kinds
from railwright.runs.given import Given


def shape_of(given: Given) -> dict[str, Any]:
    """Fields of a `Transformer` that the arguments say; `moe` says which layers have experts.

    Raises RailwrightError where layers, width or heads are missing, or a value is none.
    """
    if (several := of_several_kinds(given)) is not None:
        raise given.refuse(
            several, "layers of several kinds are not read from it; name the model with --model"
        )
    for name in ("decoder_num_layers", "decoder_seq_length"):
        if given.has(name):
            raise given.refuse(name, "an encoder beside a decoder is not modelled")
    layers = _needed(given, "num_layers", "encoder_num_layers")
    hidden = _needed(given, "hidden_size")
    heads = _needed(given, "num_attention_heads")
    gated = given.yes("swiglu") or given.yes("quick_geglu")
    width = int(4 * hidden * 2 / 3) // 64 * 64 if gated else 4 * hidden
    ffn = given.count("ffn_hidden_size") or width
    biases = given.yes("add_bias_linear", True)
    found: dict[str, Any] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "gated": gated,
        "tied_embeddings": not given.yes("untie_embeddings_and_output_weights"),
        "attention_bias": biases or given.yes("add_qkv_bias"),
        "output_bias": biases,
        "mlp_bias": biases,
        "norm_bias": (given.text("normalization") or "LayerNorm") == "LayerNorm",
        "mtp_layers": given.whole("mtp_num_layers") or 0,
        "index_topk": given.whole("dsa_indexer_topk") or 0,
        "attention_gate": "element" if given.yes("attention_output_gate") else "",
    }
    found |= _attention(given, hidden, heads) | _experts(given, layers, ffn)
    if False in found["moe"]:
        found["ffn"] = ffn
    if (vocab := _vocabulary(given)) is not None:
        found["vocab"] = vocab
    return found


def of_several_kinds(given: Given) -> str | None:
    """The argument that makes layers of several kinds, such as linear attention between others; None where
    none does. Attention to chosen keys (dsa) is of one kind."""
    patterns = ("hybrid_layer_pattern", "hybrid_override_pattern")
    if pattern := next((name for name in patterns if given.has(name)), None):
        return pattern
    variants = ("experimental_attention_variant", "linear_attention_type")
    return next((name for name in variants if given.told(name) not in ("", "dsa")), None)


def _needed(given: Given, *names: str) -> int:
    value = given.count(*names)
    if value is None:
        option = f"--{names[0].replace('_', '-')}"
        raise given.refuse(
            names[0], f"{option} is not given; the arguments of a whole run are expected, or --model"
        )
    return value


def _attention(given: Given, hidden: int, heads: int) -> dict[str, Any]:
    if given.yes("multi_latent_attention"):
        return {
            "attention": "mla",
            "head_dim": given.count("qk_head_dim") or 128,
            "q_lora": given.whole("q_lora_rank") or 0,
            "kv_lora": given.count("kv_lora_rank") or 32,
            "rope_dim": given.count("qk_pos_emb_head_dim") or 64,
            "v_head_dim": given.count("v_head_dim") or 128,
        }
    grouped = given.yes("group_query_attention")
    learned = (given.text("position_embedding_type") or "learned_absolute") == "learned_absolute"
    rows = given.count("max_position_embeddings")
    return {
        "attention": "gqa",
        "kv_heads": (given.count("num_query_groups") or 1) if grouped else heads,
        "head_dim": given.count("kv_channels") or hidden // heads,
        "qk_norm": given.yes("qk_layernorm"),
        "position_embeddings": (rows or 0) if learned and given.yes("add_position_embedding", True) else 0,
        "sliding_window": _window(given),
    }


def _window(given: Given) -> int:
    """Tokens that a windowed layer looks back, and itself; '(127, 0)' is 128."""
    words = given.text("window_size")
    if not words:
        return 0
    found = re.search(r"\d+", words)
    return int(found[0]) + 1 if found else 0


def _experts(given: Given, layers: int, ffn: int) -> dict[str, Any]:
    experts = given.whole("num_experts") or 0
    if not experts:
        return {"experts": 0, "moe": [False] * layers}
    return {
        "experts": experts,
        "experts_per_token": given.count("moe_router_topk") or 2,
        "expert_ffn": given.count("moe_ffn_hidden_size") or ffn,
        "shared_ffn": given.whole("moe_shared_expert_intermediate_size") or 0,
        "shared_gate": given.yes("moe_shared_expert_gate"),
        "moe": _layers_with_experts(given, layers),
    }


def _layers_with_experts(given: Given, layers: int) -> list[bool]:
    """What --moe-layer-freq says: every n-th layer from the first, or each in a list of Python's."""
    written = given.text("moe_layer_freq")
    if not written:
        return [True] * layers
    try:
        value = _evaluated(ast.parse(written.strip("'\" "), mode="eval").body)
    except (SyntaxError, ValueError):
        value = -1
    if isinstance(value, int) and value > 0:
        return [i % value == 0 for i in range(layers)]
    if not isinstance(value, list) or len(value) != layers:
        raise given.refuse(
            "moe_layer_freq", f"'{written}' is neither a number nor a list of {layers} zeros and ones"
        )
    return [bool(one) for one in value]


def _evaluated(node: ast.expr) -> Any:
    """A list of numbers in Python's words, such as ([0]*3+[1]*58). Raises ValueError for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.List):
        return [_evaluated(one) for one in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _evaluated(node.left), _evaluated(node.right)
        if isinstance(node.op, ast.Add) and type(left) is type(right):
            return left + right
        if isinstance(node.op, ast.Mult) and isinstance(left, list) and isinstance(right, int):
            return left * min(right, 10_000)
    raise ValueError


TOKENIZERS = {"GPT2BPETokenizer": 50257}
"""Rows of tokenizers that have one vocabulary (megatron/training/tokenizer)."""


def _vocabulary(given: Given) -> int | None:
    """Rows of the vocabulary, of the tokenizer where that is a known model's; None where nothing tells."""
    size = given.whole("vocab_size")
    if size is None:
        if rows := given.whole("padded_vocab_size") or TOKENIZERS.get(given.told("tokenizer_type")):
            return rows
        known = behind(given.told("tokenizer_model"))
        return None if known is None else known.vocab
    return size


def behind(path: str) -> Transformer | None:
    """The bundled model that the last part of a path or of a repository's name names, if one does."""
    try:
        return load_model(path.rstrip("/").rsplit("/", 1)[-1])
    except RailwrightError:
        return None


def bundled_as(wanted: Mapping[str, Any], given: Given) -> str | None:
    """The bundled model of that shape; of several the one whose tokenizer the run names, else the last."""
    found = [name for name in bundled_models() if not differences(load_model(name), wanted, given)]
    told = given.told("tokenizer_model").lower().replace("_", "-")
    return next((name for name in found if name in told), found[-1] if found else None)


def differences(arch: Transformer, wanted: Mapping[str, Any], given: Given) -> list[str]:
    """Fields in which a model is not what the arguments say."""
    found = []
    for name, value in wanted.items():
        if name == "moe":
            kinds = layer_kinds(arch)[: arch.layers]
            same = not is_hybrid(arch) and [PARTS[kind].mlp == "moe" for kind in kinds] == value
        elif name == "vocab":
            same = value in (arch.vocab, padded(arch.vocab, given))
        elif name == "norm_bias":
            same = (arch.norm_bias or arch.details.norm == "LayerNorm") == value
        else:
            same = getattr(arch, name) == value
        if not same:
            found.append(name)
    return found


def padded(vocab: int, given: Given) -> int:
    """Rows of a vocabulary that tensor-parallel ranks share evenly (megatron/training/tokenizer)."""
    tensor = given.count("tensor_model_parallel_size") or 1
    multiple = given.count("make_vocab_size_divisible_by")
    return padded_vocabulary(vocab, tensor, multiple) if multiple else padded_vocabulary(vocab, tensor)


SMALL = {
    "norm_bias": "its norms are of another kind (--normalization) than those of the config.json",
    "shared_gate": "the gate of its shared expert is not as in the config.json",
}
"""What may differ of a model that is written down, where no family has it all: microseconds of a layer."""


def config_of(wanted: Mapping[str, Any], given: Given, name: str) -> dict[str, Any]:
    """A Hugging Face config.json that describes the model.

    Raises RailwrightError where the vocabulary is not known, or no family has such layers.
    """
    if "vocab" not in wanted:
        raise given.refuse(
            "vocab_size",
            "no bundled model has this shape, and its tokenizer brings the vocabulary; give --vocab with its "
            "rows, or the model with --model",
        )
    near: tuple[dict[str, Any], list[str]] | None = None
    for config in _families(wanted, given):
        arch = parse_config(json.dumps(config), f"{name}.json", name)
        other = differences(arch, wanted, given)
        if not other:
            return config
        if near is None and set(other) <= set(SMALL):
            near = config, other
    if near is not None:
        given.doubts += [SMALL[one] for one in near[1]]
        return near[0]
    raise RailwrightError(
        f"{given.file}: no bundled model has the shape that its arguments describe, and no family that could "
        "be written down has such layers; give the model with --model: a bundled name, or its config.json"
    )


def _families(wanted: Mapping[str, Any], given: Given) -> list[dict[str, Any]]:
    """Configurations that may describe it, the simplest first."""
    common = {
        "num_hidden_layers": wanted["layers"],
        "hidden_size": wanted["hidden"],
        "num_attention_heads": wanted["heads"],
        "vocab_size": wanted["vocab"],
        "tie_word_embeddings": wanted["tied_embeddings"],
        "max_position_embeddings": given.count("max_position_embeddings", "seq_length") or 4096,
        "intermediate_size": wanted.get("ffn", wanted.get("expert_ffn")),
    }
    if wanted["attention"] == "mla":
        return [_latent(wanted, common)] if wanted["experts"] else []
    common |= {"num_key_value_heads": wanted["kv_heads"], "head_dim": wanted["head_dim"]}
    if wanted["sliding_window"]:
        return []
    if wanted["experts"]:
        return _of_experts(wanted, common)
    biased = {"attention_bias": wanted["attention_bias"], "mlp_bias": wanted["mlp_bias"]}
    if wanted["gated"]:
        return [
            {"model_type": "llama", **common, **biased},
            {"model_type": "qwen2", **common},
            {"model_type": "qwen3", **common, "attention_bias": wanted["attention_bias"]},
        ]
    squared = given.yes("squared_relu")
    gpt = {
        "model_type": "gpt2",
        "n_layer": wanted["layers"],
        "n_embd": wanted["hidden"],
        "n_head": wanted["heads"],
        "n_inner": wanted["ffn"],
        "n_positions": wanted["position_embeddings"],
        "vocab_size": wanted["vocab"],
        "tie_word_embeddings": wanted["tied_embeddings"],
        "activation_function": "gelu",
    }
    return [
        *([gpt] if wanted["position_embeddings"] else []),
        {"model_type": "nemotron", **common, "hidden_act": "relu2" if squared else "gelu", **biased},
        {"model_type": "starcoder2", **common, "use_bias": wanted["mlp_bias"], "hidden_act": "gelu"},
    ]


def _latent(wanted: Mapping[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    """DeepSeek-V3's."""
    return {
        "model_type": "deepseek_v3",
        **common,
        "num_key_value_heads": wanted["heads"],
        "q_lora_rank": wanted["q_lora"] or None,
        "kv_lora_rank": wanted["kv_lora"],
        "qk_nope_head_dim": wanted["head_dim"],
        "qk_rope_head_dim": wanted["rope_dim"],
        "v_head_dim": wanted["v_head_dim"],
        **_routed(wanted),
        "n_routed_experts": wanted["experts"],
        "moe_layer_freq": 1,
        "num_nextn_predict_layers": wanted["mtp_layers"],
    }


def _routed(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Experts behind leading dense layers, and shared ones."""
    return {
        "moe_intermediate_size": wanted["expert_ffn"],
        "num_experts_per_tok": wanted["experts_per_token"],
        "n_shared_experts": wanted["shared_ffn"] // wanted["expert_ffn"],
        "first_k_dense_replace": wanted["moe"].index(True) if True in wanted["moe"] else wanted["layers"],
    }


def _of_experts(wanted: Mapping[str, Any], common: dict[str, Any]) -> list[dict[str, Any]]:
    """Mixtures with grouped queries."""
    dense = [i for i, has in enumerate(wanted["moe"]) if not has]
    qwen = {
        **common,
        "num_experts": wanted["experts"],
        "num_experts_per_tok": wanted["experts_per_token"],
        "moe_intermediate_size": wanted["expert_ffn"],
        "mlp_only_layers": dense,
        "decoder_sparse_step": 1,
    }
    return [
        {
            "model_type": "mixtral",
            **common,
            "intermediate_size": wanted["expert_ffn"],
            "num_local_experts": wanted["experts"],
            "num_experts_per_tok": wanted["experts_per_token"],
        },
        {"model_type": "qwen3_moe", **qwen, "attention_bias": wanted["attention_bias"]},
        {"model_type": "qwen2_moe", **qwen, "shared_expert_intermediate_size": wanted["shared_ffn"]},
        {
            "model_type": "glm4_moe",
            **common,
            **_routed(wanted),
            "n_routed_experts": wanted["experts"],
            "attention_bias": wanted["attention_bias"],
            "use_qk_norm": wanted["qk_norm"],
            "num_nextn_predict_layers": wanted["mtp_layers"],
        },
    ]
