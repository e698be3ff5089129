"""Every family against huggingface/transformers: parameters, and which layers see the whole sequence.

tests/data/model_families.json holds what transformers counted of small configs of each family, with biases,
norms, tying and layer patterns switched; where transformers and torch are installed they count again.
"""

import json
from dataclasses import replace

import pytest

from model_configs import ROWS
from railwright.model import count_parameters, parse_config
from railwright.model.configs.families import FAMILIES, HYBRIDS, NO_ATTENTION, NOT_DECODERS, REFUSED
from railwright.model.configs.multimodal import INNER
from railwright.model.shape.pattern import full_layers

XIELU = 2
"""Learned numbers of Apertus' activation in a layer, which we leave out."""


def read(row):
    return parse_config(json.dumps(row["config"]), row["name"], row["name"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_parameters_are_those_of_the_class(row):
    arch = read(row)
    left_out = XIELU * arch.layers if row["config"]["model_type"].startswith("apertus") else 0
    assert count_parameters(arch).total == row["parameters"] - left_out


@pytest.mark.parametrize("row", [r for r in ROWS if r["full"] is not None], ids=lambda row: row["name"])
def test_layers_that_see_everything_are_those_of_the_class(row):
    arch = read(row)
    if not arch.sliding_window:
        seen = list(range(arch.layers))
    elif arch.whole_layers:
        seen = list(arch.whole_layers)
    else:
        early = 0 if arch.full_first else 1
        seen = [i for i in range(arch.layers) if arch.full_every and (i + early) % arch.full_every == 0]
    assert seen == row["full"]
    assert full_layers(arch) == len(seen)


def test_every_family_is_counted_somewhere():
    counted = {row["config"]["model_type"] for row in ROWS}
    # these have no class in transformers: tests/formula/test_model_remote.py counts them by hand, Grok-1 and
    # Kimi K2 are bundled, MiMo-V2.5 is a published checkpoint; Qwen's flat configs are read as their text,
    # Phi's first name as its later one
    remote = {"grok-1", "kimi_k2", "internlm", "internlm2", "deepseek", "qwen", "baichuan", "chatglm", "mimo"}
    remote |= {"bailing_moe", "minicpm", "exaone", "Yi", "aquila", "xverse", "skywork", "orion", "jais"}
    remote |= {"arctic", "git", "mimo_v2"}
    remote |= {"minimax_text_01", "minimax_m1"}
    assert set(FAMILIES) - counted == remote | {"qwen2_vl", "qwen2_5_vl", "phi4mm", "stablelm_epoch"} | {
        "RefinedWeb",
        "RefinedWebModel",
    }


def test_every_decoder_of_transformers_is_read_or_refused_with_its_own_reason():
    auto = pytest.importorskip(
        "transformers.models.auto.modeling_auto", reason="transformers is not installed"
    )
    known = {*FAMILIES, *INNER, *NOT_DECODERS, *NO_ATTENTION, *HYBRIDS, *REFUSED}
    # this one nests a Qwen 3 that says so itself
    named = {"moss_transcribe_diarize"}
    assert set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - known == named


def test_no_model_type_is_judged_twice():
    judged = [*FAMILIES, *INNER, *NOT_DECODERS, *NO_ATTENTION, *HYBRIDS, *REFUSED]
    # read flat and nested
    assert sorted({kind for kind in judged if judged.count(kind) > 1}) == ["qwen2_5_vl", "qwen2_vl"]


APART = ("qwen3_vl_moe_text", "minicpm3-bare", "youtu-bare", "mistral4-bare")
"""Rows of which a class writes something else: the first says inside that it is tied and outside that it is
not, the others have the key-value heads of the whole model, which do not divide the small one's heads."""


def test_what_a_class_writes_is_the_model_that_it_read():
    auto = pytest.importorskip("transformers", reason="transformers is not installed")
    for row in ROWS:
        if row["name"].startswith(APART):
            continue
        config = auto.AutoConfig.for_model(**{"pad_token_id": 0, **row["config"]})
        written = parse_config(config.to_json_string(use_diff=False), row["name"], row["name"])
        # DeepSeek-V3's and GLM-4.5's class say one extra layer where a file says nothing
        count = count_parameters(written)
        assert count == replace(count_parameters(read(row)), mtp=count.mtp), row["name"]
        assert full_layers(written) == full_layers(read(row)), row["name"]


VISION = (
    "vl_text",
    "vl_moe_text",
    "4v_text",
    "4v_moe_text",
    "phi4_multimodal",
    "mistral4",
    "emu3_text_model",
    "muse_glimmer_text",
    "step3p5",
)
ALONE = [row for row in ROWS if not row["config"]["model_type"].endswith(VISION)]
"""Without the language models of multimodal classes, which have no class of their own with a head."""


@pytest.mark.parametrize("row", ALONE[::9], ids=lambda row: row["name"])
def test_transformers_counts_the_same_today(row):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    auto = pytest.importorskip("transformers", reason="transformers is not installed")
    config = auto.AutoConfig.for_model(**{"pad_token_id": 0, **row["config"]})
    with torch.device("meta"):
        model = auto.AutoModelForCausalLM.from_config(config)
    buffers = sum(b.numel() for name, b in model.named_buffers() if "correction_bias" in name)
    assert sum(p.numel() for p in model.parameters()) + buffers == row["parameters"]
