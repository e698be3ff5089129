"""Recommendation jobs and models that cannot work, with what would, and warnings of uneven tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlrm_cases import SMALL, ranking, step
from railwright.errors import PlanError, SpecError
from railwright.model.recommendation.dlrm import Recommender, load_recommender, parse_recommender


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"global_batch": 1000}, "not a multiple of the 32 GPUs; the nearest that work: 992 or 1024"),
        ({"global_batch": 8}, "not a multiple of the 32 GPUs; the least that works: 32"),
        ({"gpus": 64}, "the cluster has 32"),
        ({"gpus": 12}, "not whole servers of 8; take 8 or 16"),
        ({"sharding": "column-wise", "column_shards": 3}, "cannot be cut into column_shards = 3"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        step(ranking(**changes))


def test_tables_that_do_not_fit_are_refused_with_what_would() -> None:
    huge = Recommender("huge", (200_000_000,) * 8, (1,) * 8, 128, 16, (128,), (1,), "dot")
    with pytest.raises(PlanError, match="take more GPUs or sharding 'row-wise'"):
        step(ranking(sharding="table-wise"), huge)
    assert step(ranking(sharding="row-wise"), huge).memory.total < 80e9


def test_a_batch_whose_sums_do_not_fit_is_refused_with_the_way_out() -> None:
    """2^24 samples of 64 x 64 columns in 16 bits: 137 GB of sums on every GPU."""
    with pytest.raises(PlanError, match=r"take a global_batch below 16777216\.$"):
        step(ranking(sharding="row-wise", global_batch=2**24))


@pytest.mark.parametrize(
    ("model", "batch", "way"),
    [
        (SMALL, 32 * 10_000_000, "take a global_batch below 320000000 or more GPUs."),
        (replace(SMALL, top=(2_000_000, 100_000, 1)), 32, "take smaller MLPs."),
    ],
)
def test_what_fills_a_gpu_without_any_table_is_named(model: Recommender, batch: int, way: str) -> None:
    with pytest.raises(PlanError, match=r"without any table a GPU of .* is full") as error:
        step(ranking(global_batch=batch), model)
    assert str(error.value).endswith(way)


def test_replicated_tables_must_fit_every_gpu() -> None:
    """No sharded one is there to ask what is left."""
    huge = Recommender("huge", (200_000_000,) * 8, (1,) * 8, 128, 16, (128,), (1,), "dot")
    with pytest.raises(PlanError, match=r"the 8 tables below replicate_below take .* lower replicate_below"):
        step(ranking(replicate_below="900 TiB"), huge)


def test_one_gpu_has_nobody_to_share_rows_with() -> None:
    huge = Recommender("huge", (200_000_000,), (1,), 128, 16, (128,), (1,), "dot")
    with pytest.raises(PlanError, match="take more GPUs") as told:
        step(ranking(gpus=1, sharding="table-wise"), huge)
    assert "row-wise'" not in str(told.value).replace("'rowwise", "")


def test_a_broken_model_file_names_every_mistake() -> None:
    with pytest.raises(SpecError) as told:
        parse_recommender("kind: transformer\nrows: [3, 0]\nwidht: 64\n", "mine.yaml", "mine")
    text = str(told.value)
    assert "kind: 'transformer'; 'recommendation' is expected" in text
    assert "did you mean 'width'" in text
    assert "rows: [3, 0] is not one; a list of whole numbers above 0 is expected" in text
    assert "interaction: missing; dot or dcn is expected" in text
    assert "top: missing; a list of whole numbers above 0 is expected: the widths of the last MLP" in text


def test_numbers_that_no_index_names_are_refused() -> None:
    text = "kind: recommendation\nrows: [1" + "0" * 400 + "]\nlookups: 1\nwidth: 0\ndense_features: 1\n"
    with pytest.raises(SpecError) as error:
        parse_recommender(text + "bottom: [4]\ntop: [1]\ninteraction: dot\n", "m.yaml", "m")
    said = str(error.value)
    assert "whole numbers above 0 and below 2^63 is expected: the rows of each table" in said
    assert "ends in 4" not in said, "a width that could not be read is not held against the bottom MLP"


def test_lookups_are_not_counted_against_rows_that_could_not_be_read() -> None:
    fields = "kind: recommendation\nwidth: 8\ndense_features: 4\nbottom: [8]\ntop: [1]\ninteraction: dot\n"
    with pytest.raises(SpecError) as told:
        parse_recommender(f"{fields}rows: [0, 5]\nlookups: [10, 1]\n", "mine.yaml", "mine")
    assert "rows: [0, 5] is not one" in str(told.value)
    assert "lookups" not in str(told.value)
    with pytest.raises(SpecError, match="lookups: 3 numbers for 2 tables"):
        parse_recommender(f"{fields}rows: [2, 5]\nlookups: [10, 1, 1]\n", "mine.yaml", "mine")


def test_uneven_tables_are_told_with_what_the_job_has_not_tried() -> None:
    uneven = replace(SMALL, lookups=(100, *(1,) * 63))
    said = " ".join(step(ranking(sharding="table-wise"), uneven).warnings)
    assert "sharding 'row-wise' balances them, and 'auto' does where that is faster." in said
    # tables of which one domain has one more than the others
    few = replace(SMALL, rows=(1_000_000,) * 5, lookups=(10,) * 5)
    said = " ".join(step(ranking(sharding="auto", column_shards=8), few).warnings)
    assert "the mean bytes of tables; `railwright search` tries every sharding." in said
    assert "column_shards does nothing while sharding is auto." in said
    assert "column_shards" not in " ".join(step(ranking(sharding="column-wise", column_shards=8)).warnings)


def test_an_unknown_model_offers_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean 'dlrm-dcnv2'"):
        load_recommender("dlrm-dcn2")
