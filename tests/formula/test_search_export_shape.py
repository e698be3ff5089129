"""A model's shape in Megatron-LM's arguments: what it has is written, what has no argument is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from export_cases import exported
from railwright.model import load_model
from railwright.model.shape.architecture import Details, Transformer
from railwright.search.exports.shape import shape
from training_cases import BLOCKS, DENSE, MOE, changed, job


def written(arch: Transformer, **fields: Any) -> dict[str, str]:
    """Argument -> value, '' where it has none."""
    lines = [x for x in shape(changed(job(), **fields), arch) if not x.startswith("#")]
    return {name: value for name, _, value in (line.removeprefix("--").partition(" ") for line in lines)}


def comments(arch: Transformer) -> str:
    return "\n".join(x for x in shape(job(), arch) if x.startswith("#"))


def test_llama_8b_is_that_of_its_config() -> None:
    """Its config.json: 32 layers of 4096, 32 heads over 8 of keys, an MLP of 14336, no biases, a head."""
    assert written(load_model("llama-3.1-8b"), sequence=8192) == {
        "num-layers": "32",
        "hidden-size": "4096",
        "ffn-hidden-size": "14336",
        "num-attention-heads": "32",
        "group-query-attention": "",
        "num-query-groups": "8",
        "position-embedding-type": "rope",
        "max-position-embeddings": "131072",
        "swiglu": "",
        "normalization": "RMSNorm",
        "disable-bias-linear": "",
        "untie-embeddings-and-output-weights": "",
    }


def test_deepseek_v3_is_that_of_its_report() -> None:
    """Three dense layers of 61, 256 experts of 2048 with one more that all tokens pass, latent attention."""
    found = written(load_model("deepseek-v3"))
    assert found["moe-layer-freq"] == "'([0]*3+[1]*58)'"
    experts = ("num-experts", "moe-router-topk", "moe-ffn-hidden-size", "moe-shared-expert-intermediate-size")
    assert [found[name] for name in experts] == ["256", "8", "2048", "2048"]
    latent = (
        "q-lora-rank",
        "kv-lora-rank",
        "qk-head-dim",
        "qk-pos-emb-head-dim",
        "v-head-dim",
        "kv-channels",
    )
    assert [found[name] for name in latent] == ["1536", "512", "128", "64", "128", "128"]
    assert "group-query-attention" not in found
    assert found["mtp-num-layers"] == "1"
    # Megatron-LM's own conf/deepseek-ai/DeepSeek-R1.sh: without it the latents have no norms
    assert found["qk-layernorm"] == ""


@pytest.mark.parametrize(
    ("fields", "given", "absent"),
    [
        ({"gated": False}, {}, ["swiglu", "squared-relu"]),
        (
            {"gated": False, "details": Details(activation="relu2")},
            {"squared-relu": ""},
            ["swiglu", "no-bias-gelu-fusion"],
        ),
        # of activations with a bias only GeLU has a fused kernel
        (
            {"gated": False, "mlp_bias": True, "details": Details(activation="relu2")},
            {"squared-relu": "", "no-bias-gelu-fusion": ""},
            ["swiglu"],
        ),
        ({"details": Details(activation="silu")}, {"swiglu": ""}, ["quick-geglu"]),
        (
            {"details": Details(activation="quick_gelu", gate_offset=1.0, gate_limit=7.0)},
            {"quick-geglu": "", "glu-linear-offset": "1.0", "activation-func-clamp-value": "7.0"},
            ["swiglu"],
        ),
        ({"details": Details(norm="LayerNorm")}, {"normalization": "LayerNorm"}, []),
        ({"details": Details(norm="RMSNorm")}, {"normalization": "RMSNorm"}, []),
        ({"details": Details(unturned=(3, 7))}, {"no-rope-freq": "4"}, []),
        ({"details": Details(unturned=(0, 7))}, {"no-rope-freq": "'([1]*1+[0]*6+[1]*1)'"}, []),
        ({"details": Details(unturned=(3, 7)), "alibi": True}, {}, ["no-rope-freq"]),
        ({"norm_bias": True}, {"normalization": "LayerNorm"}, []),
        ({"attention_bias": True}, {"disable-bias-linear": "", "add-qkv-bias": ""}, []),
        (
            {"attention_bias": True, "output_bias": True, "mlp_bias": True},
            {},
            ["disable-bias-linear", "add-qkv-bias"],
        ),
        ({"tied_embeddings": True}, {}, ["untie-embeddings-and-output-weights"]),
        (
            {"position_embeddings": 2048},
            {"position-embedding-type": "learned_absolute", "max-position-embeddings": "2048"},
            [],
        ),
        ({"alibi": True}, {"position-embedding-type": "none"}, []),
        ({"head_dim": 256}, {"kv-channels": "256"}, []),
        ({"qk_norm": True}, {"qk-layernorm": ""}, []),
        ({"qk_norm": True, "qk_norm_gains": "all"}, {}, ["qk-layernorm", "qk-l2-norm"]),
        ({"qk_norm": True, "qk_norm_gains": "none"}, {"qk-l2-norm": ""}, ["qk-layernorm"]),
        ({"attention_sinks": True}, {"softmax-type": "learnable"}, []),
        ({"vocab_multiple": 1}, {"make-vocab-size-divisible-by": "1"}, []),
    ],
    ids=str,
)
def test_each_part_has_its_argument(fields: dict[str, Any], given: dict[str, str], absent: list[str]) -> None:
    found = written(replace(DENSE, **fields))
    assert given.items() <= found.items()
    assert not set(absent) & set(found)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"alibi": True}, "to be looked after: ALiBi"),
        ({"output_bias": True}, "biases on some linear layers only"),
        ({"parallel_blocks": True}, "attention and MLP beside each other"),
        ({"norms_per_layer": 4}, "4 norms in a layer"),
        ({"norms_per_layer": 1}, "1 norm in a layer"),
        (
            {"sliding_window": 512, "window_chunked": True},
            "attention within blocks of 512 tokens that do not see each other: not in Megatron-LM",
        ),
        (
            {"details": Details(activation="gelu_pytorch_tanh")},
            "gates of gelu_pytorch_tanh: --swiglu has the same",
        ),
        ({"gated": False, "details": Details(activation="relu")}, "activation relu: GeLU is what runs"),
        (
            {"details": Details(scales=("embedding_multiplier 12.0",))},
            "# embedding_multiplier 12.0: multipliers",
        ),
        ({"details": Details(norm="LayerNorm")}, "norms without biases: Megatron's LayerNorm has them"),
        (
            {
                "qk_norm": True,
                "qk_norm_gains": "none",
                "details": Details(unturned=(3, 7)),
                "sliding_window": 8192,
                "window_chunked": True,
            },
            "queries and keys without rotary positions are not normed",
        ),
        ({"sliding_window": 4096}, "windows of 4096 tokens (--window-size"),
    ],
    ids=str,
)
def test_what_has_no_argument_is_told(fields: dict[str, Any], says: str) -> None:
    assert says in comments(replace(DENSE, **fields))
    assert says not in comments(DENSE)


def test_blocks_as_long_as_the_sequence_are_none() -> None:
    """Llama 4 cuts into 8,192 tokens: shorter sequences see all of themselves, and no window is to add."""
    chunked = replace(DENSE, sliding_window=8192, window_chunked=True)
    assert "blocks" not in comments(chunked)
    assert "--window-size" not in comments(chunked)


def test_what_was_taken_for_granted_is_told() -> None:
    """Of a model of which nothing is said, and of one whose file says it; what stands in no description is
    always to be compared."""
    taken = "taken, since neither its config.json nor its family says it here: "
    assert f"{taken}SiLU in its gated MLPs (--swiglu), RMSNorm" in comments(DENSE)
    assert f"{taken}GeLU in its MLPs (no --swiglu)\n" in comments(replace(DENSE, gated=False, norm_bias=True))
    said = replace(DENSE, details=Details(activation="silu", norm="RMSNorm"))
    assert taken not in comments(said)
    for part in ("activation", "kind of norms", "multipliers", "softcaps", "positions"):
        assert part in comments(said).partition("compare with its config.json")[2].partition("\n")[0]


def test_a_pattern_says_the_layers_of_a_hybrid() -> None:
    found = written(BLOCKS)
    assert "num-layers" not in found
    assert "hybrid-layer-pattern" in exported((BLOCKS, job()), "megatron")


def test_frameworks_that_take_a_name_say_where() -> None:
    assert "# to add: the shape of moe" in exported((MOE, job(expert=2)), "nemo")
    assert "by name and flavor in [model]" in exported((DENSE, job()), "torchtitan")
    assert f"--num-experts {MOE.experts}" in exported((MOE, job(expert=2)), "megatron")


def test_epsilon_and_base_are_written_where_the_file_has_them() -> None:
    """Megatron's defaults are 1e-5 and 10,000; it takes whole numbers for the base (type=int)."""
    told = replace(DENSE, details=Details(norm_epsilon=1e-6, rotary_base=500000.0))
    found = written(told)
    assert (found["norm-epsilon"], found["rotary-base"]) == ("1e-06", "500000")
    assert "--norm-epsilon" not in comments(told)
    assert "# to add: --rotary-percent" in comments(told)
    assert not {"norm-epsilon", "rotary-base"} & set(written(DENSE))
    assert "# to add: --norm-epsilon, unless" in comments(DENSE)
    assert "# to add: --rotary-base, --rotary-percent" in comments(DENSE)
    assert "rotary-base" not in written(replace(told, alibi=True))
