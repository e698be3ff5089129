"""The model families of Hugging Face that are understood: model_type -> how its keys become a Transformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from railwright.model.configs import dense_families as dense
from railwright.model.configs import expert_families as moe
from railwright.model.configs import gated_families as gated
from railwright.model.configs import gemma_families as google
from railwright.model.configs import gpt_families as gpt
from railwright.model.configs import hybrid_families as hybrid
from railwright.model.configs import linear_families as linear
from railwright.model.configs import remote_families as remote
from railwright.model.configs import residual_families as residual
from railwright.model.configs import windowed_expert_families as windowed
from railwright.model.configs.family_parts import llama
from railwright.model.configs.keys import Keys
from railwright.model.shape.architecture import Transformer

Family = Callable[[Keys, str], Transformer]

FAMILIES: dict[str, Family] = {
    "llama": llama,
    "mistral": dense.mistral,
    "mixtral": moe.mixtral,
    "qwen2": dense.qwen2,
    "qwen2_moe": moe.qwen2_moe,
    "qwen3": dense.qwen3,
    "qwen3_moe": moe.qwen3_moe,
    "deepseek_v2": moe.deepseek,
    "deepseek_v3": moe.deepseek,
    "kimi_k2": moe.deepseek,
    "axk1": moe.deepseek,
    "deepseek_v32": moe.deepseek,
    "glm_moe_dsa": moe.deepseek,
    "glm4_moe_lite": moe.deepseek,
    "gpt2": dense.gpt2,
    "gpt_oss": moe.gpt_oss,
    "nemotron": dense.nemotron,
    "gemma": google.gemma,
    "gemma2": google.gemma2,
    "gemma3_text": google.gemma3,
    "gemma4_text": google.gemma4,
    "gemma4_unified_text": google.gemma4,
    "llama4_text": moe.llama4,
    "grok-1": moe.grok,
    "git": residual.grok2,
    "arctic": residual.arctic,
    "falcon": dense.falcon,
    "minimax_m2": moe.minimax_m2,
    "ministral": dense.mistral,
    "ministral3": dense.mistral,
    "phi3": dense.mistral,
    "phimoe": moe.phimoe,
    "phi": dense.phi,
    "glm": dense.glm,
    "glm4": dense.glm4,
    "glm4_moe": moe.glm4_moe,
    "dots1": moe.dots1,
    "ernie4_5": dense.ernie,
    "ernie4_5_moe": moe.ernie_moe,
    "hunyuan_v1_dense": dense.hunyuan,
    "hunyuan_v1_moe": moe.hunyuan_moe,
    "hy_v3": moe.hy_v3,
    "solar_open": moe.solar_open,
    "sarvam_moe": moe.glm4_moe,
    "sarvam_mla": moe.deepseek,
    "exaone4": dense.exaone4,
    "exaone_moe": moe.exaone_moe,
    "olmo2": dense.olmo2,
    "olmo3": dense.olmo3,
    "olmoe": moe.olmoe,
    "granite": llama,
    "granitemoe": moe.granitemoe,
    "granitemoeshared": moe.granitemoe,
    "granitemoehybrid": hybrid.granitemoehybrid,
    "cohere": dense.cohere,
    "cohere2": dense.cohere2,
    "seed_oss": dense.seed_oss,
    "smollm3": dense.smollm3,
    "starcoder2": dense.starcoder2,
    "gpt_bigcode": dense.gpt_bigcode,
    "gpt_neox": dense.gpt_neox,
    "opt": dense.opt,
    "stablelm": dense.stablelm,
    "dbrx": moe.dbrx,
    "internlm2": dense.internlm2,
    "internlm3": dense.internlm3,
    "bloom": dense.bloom,
    "mpt": dense.mpt,
    "arcee": dense.arcee,
    "apertus": dense.apertus,
    "apertus1p5_text": dense.apertus,
    "qwen2_vl": dense.qwen2,
    "qwen2_vl_text": dense.qwen2,
    "qwen2_5_vl": dense.qwen2,
    "qwen2_5_vl_text": dense.qwen2,
    "qwen3_vl_text": dense.qwen3,
    "qwen3_vl_moe_text": moe.qwen3_moe,
    "glm4v_text": dense.glm4,
    "glm4v_moe_text": moe.glm4_moe,
    "emu3_text_model": llama,
    "phi4_multimodal": dense.mistral,
    "phi4mm": dense.mistral,
    "olmo": dense.olmo,
    "flex_olmo": moe.olmoe,
    "nanochat": dense.nanochat,
    "helium": dense.helium,
    "persimmon": dense.persimmon,
    "vaultgemma": google.vaultgemma,
    "hyperclovax": dense.hyperclovax,
    "jais2": dense.nemotron,
    "cwm": dense.cwm,
    "iquestcoder": llama,
    "granite_swa": dense.granite_swa,
    "granitemoe_swa": moe.granitemoe_swa,
    "mistral4": moe.deepseek,
    "minicpm3": moe.deepseek,
    "youtu": moe.deepseek,
    "aria_text": moe.aria,
    "mellum": windowed.mellum,
    "kolibri1": windowed.kolibri,
    "cohere2_moe": windowed.cohere2_moe,
    "flint": windowed.flint,
    "mimo_v2_flash": windowed.mimo_v2,
    "mimo_v2": windowed.mimo_v2,
    "afmoe": gated.afmoe,
    "laguna": gated.laguna,
    "step3p5": gated.step3p5,
    "muse_glimmer_text": gated.muse_glimmer,
    "beam": gated.beam,
    "gpt-sw3": dense.gpt2,
    "gptj": gpt.gptj,
    "codegen": gpt.gptj,
    "gpt_neo": gpt.gpt_neo,
    "xglm": gpt.xglm,
    "biogpt": gpt.biogpt,
    "jais": gpt.jais,
    "deepseek": moe.deepseek_moe,
    "qwen": remote.qwen,
    "baichuan": remote.baichuan,
    "internlm": dense.internlm2,
    "chatglm": remote.chatglm,
    "mimo": remote.mimo,
    "bailing_moe": remote.bailing_moe,
    "minicpm": remote.minicpm,
    "exaone": remote.llama_alike,
    "Yi": remote.llama_alike,
    "aquila": remote.llama_alike,
    "xverse": remote.llama_alike,
    "skywork": remote.llama_alike,
    "orion": remote.orion,
    "stablelm_epoch": dense.stablelm,
    "RefinedWeb": dense.falcon,
    "RefinedWebModel": dense.falcon,
    "nemotron_h": hybrid.nemotron_h,
    "bamba": hybrid.bamba,
    "qwen3_next": hybrid.qwen3_next,
    "qwen3_5_text": hybrid.qwen3_5,
    "qwen3_5_moe_text": hybrid.qwen3_next,
    "minimax": linear.minimax,
    "minimax_text_01": linear.minimax,
    "minimax_m1": linear.minimax,
    "kimi_linear": linear.kimi_linear,
}

LINEAR = (
    *("nemotron_h", "bamba", "granitemoehybrid", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
    *("minimax", "minimax_text_01", "minimax_m1", "kimi_linear"),
)
"""Those whose layers may be others than attention: their functions read what says so."""

MIXERS = (
    "Layers other than attention that are modelled: Mamba-2 (nemotron_h, bamba, granitemoehybrid), gated "
    "delta net (qwen3_next, qwen3_5_text, qwen3_5_moe_text), Kimi delta attention (kimi_linear) and "
    "lightning attention (minimax, minimax_text_01, minimax_m1); take one of those models, of a like size, "
    "instead."
)
"""What a user whose model has others can do."""

NOT_DECODERS = (
    *("bert", "roberta", "albert", "distilbert", "electra", "deberta", "deberta-v2", "modernbert"),
    *("t5", "mt5", "umt5", "bart", "mbart", "pegasus", "marian", "xlm-roberta"),
    *("clip", "siglip", "vit", "whisper", "wav2vec2"),
    *(
        "bert-generation",
        "big_bird",
        "camembert",
        "data2vec-text",
        "ernie",
        "esm",
        "megatron-bert",
        "reformer",
    ),
    *("rembert", "roberta-prelayernorm", "roc_bert", "roformer", "xlm", "xlm-roberta-xl", "xlnet", "xmod"),
    *("bigbird_pegasus", "blenderbot", "blenderbot-small", "mvp", "plbart", "prophetnet", "trocr", "t5gemma"),
    *("musicgen", "musicgen_melody"),
    *("convbert", "esmc", "eurobert", "flaubert", "fnet", "funnel", "gte", "ibert", "jina_embeddings_v3"),
    *("layoutlm", "longformer", "luke", "mobilebert", "modernvbert", "mpnet", "mra", "nomic_bert"),
    *("neomme", "nystromformer", "squeezebert", "tapas", "ultrabert", "yoso"),
    *("encoder-decoder", "florence2", "fsmt", "led", "longt5", "m2m_100", "nllb-moe", "pegasus_x"),
    *("pix2struct", "seamless_m4t", "seamless_m4t_v2", "switch_transformers", "t5gemma2", "udop"),
    "vision-encoder-decoder",
)
"""Encoders and encoder-decoders, which are certainly not decoder-only transformers."""

_MAMBA_1 = "is made of Mamba layers of the first kind, whose kernels are not modelled"
_RECURRENT = "is made of recurrent layers whose kernels are not modelled"

NO_ATTENTION = {
    **dict.fromkeys(("mamba", "falcon_mamba"), _MAMBA_1),
    "mamba2": "is made of Mamba-2 layers alone, and is read only inside the models that mix them with others",
    **dict.fromkeys(("rwkv", "rwkv5", "rwkv6", "rwkv7", "xlstm"), _RECURRENT),
}
"""Decoders without any attention: what they are made of."""

HYBRIDS = (
    *("jamba", "zamba", "zamba2", "falcon_h1"),
    *("lfm2", "lfm2_moe", "recurrent_gemma", "olmo_hybrid", "bailing_hybrid", "bailing_moe_linear"),
    *("lfm3", "plamo2", "qwen4_exp", "qwen4_exp_text"),
    *("glm5_next", "glm5_next_text"),
)
"""Architectures that mix attention with layers whose kernels are not modelled: Mamba of the first kind, other
recurrences and linear attentions, or both in one layer."""

_SPARSE = "attends to a few keys that an indexer chooses for each query (sparse attention)"
_SPARSE_AND = f"{_SPARSE[:-1]}, beside"
INDEXED = ("deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa")
"""Families that are read with such an indexer."""

_POOLED = "gives one vector for a text, not the next token"
_SPEAKS = "has tables of sounds beside that of the text, and a second decoder for them"
_REPEATED = "runs its layers several times for one token"

REFUSED = {
    "deepseek_v4": "attends to compressed keys and to a few that an indexer chooses (sparse attention)",
    "axk2": f"{_SPARSE_AND} gates in its norms)",
    "hy_v4": f"{_SPARSE_AND} layers that share what was chosen, and several streams)",
    **dict.fromkeys(
        ("dots3_note", "dots3_note_text", "mistral_large4", "mistral_large4_text"),
        f"{_SPARSE_AND} layers of other kinds)",
    ),
    **dict.fromkeys(
        ("minimax_m3", "minimax_m3_vl", "minimax_m3_vl_text"),
        "attends to a few blocks of keys that an indexer chooses for each query (sparse attention)",
    ),
    "phi3small": "attends to blocks of keys (block-sparse attention)",
    "jetmoe": "routes its attention heads as experts",
    **dict.fromkeys(("gemma3n", "gemma3n_text"), "has embeddings in every layer, and layers that share keys"),
    **dict.fromkeys(
        ("gemma4_assistant", "gemma4_unified_assistant"),
        "drafts for another model, whose keys and values it reads",
    ),
    **dict.fromkeys(
        ("longcat_flash", "longcat_flash_ngram"),
        "has two attention blocks in a layer, and experts that do nothing",
    ),
    "kimi_k3": "attends to what earlier layers added (attention residuals), beside experts on latents",
    **dict.fromkeys(("mllama", "mllama_text_model"), "attends to an image encoder's outputs in some layers"),
    **dict.fromkeys(
        ("muse_spark", "muse_spark_text"), "has experts of another width than the layers they are in"
    ),
    **dict.fromkeys(
        ("ernie4_5_moe_vl", "ernie4_5_vl_moe", "ernie4_5_vl_moe_text"),
        "has experts of two widths, for text and for images",
    ),
    "lara_mini": "has windows in some layers beside gated delta nets in others",
    "zaya": "convolves queries, keys and values, and has a router of several layers",
    **dict.fromkeys(
        ("inkling", "inkling_text", "inkling2", "inkling2_text", "inkling2_loop", "inkling2_loop_text"),
        "convolves what it adds to the stream, and has products for relative positions",
    ),
    **dict.fromkeys(("baichuan_m1", "yuan"), "convolves neighbouring tokens in front of attention"),
    "bitnet": "multiplies by weights of three values, and has norms inside attention and MLP",
    "diffllama": "subtracts two attentions from each other",
    "doge": "drops keys by a mask that it learns, and has gains on what it adds up",
    "openelm": "has other heads and another MLP in every layer",
    "deci": "has other key-value heads in some layers",
    "nemotron-nas": "leaves attention or the MLP out of some layers",
    "hunyuan": "has layers that share keys and values",
    **dict.fromkeys(("step3_text", "step3_vl"), "makes queries by two products with a norm between them"),
    **dict.fromkeys(
        ("llada", "llada_moe", "llada2_moe", "Dream", "diffusion_gemma", "diffusion_gemma_text"),
        "fills in masked tokens instead of giving the next one (diffusion)",
    ),
    "telechat": "has biases on the last products of attention and MLP alone",
    "solar": "adds what a few layers gave to the inputs of later ones",
    **dict.fromkeys(("hrm_text", "ouro", "iquestloopcoder", "dory"), _REPEATED),
    "gpt_neox_japanese": "has a bias in its last layer alone",
    "openai-gpt": "norms the sums behind its blocks, and has no norm behind the last layer",
    "ctrl": "has a bias on an LM head that is tied to the embedding",
    "cpmant": "has embeddings of segments and prompts, and learns a bias for distances",
    "modernbert-decoder": "has no norm in its first layer, and one product more in front of the LM head",
    "blt": "reads bytes in patches whose length depends on the text",
    **dict.fromkeys(("moshi", "csm"), _SPEAKS),
    **dict.fromkeys(
        ("cohere_compass", "cohere_compass_text", "embedding_gemma2", "embedding_gemma2_text"), _POOLED
    ),
}
"""Decoders with something in their layers that is not modelled: what that is."""

ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention")
"""What layer_types may say; the last is Granite 4's word for the first."""

MARKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "index_topk": (lambda value: value is not None, _SPARSE),
    "attn_type_list": (
        lambda value: isinstance(value, list) and any(kind != 1 for kind in value),
        "has layers with linear attention (those that are not 1)",
    ),
    "layer_types": (
        lambda value: isinstance(value, list) and any(kind not in ATTENTION for kind in value),
        f"has layers of other kinds than {', '.join(ATTENTION)}",
    ),
    "is_causal": (lambda value: value is False, "attends to later tokens too, as encoders do (embeddings)"),
    "is_encoder_decoder": (lambda value: value is True, "has an encoder beside its decoder"),
    "add_cross_attention": (lambda value: value is True, "attends to an encoder's outputs"),
}
"""Keys that say what a model is under any model_type: whether a value does, and what it says.

SGLang and others run DeepSeek-V3.2 under deepseek_v3, MiniMax-Text-01 has Mixtral's keys, and gte-Qwen2 is
Qwen 2 without a causal mask (transformers, masking_utils.py).
"""
