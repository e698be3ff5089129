"""For a config of a family that is not read: the families whose layers its keys describe."""

from __future__ import annotations

from railwright.model.configs.keys import Keys

_NEAREST = (
    (("kv_lora_rank",), "deepseek_v3 or deepseek_v2", "latent attention"),
    (("n_routed_experts",), "glm4_moe, dots1 or deepseek", "experts beside shared ones, behind dense layers"),
    (("num_experts", "shared_expert_intermediate_size"), "qwen2_moe", "experts beside a shared one"),
    (("num_experts", "num_shared_experts"), "exaone_moe, hy_v3 or bailing_moe", "experts beside shared ones"),
    (("num_experts",), "qwen3_moe or olmoe", "experts, queries and keys that are normed"),
    (("num_local_experts",), "mixtral, granitemoe or gpt_oss", "experts as wide as a dense MLP"),
    (("n_embd",), "gpt2, gptj or jais", "GPT's keys"),
    (("layer_types", "sliding_window"), "ministral, olmo3 or gemma3_text", "windows in some layers"),
    (("sliding_window", "intermediate_size"), "mistral", "a gated MLP, windows"),
    (("intermediate_size",), "llama, qwen2 (biases) or qwen3 (normed queries and keys)", "a gated MLP"),
)
"""Keys that are there, the families with layers of such keys, and what those are; the first row counts."""


def nearest_families(keys: Keys) -> str:
    """A sentence that says under which model_type a config may be read, '' where its keys say nothing."""
    for needed, families, what in _NEAREST:
        if all(keys.raw(key) is not None for key in needed):
            return f"Its keys are nearest to those of {families} ({what}). "
    return ""


_OTHER_FILES = (
    (("peft_type",), "These are the keys of an adapter; give the config.json of the model that it is for. "),
    (
        ("dim", "n_layers"),
        "These are the keys of a params.json, as Meta and Mistral write it; give the config.json "
        "of the same model in Hugging Face's format. ",
    ),
    (
        ("general.architecture",),
        "These are the keys of a GGUF file; give the config.json that it was made from. ",
    ),
)
"""Keys of other files that lie beside weights, and what to give instead."""


def other_file(keys: Keys) -> str:
    """A sentence on a file that is none of Hugging Face's models, '' where it may be one."""
    return next((told for needed, told in _OTHER_FILES if all(keys.raw(k) is not None for k in needed)), "")
