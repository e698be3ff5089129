"""Parameter counts against what the makers publish.

Exact rows: the count of the published checkpoint (safetensors totals on the Hugging Face model pages, which
every layer, bias and norm must match; from memory where marked).  Rounded rows: the figure of the paper or
model card, met within its last digit or the stated band.
"""

import pytest

from railwright.model import count_parameters, load_model

EXACT = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "gpt2": 124_439_808,
}

TOTAL = [
    # name, published [1e9], band, where
    ("mixtral-8x22b", 140.6, 0.001, "Hugging Face model page, 141B"),
    ("deepseek-v3", 671.0, 0.001, "arXiv 2412.19437, abstract"),
    ("deepseek-v2", 236.0, 0.002, "arXiv 2405.04434, abstract"),
    ("deepseek-v2-lite", 15.7, 0.002, "arXiv 2405.04434, appendix B"),
    ("gpt-oss-120b", 116.83, 0.0005, "arXiv 2508.10925, table 1"),
    ("gpt-oss-20b", 20.91, 0.0005, "arXiv 2508.10925, table 1"),
    ("gpt-3-175b", 174.6, 0.0005, "arXiv 2005.14165, table D.1 (174,600 M)"),
    ("nemotron-4-15b", 15.6, 0.005, "arXiv 2402.16819: 12.5 B + 3.1 B embeddings"),
    ("nemotron-4-340b", 341.0, 0.002, "arXiv 2406.11704: 331.6 B + 9.4 B embeddings"),
    ("qwen3-235b-a22b", 235.0, 0.002, "arXiv 2505.09388, table 2"),
    ("qwen3-32b", 32.8, 0.002, "Hugging Face model page"),
    ("qwen2.5-32b", 32.8, 0.002, "Hugging Face model page"),
    ("grok-1", 314.0, 0.01, "xai-org/grok-1 README; its own shapes give 315.7"),
]

ACTIVE = [
    ("mixtral-8x7b", 12.9, 0.005, "arXiv 2401.04088: 13B active; 12.9B in the launch post"),
    ("mixtral-8x22b", 39.1, 0.005, "launch post: 39B active"),
    ("deepseek-v3", 37.0, 0.02, "arXiv 2412.19437, abstract"),
    ("deepseek-v2", 21.0, 0.02, "arXiv 2405.04434, abstract"),
    ("qwen3-235b-a22b", 22.0, 0.01, "arXiv 2505.09388, table 2"),
    ("qwen3-30b-a3b", 3.3, 0.02, "Hugging Face model page"),
]

ACTIVE_WITHOUT_EMBEDDING = [
    ("gpt-oss-120b", 5.13, 0.002, "arXiv 2508.10925, table 1"),
    ("gpt-oss-20b", 3.61, 0.002, "arXiv 2508.10925, table 1"),
    ("deepseek-v2-lite", 2.4, 0.025, "arXiv 2405.04434, appendix B"),
]


@pytest.mark.parametrize(("name", "published"), EXACT.items())
def test_the_checkpoint_holds_exactly_as_many_parameters(name, published):
    assert count_parameters(load_model(name)).total == published


@pytest.mark.parametrize(("name", "published", "band", "where"), TOTAL)
def test_total_is_as_published(name, published, band, where):
    assert count_parameters(load_model(name)).total == pytest.approx(published * 1e9, rel=band), where


@pytest.mark.parametrize(("name", "published", "band", "where"), ACTIVE)
def test_active_is_as_published(name, published, band, where):
    assert count_parameters(load_model(name)).active == pytest.approx(published * 1e9, rel=band), where


@pytest.mark.parametrize(("name", "published", "band", "where"), ACTIVE_WITHOUT_EMBEDDING)
def test_active_without_the_input_table_is_as_published(name, published, band, where):
    count = count_parameters(load_model(name)).active_without_embedding
    assert count == pytest.approx(published * 1e9, rel=band), where


def test_nemotron_4_340b_splits_into_the_published_parts():
    # arXiv 2406.11704: 9.4 B embedding parameters (two untied tables), 331.6 B the rest
    count = count_parameters(load_model("nemotron-4-340b"))
    assert count.embedding + count.head == pytest.approx(9.4e9, rel=0.005)
    assert count.total - count.embedding - count.head == pytest.approx(331.6e9, rel=0.001)


def test_gpt_oss_120b_splits_into_the_published_parts():
    # arXiv 2508.10925, table 1: MLP 114.71 B, attention 0.96 B, embedding and unembedding 1.16 B
    arch = load_model("gpt-oss-120b")
    count = count_parameters(arch)
    assert arch.layers * count.mlp_moe == pytest.approx(114.71e9, rel=1e-4)
    assert arch.layers * count.attention == pytest.approx(0.96e9, rel=0.005)
    assert count.embedding + count.head == pytest.approx(1.16e9, rel=0.005)


def test_deepseek_v3_with_its_prediction_layer_is_the_published_checkpoint():
    # Hugging Face page: 685 B = 671 B main model + 14 B MTP module, of which 1.85 B are copies of
    # the embedding and the head (README_WEIGHTS: 11.5 B unique parameters)
    assert count_parameters(load_model("deepseek-v3")).mtp == pytest.approx(11.5e9, rel=0.015)
