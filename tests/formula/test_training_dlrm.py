"""Recommendation models: counts by hand, exchanges as the sharding says, and what every step keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlrm_cases import SMALL, ranking, step
from railwright.catalog import load_catalog
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import NcclSettings
from railwright.errors import PlanError
from railwright.model.recommendation.dlrm import Recommender, bundled_recommenders, load_recommender
from railwright.model.recommendation.operators import dense_blocks, distinct_rows, layout_blocks
from railwright.model.shape.architecture import Operator
from railwright.spec import load_study_text
from railwright.spec.recommendation import RecommendationJob
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.study import run
from railwright.training import StepResult
from railwright.training.lanes.critical import critical_path
from railwright.training.recommendation.dlrm import simulate_recommendation
from railwright.training.recommendation.sharding import domain_sizes, shard
from railwright.training.recommendation.work import Step
from training_cases import machine, priced


def sent(found: StepResult) -> dict[str, float]:
    return {one.purpose: one.prediction.size for one in found.collectives}


def test_dcnv2_is_the_model_of_mlperf() -> None:
    """26 tables of 204 million rows of 128; MLPs 0.2 M and 5.1 M, cross layers 3 x 2 x 3,456 x 512."""
    model = load_recommender("dlrm-dcnv2")
    assert sum(model.rows) == 204_184_588
    assert sum(model.lookups) == 214
    assert model.interacted == 27 * 128
    assert model.dense_parameters("interaction") == 3 * (2 * 3456 * 512 + 3456)
    bottom = 13 * 512 + 512 + 512 * 256 + 256 + 256 * 128 + 128
    assert model.dense_parameters("bottom") == bottom
    assert load_recommender("dlrm").interacted == 128 + 27 * 26 // 2


def test_a_cross_layer_as_wide_as_its_rank_has_its_bias_and_one_kernel_beside_its_products() -> None:
    """Three tables and the bottom MLP: 4 vectors of 64 are 256 wide, as is the rank."""
    model = Recommender(
        "square", (100,) * 3, (1,) * 3, 64, 8, (64,), (1,), "dcn", cross_layers=2, cross_rank=256
    )
    assert model.dense_parameters("interaction") == 2 * (2 * 256 * 256 + 256)
    named = [block.forward.name for block in dense_blocks(model, 1024, "bf16")["interaction"]]
    assert named.count("cross") == 2


def test_every_bundled_model_loads() -> None:
    for name in bundled_recommenders():
        assert load_recommender(name).source


def test_flops_are_six_per_weight_and_pair() -> None:
    weights = 16 * 128 + 128 * 64 + SMALL.interacted * 256 + 256
    assert SMALL.flops_per_sample() == 6 * weights + 6 * 65**2 * 64


def test_few_lookups_are_all_different_and_many_meet_every_row() -> None:
    assert distinct_rows(1e9, 10) == pytest.approx(10)
    assert distinct_rows(100, 1e9) == pytest.approx(100)


def test_table_wise_sends_the_columns_of_a_gpu() -> None:
    """64 equal tables over 32 GPUs: two each, so a GPU sends 2 x 64 columns of every sample in 16 bits."""
    found = step(ranking(sharding="table-wise"))
    size = 32_768 * 2 * 64 * 2
    assert sent(found)["embeddings, all-to-all"] == size
    assert sent(found)["gradients, all-to-all"] == size
    assert "embeddings, sum" not in sent(found)


def test_row_wise_adds_up_all_columns_over_all_gpus() -> None:
    found = sent(step(ranking(sharding="row-wise")))
    assert found["embeddings, sum"] == found["gradients, copy"] == 32_768 * 64 * 64 * 2
    assert "embeddings, all-to-all" not in found


def test_table_row_wise_adds_up_inside_servers_and_sends_across_them() -> None:
    """16 tables a server: their sums are added over its 8 GPUs, and each sends an eighth on."""
    found = step(ranking(sharding="table-row-wise"))
    inside = 32_768 * 16 * 64 * 2
    assert sent(found)["embeddings, sum"] == inside
    assert sent(found)["embeddings, all-to-all"] == inside / 8
    groups = {one.purpose: (one.prediction.ranks, one.prediction.groups) for one in found.collectives}
    assert groups["embeddings, sum"] == (8, 4)
    assert groups["embeddings, all-to-all"] == (4, 8)


def test_indices_are_eight_bytes_each() -> None:
    assert sent(step(ranking()))["indices, all-to-all"] == 640 * 8 * 32_768 / 32


def test_indices_take_as_long_as_those_of_the_gpu_that_gets_most() -> None:
    """One table with 100 lookups of 163 a sample is on one GPU of 32, which gets 100; it sends 163 / 32."""
    heavy = replace(SMALL, rows=SMALL.rows, lookups=(100, *(1,) * 63))
    assert sent(step(ranking(sharding="table-wise"), heavy))["indices, all-to-all"] == 100 * 8 * 32_768
    even = sent(step(ranking(sharding="row-wise"), heavy))["indices, all-to-all"]
    assert even == pytest.approx(163 * 8 * 32_768 / 32)


def test_every_shard_by_columns_gets_all_indices_of_its_table() -> None:
    found = sent(step(ranking(sharding="column-wise", column_shards=4)))
    assert found["indices, all-to-all"] == 4 * 640 * 8 * 32_768 / 32


def test_indices_of_replicated_tables_stay() -> None:
    # tables of 512 bytes beside the 64 large ones, looked up 100 times a sample
    more = replace(SMALL, rows=(*SMALL.rows, 2), lookups=(*SMALL.lookups, 100))
    found = sent(step(ranking(replicate_below="1 KiB"), more))
    assert found["indices, all-to-all"] == 640 * 8 * 32_768 / 32
    none = replace(SMALL, rows=(2,) * 64)
    assert "indices, all-to-all" not in sent(step(ranking(replicate_below="1 KiB"), none))


def test_only_what_leaves_a_server_shares_its_nics() -> None:
    """Sums inside servers and gradients of the MLPs run at once without meeting on a NIC."""
    asked = ranking(sharding="table-row-wise")
    fabric = machine().network.fabric
    tables = shard(asked, SMALL, 32, fabric.gpus_per_server, 1e12)
    tasks = Step(asked, SMALL, machine(), tables, 32, 8, priced(1e9), None).tasks()
    wires = {task.name: task.wire > 0 for task in tasks if task.lane != "compute"}
    inside = ("embeddings, sum", "gradients, copy")
    assert wires == {name: name not in inside for name in wires}
    one = shard(asked, SMALL, 8, 8, 1e12)
    alone = Step(asked, SMALL, machine(), one, 8, 8, priced(1e9), None).tasks()
    assert not any(task.wire for task in alone)


def test_gradients_of_the_mlps_are_reduced_over_all() -> None:
    found = sent(step(ranking(dtype="bf16")))
    assert found["gradients of top"] == 4 * SMALL.dense_parameters("top")
    assert sent(step(ranking(dtype="fp16")))["gradients of top"] == 2 * SMALL.dense_parameters("top")


def test_every_sharding_reads_every_lookup_once() -> None:
    """Balanced tables: whatever the sharding, a GPU reads its 32nd part of all looked-up numbers."""
    for kind in ("auto", "table-wise", "column-wise", "row-wise", "table-row-wise"):
        asked = ranking(sharding=kind)
        placed = shard(asked, SMALL, 32, domain_sizes(asked, 32, 8)[0], 1e12)
        assert placed.busiest.values == pytest.approx(32_768 * 640 * 64 / 32), kind
        assert placed.balance == pytest.approx(1.0), kind


def test_auto_cuts_the_table_with_most_lookups() -> None:
    heavy = Recommender("heavy", (1_000_000,) * 8, (1000, *(1,) * 7), 64, 16, (64,), (1,), "dot")
    whole = shard(ranking(sharding="table-row-wise"), heavy, 32, 8, 1e12)
    cut = shard(ranking(sharding="auto"), heavy, 32, 8, 1e12, cut=True)
    assert whole.balance == pytest.approx(4, rel=0.05)
    assert cut.balance < 1.1
    assert step(ranking(), heavy).step_time < step(ranking(sharding="table-row-wise"), heavy).step_time


def test_pieces_of_a_table_that_come_to_one_place_send_their_sums_once() -> None:
    """Six and four lookups on two GPUs: the halves of the first table come to the GPU without the second."""
    two = Recommender("two", (1_000_000,) * 2, (6, 4), 64, 16, (64,), (1,), "dot")
    cut = shard(ranking(), two, 2, 1, 1e12, cut=True)
    assert cut == shard(ranking(), two, 2, 1, 1e12)
    assert cut.sent == 64


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_auto_takes_the_faster_of_its_two_places(servers: int) -> None:
    """MLPerf's model on two servers took longer than on one: sums of all tables inside each server."""
    dlrm = load_recommender("dlrm-dcnv2")

    def seconds(sharding: str) -> float:
        asked = ranking(sharding=sharding, global_batch=135_168, dtype="fp16")
        return simulate_recommendation(asked, dlrm, machine(servers)).step_time

    found = {kind: seconds(kind) for kind in ("auto", "table-row-wise", "table-wise")}
    assert found["auto"] <= min(found.values())
    if servers == 2:
        assert found["auto"] < 0.8 * found["table-row-wise"]
        assert (
            found["auto"]
            < simulate_recommendation(ranking(global_batch=135_168, dtype="fp16"), dlrm, machine(1)).step_time
        )


