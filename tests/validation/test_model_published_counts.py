"""Parameter counts against what the makers publish.

The table is the one that `railwright validate models` replays (measure/data/parameters.json).  Band 0: the
count of the published checkpoint, which every layer, bias and norm must match.  Other rows: the figure of
the paper or model card, met within its last digit or the stated band.
"""

import json
from importlib import resources

import pytest

from railwright.model import count_parameters, load_model

PUBLISHED = json.loads(
    resources.files("railwright.measure").joinpath("data/parameters.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row['model']}-{row['what']}")
def test_count_is_as_published(row):
    counted = getattr(count_parameters(load_model(row["model"])), row["what"])
    assert counted == pytest.approx(row["published"], rel=row["band"], abs=0), row["source"]


def test_most_rows_are_exact_and_every_row_has_a_source():
    assert sum(row["band"] == 0 for row in PUBLISHED) >= 14
    assert all(row["source"] for row in PUBLISHED)


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
