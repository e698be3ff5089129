"""Models of the families that are read, by their published shapes, against their makers' checkpoints."""

import json

import pytest

import checkpoints
import checkpoints_hybrids
import checkpoints_remote
import checkpoints_rounded
from checkpoints import shape
from railwright.errors import RailwrightError
from railwright.model import count_parameters, load_model, parse_config

EXACT = checkpoints.EXACT | checkpoints_remote.EXACT
ROUNDED = checkpoints_rounded.ROUNDED | checkpoints_remote.ROUNDED | checkpoints_hybrids.ROUNDED


def counted(name, config):
    return count_parameters(parse_config(json.dumps(config), name, name))


@pytest.mark.parametrize("name", EXACT)
def test_count_is_the_checkpoint(name):
    config, published = EXACT[name]
    assert counted(name, config).total == published


@pytest.mark.parametrize("name", ROUNDED)
def test_count_is_the_published_figure(name):
    config, published, band = ROUNDED[name]
    assert counted(name, config).total == pytest.approx(published, rel=band)


@pytest.mark.parametrize(
    ("name", "checkpoint", "vision"),
    [
        ("llama-4-scout", 108_641_793_536, 871_932_416),
        ("llama-4-maverick", 401_583_781_376, 871_932_416),
        ("gemma-3-27b", 27_432_406_640, 423_060_336),
    ],
)
def test_what_a_multimodal_checkpoint_has_more_is_its_vision_encoder(name, checkpoint, vision):
    # the encoder and its projection, as transformers' classes of these checkpoints count them
    assert count_parameters(load_model(name)).total == checkpoint - vision


@pytest.mark.parametrize(
    ("name", "checkpoint"), [("glm-4.5", 358_337_791_296), ("glm-4.5-air", 110_468_824_832)]
)
def test_glm_with_its_extra_layer_is_the_published_checkpoint(name, checkpoint):
    # the extra layer keeps copies of the embedding and the head beside it
    count = count_parameters(load_model(name))
    assert count.total + count.mtp + count.embedding + count.head == checkpoint


def test_nemotron_3_ultra_counts_active_parameters_without_embedding():
    config = checkpoints_hybrids.NEMOTRON_ULTRA
    assert counted("ultra", config).active_without_embedding == pytest.approx(55e9, rel=0.005)


def test_gemma_4_visits_eight_experts_beside_its_mlp():
    # Google's model card of Gemma 4 26B-A4B: 3.8 billion active
    assert counted("gemma", ROUNDED["gemma-4-26b-a4b"][0]).active == pytest.approx(3.8e9, rel=0.01)


def test_mimo_counts_active_parameters_with_the_embedding():
    # Xiaomi's model card of MiMo-V2.5-Pro: 42 billion
    assert counted("mimo", ROUNDED["mimo-v2.5-pro"][0]).active == pytest.approx(42e9, rel=0.005)


@pytest.mark.parametrize(("name", "published"), [("glm-4.5", 32e9), ("glm-4.5-air", 12e9)])
def test_glm_counts_active_parameters_without_embedding_and_head(name, published):
    # arXiv 2508.06471, table 1: 32 B and 12 B
    count = count_parameters(load_model(name))
    assert count.active - count.embedding - count.head == pytest.approx(published, rel=0.02)


def test_glm_4_7_flash_with_its_extra_layer_is_the_published_checkpoint():
    config = shape("glm4_moe_lite", 47, 2048, 20, 20, 10240, 154880, num_nextn_predict_layers=1) | {
        "q_lora_rank": 768,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64,
        "v_head_dim": 256,
        "moe_intermediate_size": 1536,
        "n_routed_experts": 64,
        "num_experts_per_tok": 4,
        "n_shared_experts": 1,
    }
    count = counted("glm-4.7-flash", config)
    assert count.total + count.mtp + count.embedding + count.head == 31_221_488_576


def test_trinity_nano_activates_800_million_without_the_embedding():
    # arcee.ai, The Trinity Manifesto (1 December 2025)
    assert counted("trinity-nano", ROUNDED["trinity-nano"][0]).active_without_embedding == pytest.approx(
        8e8, rel=0.025
    )


def test_deepseek_v32_with_its_prediction_layer_is_the_published_checkpoint():
    # Hugging Face page: 685 B, copies of the embedding and the head in the extra layer's part among them
    count = count_parameters(load_model("deepseek-v3.2"))
    assert count.total + count.mtp + count.embedding + count.head == pytest.approx(685e9, rel=0.001)
    # what it has more than version 3: 61 indexers
    before = count_parameters(load_model("deepseek-v3"))
    index = 1536 * 64 * 128 + 7168 * 128 + 7168 * 64 + 2 * 128
    assert count.total - before.total == 61 * index


def test_glm_5_counts_active_parameters_without_embedding_and_head():
    # arXiv 2602.15763, table of architectures: 40 B
    count = count_parameters(load_model("glm-5"))
    assert count.active - count.embedding - count.head == pytest.approx(40e9, rel=0.005)


def test_mimo_with_its_extra_layer_is_the_published_checkpoint():
    count = counted("mimo-7b", shape("mimo", 36, 4096, 32, 8, 11008, 151680, num_nextn_predict_layers=1))
    assert count.total + count.mtp == 7_833_409_536


def test_kimi_k2_chooses_among_all_experts_and_deepseek_among_the_best_groups():
    # moonshotai/Kimi-K2-Instruct, config.json: n_group 1; its class, DeepSeek's, has 8 where nothing says it
    assert load_model("kimi-k2").expert_groups == 1
    assert load_model("deepseek-v3").expert_groups == 8


def test_glm_5_1_has_the_layers_of_glm_5_and_5_2_has_not():
    # zai-org/GLM-5.1, config.json, has GLM-5's keys; 5.2's layers take turns at choosing keys (indexer_types)
    assert load_model("zai-org/GLM-5.1") == load_model("glm-5")
    with pytest.raises(RailwrightError, match="unknown model"):
        load_model("zai-org/GLM-5.2")