@pytest.mark.parametrize("servers", [1, 4, 16])
def test_auto_leaves_tables_whole_where_pieces_cost_more(servers: int) -> None:
    """One lookup in each of 26 tables: on 32 GPUs the mean is below one, and halves of all tables would send
    twice as many sums."""
    dlrm, gpus = load_recommender("dlrm"), 8 * servers

    def seconds(sharding: str) -> float:
        asked = ranking(sharding=sharding, global_batch=8192 * gpus)
        return simulate_recommendation(asked, dlrm, machine(servers)).step_time

    assert seconds("auto") <= min(seconds("table-row-wise"), seconds("table-wise"))


def test_replicated_tables_are_not_sent_but_reduced() -> None:
    big = sent(step(ranking()))
    small = step(ranking(replicate_below="256 MB"))
    assert "embeddings, all-to-all" not in sent(small)
    assert sent(small)["gradients of interaction"] == 4 * 64 * 64 * 1_000_000
    assert "embeddings, all-to-all" in big


def test_shares_add_up_and_the_path_fills_the_step() -> None:
    for overlap in (True, False):
        found = step(ranking(overlap=overlap))
        assert sum(s.exposed for s in found.shares) == pytest.approx(found.step_time)
        path = critical_path(found.timeline)
        assert path is not None
        assert sum(p.seconds for p in path.parts) == pytest.approx(found.step_time)
        assert not path.waits


