"""Whatever stands in a config.json, it is read or refused with the keys named; nothing falls through."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from model_configs import ROWS
from railwright.errors import Mistake, SpecError
from railwright.model import Transformer, count_parameters, flops_per_token, layer_operators, parse_config
from railwright.model.configs.families import FAMILIES
from railwright.model.shape.pattern import kinds_present, layer_kinds

LLAMA = {
    "num_hidden_layers": 6,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 320,
    "vocab_size": 1000,
    "num_nextn_predict_layers": 1,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 64, "first_k_dense_replace": 2}
GPT = {"n_layer": 6, "n_embd": 256, "n_head": 8, "vocab_size": 1000, "activation_function": "swiglu"}
CHATGLM = {"num_layers": 6, "padded_vocab_size": 1000, "ffn_hidden_size": 320, "multi_query_group_num": 2}
REMOTE = (
    *(
        {"model_type": kind, **LLAMA}
        for kind in ("internlm", "qwen", "baichuan", "mimo", "minicpm", "orion", "Yi")
    ),
    {"model_type": "deepseek", **LLAMA, **EXPERTS, "n_routed_experts": 8, "n_shared_experts": 2},
    {"model_type": "bailing_moe", **LLAMA, **EXPERTS, "num_experts": 8, "use_qk_norm": True, "n_group": 2},
    {"model_type": "arctic", **LLAMA, "num_local_experts": 8, "parallel_attn_mlp_res": True},
    {"model_type": "git", **LLAMA, **EXPERTS, "num_local_experts": 8, "residual_moe": True},
    {"model_type": "jais", **GPT, "position_embedding_type": "alibi"},
    {"model_type": "chatglm", **LLAMA, **CHATGLM, "kv_channels": 32, "multi_query_attention": True},
    {"model_type": "RefinedWebModel", **LLAMA, "n_layer": 6, "n_head": 8, "multi_query": True},
)
"""Families that transformers has no class for."""

PATTERNS = (
    *("layer_types", "mlp_layer_types", "moe_layers", "no_rope_layers", "mlp_only_layers", "moe_topk"),
    *("decoder_sparse_step", "moe_layer_freq", "moe_layer_interval", "moe_layer_end_index", "sliding_window"),
    *("sliding_window_pattern", "max_window_layers", "use_sliding_window", "text_config", "attn_config"),
    *("attention_types", "prefix_dense_sliding_window_pattern", "first_k_dense_replace", "use_mla"),
)
WEIRD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from((-1, 0, 1, 2, 3, 7, 64, 10**9, 10**30, 1.5, "", "LG", "full_attention", [], {}, [[]])),
    st.lists(st.integers(-1, 7), max_size=7),
    st.lists(st.sampled_from(("full_attention", "sliding_attention", "dense", "sparse")), max_size=7),
    st.fixed_dictionaries({"model_type": st.one_of(st.sampled_from(list(FAMILIES)), st.just([]), st.none())}),
)

CONFIGS = (*(row["config"] for row in ROWS), *REMOTE)


@settings(max_examples=400)
@given(st.data())
def test_a_config_is_read_or_refused(data: st.DataObject) -> None:
    """Any keys of a good config of any family replaced by anything."""
    config = dict(data.draw(st.sampled_from(CONFIGS)))
    keys = st.one_of(st.sampled_from(sorted(config)), st.sampled_from(PATTERNS))
    for key in data.draw(st.lists(keys, min_size=1, max_size=3)):
        config[key] = data.draw(WEIRD)
    arch, mistakes = _read(config)
    if arch is None:
        assert mistakes
        assert all(m.field and m.message for m in mistakes)
        return
    assert len(layer_kinds(arch)) == arch.layers + arch.mtp_layers
    assert count_parameters(arch).active <= count_parameters(arch).total
    assert flops_per_token(arch, 64).total > 0
    if arch.heads < 1000:
        assert all(layer_operators(arch, kind, 64, 64).forward for kind in kinds_present(arch))


def _read(config: dict[str, object]) -> tuple[Transformer | None, list[Mistake]]:
    try:
        return parse_config(json.dumps(config), "config.json", "drawn"), []
    except SpecError as refused:
        return None, list(refused.mistakes)