def test_overlap_never_makes_a_free_network_slower_and_hides_what_it_can() -> None:
    """Without overlap everything follows everything: the step is the sum of its tasks."""
    apart = step(ranking(overlap=False))
    total = sum(e.end - e.start for e in apart.timeline.events)
    assert apart.step_time == pytest.approx(total)
    free = step(ranking(), predict=priced(0.0, 0.0))
    assert free.exposed_share == pytest.approx(0.0, abs=1e-12)
    assert free.step_time <= step(ranking()).step_time <= apart.step_time


def test_lookups_are_bound_by_memory() -> None:
    """Without time for any other kernel, and none for communication, the step is lookups and updates."""
    only = ("lookup", "sort indices", "update tables")

    def kernel(operator: Operator) -> float:
        return operator.bytes / 1e12 if operator.name in only else 0.0

    asked = ranking(sharding="table-row-wise")
    found = step(asked, predict=priced(0.0, 0.0), kernel=kernel)
    held = shard(asked, SMALL, 32, 8, 1e12).busiest
    read = held.values * 4 + held.lookups * 8 + held.pooled * 2
    sort = held.lookups * 12 * 7
    update = held.values * 2 + 2 * held.touched * 8
    assert found.step_time == pytest.approx((read + sort + update) / 1e12)


def test_vectors_are_put_in_order_and_together_on_both_ways() -> None:
    """64 sums of 64 of 1,024 samples a GPU read and written in 16 bits, then they and the bottom MLP's
    vector; as much backward.  Behind a reduction over all GPUs, and on one, nothing is put in order."""

    def moved(found: str, asked: RecommendationJob, gpus: int = 32) -> float:
        seen = []

        def kernel(operator: Operator) -> float:
            if operator.name.startswith(found):
                seen.append(operator.bytes)
            return 1e-6

        simulate_recommendation(
            asked, replace(SMALL, rows=(1000,) * 64), machine(gpus // 8 or 1), kernel=kernel
        )
        return sum(seen)

    wide = 64 * 64 * 1024 * 2
    asked = ranking(sharding="table-wise")
    assert moved("order sums", asked) == 4 * wide
    assert moved("concatenate", asked) == 4 * wide * 65 / 64
    assert moved("order sums", ranking(sharding="row-wise")) == 0
    assert moved("order sums", ranking(gpus=1), 1) == 0


def test_sums_of_pieces_by_rows_arrive_apart() -> None:
    """Half of a table's lookups on either GPU: a sample gets two sums of 64 of it, and one of another table;
    those of tables on every GPU do not arrive."""
    two = Recommender("two", (1_000_000, 900_000, 2), (30, 1, 5), 64, 16, (64,), (1,), "dot")
    cut = shard(ranking(replicate_below="1 KiB"), two, 2, 1, 1e12, cut=True)
    assert (cut.placed, cut.arriving) == (2 * 64, 3 * 64)
    (ordered, joined) = layout_blocks(two, 10, cut.arriving, cut.placed)
    assert ordered.forward.bytes == 10 * 5 * 64 * 2
    assert joined.forward.bytes == 10 * 2 * 4 * 64 * 2


def test_memory_holds_what_is_exchanged() -> None:
    """TorchRec's planner: indices of two batches where the next one's come beside this one, sums once."""
    for kind, columns, lookups in (("table-wise", 2 * 64, 20), ("row-wise", 64 * 64, 20)):
        for overlap, batches in ((True, 2), (False, 1)):
            held = step(ranking(sharding=kind, overlap=overlap)).memory.parts["indices and sums exchanged"]
            assert held == pytest.approx(32_768 * (columns * 2 + lookups * 8 * batches)), kind
    one = simulate_recommendation(ranking(gpus=1), replace(SMALL, rows=(1000,) * 64), machine(1))
    assert one.memory.parts["indices and sums exchanged"] == pytest.approx(32_768 * 640 * 8 * 2)


def test_replicated_tables_keep_gradients_as_the_mlps_do() -> None:
    for dtype, reduced in (("bf16", 4), ("fp16", 2)):
        few = replace(SMALL, rows=(1000,) * 64)
        held = shard(ranking(replicate_below="1 MB", dtype=dtype), few, 32, 8, 1e12)
        assert held.memory == 64 * 1000 * 64 * (4 + 4 + 2 * reduced)


def test_replicated_tables_are_updated_in_their_own_type_and_by_their_own_optimizer() -> None:
    """Of 4 gradient bytes, weight and state read and written: 20 under Adagrad in fp32, 12 under SGD."""

    def seconds(**changes: object) -> float:
        found = step(ranking(replicate_below="256 MB", **changes))
        return sum(e.end - e.start for e in found.timeline.events if e.name == "update MLPs")

    assert seconds(optimizer="sgd") / seconds() == pytest.approx(12 / 20, rel=0.01)
    assert seconds(optimizer="sgd", table_dtype="fp16") / seconds() == pytest.approx(8 / 20, rel=0.01)
    assert seconds(optimizer="rowwise-adagrad") / seconds() == pytest.approx(12.125 / 20, rel=0.01)


def test_a_large_table_with_few_lookups_finds_room_that_small_ones_would_take() -> None:
    """By lookups the two small tables go to different GPUs, and neither has room for the large one then."""
    rows = (1_000_000, 1_000_000, 9_000_000)
    mixed = Recommender("mixed", rows, (100, 100, 1), 64, 16, (64,), (1,), "dot")
    placed = shard(ranking(sharding="table-wise", global_batch=64), mixed, 2, 1, 4.7e9)
    assert placed.memory == pytest.approx(9_000_000 * 64 * 8)
    with pytest.raises(PlanError, match=r"table 3.*none has that left"):
        shard(ranking(sharding="table-wise", global_batch=64), mixed, 2, 1, 4.5e9)


STUDY = """
railwright: 1
name: Ranking on 8 servers
cluster:
  servers: 8
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700}
recommendations:
  - name: ranking
    model: dlrm-dcnv2
    global_batch: 135168
    samples: 4.2e9
    dtype: fp16
    replicate_below: 12.8 MiB
"""


def test_a_study_predicts_it(tmp_path: Path) -> None:
    from railwright.report import page, write
    from railwright.report.files.results import results

    result = run(load_study_text(STUDY, "ranking.yaml"))
    job = result.variants[0].jobs[0]
    assert job.step is not None
    assert job.step.unit == "samples"
    text = page(result)
    assert "samples/s" in text
    assert "exchange of embeddings" in text
    assert results(result)["variants"][0]["jobs"][0]["step"]["unit"] == "samples"
    assert write(result, tmp_path / "out")


def test_the_fabric_matters_to_it() -> None:
    """Half the spines cost an exchange over all GPUs, not one that stays on its rail."""

    def on(oversubscription: float) -> Machine:
        network = ComputeNetwork(family="fat-tree", switch="qm9700", oversubscription=oversubscription)
        return Machine.of(
            Cluster(servers=16, server="dgx-h100", compute=network), load_catalog(), NcclSettings()
        )

    asked = ranking(sharding="table-wise", overlap=False)
    whole, half = (simulate_recommendation(asked, SMALL, on(x)).step_time for x in (1.0, 3.0))
    assert half > whole
