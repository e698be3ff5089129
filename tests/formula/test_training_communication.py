"""A step sends what the layout says, in bytes and in counts (Megatron-LM; Korthikanti et al. 2022)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model import count_parameters
from railwright.spec.training import Overlap
from railwright.training import simulate
from railwright.training.layers.stages import stage_shapes
from railwright.training.layout.sizes import Sizes
from railwright.training.optimizer.buckets import PURPOSE
from railwright.training.optimizer.packed import bucket_threshold, buckets_of, fills_buckets, make_buckets
from training_cases import DENSE, MOE, changed, job, machine, priced, roofline, sent

BSH = 1024 * 1024 * 2.0
"""Bytes of one microbatch's hidden states in the cases here: 1 x 1024 tokens x 1024 wide x bf16."""


@pytest.mark.parametrize("overlapped", [True, False])
def test_distributed_optimizer_reduces_fp32_gradients_and_gathers_bf16_weights(overlapped: bool) -> None:
    parameters = count_parameters(DENSE).total
    _, sizes = sent(job(overlap=Overlap(dp=overlapped)), DENSE)
    assert sizes["dp gradients"] == pytest.approx(4 * parameters)
    assert sizes["dp parameters"] == pytest.approx(2 * parameters)


def test_weights_in_fp8_are_gathered_in_8_bits_but_for_a_host_that_scales_them_at_once() -> None:
    # Megatron-LM asserts delayed scaling where fp8_param_gather meets an optimizer on the host
    count = count_parameters(DENSE)
    ends = count.embedding + count.head
    for offload, amax, width in (((), "none", 1), (("optimizer",), "stage", 1), (("optimizer",), "none", 2)):
        wanted = job(dtype="fp8", offload=offload).model_copy(update={"amax_over": amax})
        gathered = sent(wanted, DENSE)[1]["dp parameters"]
        assert gathered == pytest.approx(2 * ends + width * (count.total - ends), rel=1e-3)
    wide = job(dtype="fp8").model_copy(update={"fp8_param_gather": False})
    assert sent(wide, DENSE)[1]["dp parameters"] == pytest.approx(2 * count.total)


def test_without_zero_gradients_are_all_reduced_and_nothing_gathered() -> None:
    result = simulate(job(zero=0), DENSE, machine(4), predict=priced(50e9), kernel=roofline)
    dp = [c for c in result.collectives if c.kind == "dp"]
    assert {c.prediction.op for c in dp} == {"all_reduce"}
    total = sum(c.count * c.prediction.size for c in dp)
    assert total == pytest.approx(4 * count_parameters(DENSE).total)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_shards_are_reduced_by_scattering_and_gathered(zero: int) -> None:
    # ZeRO, section 7: a reduce-scatter and an all-gather, each of half an all-reduce's volume
    result = simulate(job(zero=zero), DENSE, machine(4), predict=priced(50e9), kernel=roofline)
    ops = {c.purpose: c.prediction.op for c in result.collectives if c.kind == "dp"}
    assert ops == {"dp gradients": "reduce_scatter", "dp parameters": "all_gather"}


def test_gradient_accumulation_does_not_reduce_more() -> None:
    few, many = sent(job(batch=32), DENSE)[1], sent(job(batch=256), DENSE)[1]
    assert few["dp gradients"] == many["dp gradients"]


def test_experts_are_reduced_over_their_replicas_only() -> None:
    count = count_parameters(MOE)
    experts = MOE.layers * MOE.experts * count.expert
    result = simulate(job(expert=4), MOE, machine(4), predict=priced(50e9), kernel=roofline)
    expert = [c for c in result.collectives if c.purpose == "expert dp gradients"]
    dense = [c for c in result.collectives if c.purpose == "dp gradients"]
    assert {c.prediction.ranks for c in expert} == {8}
    assert {c.prediction.ranks for c in dense} == {32}
    assert sum(c.count * c.prediction.size for c in expert) == pytest.approx(4 * experts / 4)
    assert sum(c.count * c.prediction.size for c in dense) == pytest.approx(4 * (count.total - experts))


def test_tensor_parallelism_all_reduces_twice_per_layer_and_pass() -> None:
    # 8 layers x 2 forward + 2 backward, 8 microbatches; the embedding forward and the head backward once each
    counts, sizes = sent(job(tensor=4, batch=64), DENSE)
    assert counts["tp all-reduce"] == 8 * (8 * 4 + 2)
    assert sizes["tp all-reduce"] == pytest.approx(8 * (8 * 4 + 2) * BSH)


def test_sequence_parallelism_gathers_once_more_in_backward() -> None:
    # per layer and microbatch: forward 2 gathers, 2 scatters; backward 2 and 2, and 2 gathers of inputs again
    counts, _ = sent(job(tensor=4, batch=64, sequence_parallel=True), DENSE)
    assert counts["tp reduce-scatter"] == 8 * (8 * 4 + 2)
    assert counts["tp all-gather"] == 8 * (8 * 4 + 2)
    assert counts["tp all-gather again"] == 8 * (8 * 2 + 1)


@pytest.mark.parametrize("norms", [1, 2])
def test_blocks_side_by_side_are_reduced_together(norms: int) -> None:
    # 8 layers, 8 microbatches; forward the sum of both outputs, backward the gradient of each one's input
    arch = replace(DENSE, parallel_blocks=True, norms_per_layer=norms)
    assert sent(job(tensor=4, batch=64), arch)[0]["tp all-reduce"] == 8 * (8 * 3 + 2)
    # under sequence parallelism each gathers its input, and the gradient of the sum is gathered once
    counts, _ = sent(job(tensor=4, batch=64, sequence_parallel=True), arch)
    assert counts["tp reduce-scatter"] == 8 * (8 * 3 + 2)
    assert counts["tp all-gather"] == 8 * (8 * 3 + 2)
    assert counts["tp all-gather again"] == 8 * (8 * 2 + 1)


def test_blocks_side_by_side_are_reduced_together_again() -> None:
    arch = replace(DENSE, parallel_blocks=True)
    plain = sent(job(tensor=4, batch=64), arch)[0]["tp all-reduce"]
    assert sent(job(tensor=4, batch=64, recompute="full"), arch)[0]["tp all-reduce"] == plain + 8 * 8
    # an MLP that runs again alone ends before that reduction
    part = job(tensor=4, batch=64, recompute="selective", recompute_modules=("mlp",))
    assert sent(part, arch)[0]["tp all-reduce"] == plain


@pytest.mark.parametrize("parallel", [False, True])
def test_overlapped_tensor_parallelism_sends_the_same(parallel: bool) -> None:
    arch = replace(DENSE, parallel_blocks=parallel)
    wanted = {"tensor": 4, "batch": 64, "sequence_parallel": True}
    plain = sent(job(**wanted), arch)  # type: ignore[arg-type]
    hidden = sent(job(**wanted, overlap=Overlap(tp=True)), arch)  # type: ignore[arg-type]
    assert plain == hidden


@pytest.mark.parametrize("imbalance", [1.0, 1.3])
def test_expert_all_to_all_carries_each_token_to_its_top_k(imbalance: float) -> None:
    # per layer and microbatch dispatch and combine, forward and backward; T k h x 2 bytes each
    counts, sizes = sent(job(expert=8, batch=64, imbalance=imbalance), MOE)
    for purpose in ("ep dispatch", "ep combine", "ep dispatch backward", "ep combine backward"):
        assert counts[purpose] == 8 * 2
        assert sizes[purpose] == pytest.approx(8 * 2 * 2 * BSH * imbalance)


def test_ranks_tell_each_other_how_many_tokens_they_send() -> None:
    # 8 bytes for each of 8 experts from each of 8 ranks, once a layer and microbatch, before NCCL dispatches
    wanted = job(expert=8, batch=64)
    counts, sizes = sent(wanted, MOE)
    assert counts["ep counts"] == 8 * 2
    assert sizes["ep counts"] == 8 * 2 * 8 * 8 * 8
    for told in ({"expert_capacity": 1.5}, {"expert_nodes": 1}):  # nothing to tell, or told by the kernels
        assert "ep counts" not in sent(changed(wanted, **told), MOE)[0]
    assert "ep counts" not in sent(job(batch=64), MOE)[0]


def test_passes_in_pairs_exchange_what_they_exchange_alone() -> None:
    assert sent(job(expert=8, overlap=Overlap(ep=True)), MOE) == sent(job(expert=8), MOE)


def test_full_recompute_sends_the_forward_collectives_again() -> None:
    plain = sent(job(tensor=2, expert=4, sequence_parallel=True), MOE)[0]
    again = sent(job(tensor=2, expert=4, sequence_parallel=True, recompute="full"), MOE)[0]
    assert again["ep dispatch"] == 2 * plain["ep dispatch"]


def test_stages_send_hidden_states_cut_by_sequence_parallelism() -> None:
    # the middle stages send every microbatch forward and backward
    counts, sizes = sent(job(tensor=2, pipeline=4, sequence_parallel=True), DENSE)
    assert counts["pp send"] in (16, 32)
    assert sizes["pp send"] / counts["pp send"] == pytest.approx(BSH / 2)


def test_tied_embedding_is_reduced_between_first_and_last_stage() -> None:
    tied = replace(DENSE, tied_embeddings=True)
    counts, sizes = sent(job(pipeline=4), tied)
    assert counts["tied embedding gradients"] == 1
    assert sizes["tied embedding gradients"] == pytest.approx(4 * DENSE.vocab * DENSE.hidden)
    assert "tied embedding gradients" not in sent(job(), tied)[0]


def test_buckets_are_megatrons() -> None:
    assert bucket_threshold(8) == 40e6
    assert bucket_threshold(128) == 128e6
    # layers of 30M under 40M buckets: two per bucket from the last layer down; ends on their own
    buckets = make_buckets([30e6] * 5, [0.0] * 5, 7e6, 9e6, bucket_threshold(8))
    assert [(b.first, b.last, b.parameters) for b in buckets] == [
        (-1, -1, 7e6),
        (0, 0, 30e6),
        (1, 2, 60e6),
        (3, 4, 60e6),
        (5, 5, 9e6),
    ]


def test_small_layers_between_large_ones_fill_a_bucket_with_them() -> None:
    """Of a mixture's dense layers, or a hybrid's: 5 + 30 + 5M are the 40M of a bucket, then 3 x 5 + 30M; of
    experts, which few layers have, every one is full."""
    sizes = [30e6, 5e6, 5e6, 5e6, 5e6, 30e6, 5e6]
    buckets = make_buckets(sizes, [0.0, 40e6, 0.0, 40e6, 0.0, 0.0, 40e6], 0.0, 0.0, bucket_threshold(8))
    found = {kind: [(b.first, b.last, b.parameters) for b in buckets if b.kind == kind] for kind in PURPOSE}
    assert found == {
        "dp": [(0, 3, 45e6), (4, 6, 40e6)],
        "expert_dp": [(1, 1, 40e6), (3, 3, 40e6), (6, 6, 40e6)],
    }


def test_buckets_of_experts_are_as_large_as_those_of_the_rest() -> None:
    # one threshold for both, that of the 128 ranks with the same dense parameters: four layers, not one
    buckets = make_buckets([1e6] * 4, [40e6] * 4, 0.0, 0.0, bucket_threshold(128))
    assert [(b.kind, b.parameters) for b in buckets] == [("dp", 4e6), ("expert_dp", 160e6)]


@pytest.mark.parametrize(
    ("software", "buckets"),
    # two layers of 54M in each chunk; the embedding and the head have buckets of their own where there are
    # several
    [("megatron-2025", [[3, 1], [1, 1]]), ("fsdp-2024", [[3, 2], [2, 3]])],
)
def test_megatron_cuts_the_first_chunk_of_the_first_stage_alone(
    software: str, buckets: list[list[int]]
) -> None:
    arch = replace(DENSE, layers=8, hidden=2048, ffn=6144, heads=16, kv_heads=16, head_dim=128)
    wanted = changed(job(pipeline=2, virtual_pipeline=2, zero=1), software=software)
    sizes = Sizes.under(wanted.layout, 8)
    shapes = stage_shapes(arch, wanted.layout, None)
    found = [[len(held) for held in buckets_of(wanted, shape, sizes)] for shape in shapes]
    assert found == buckets
    for shape in shapes:
        for c, held in enumerate(buckets_of(wanted, shape, sizes)):
            ends = shape.embedding * shape.chunks[c].embedding + shape.head * shape.chunks[c].head
            assert sum(b.parameters for b in held) == pytest.approx(sum(shape.trained_dense[c]) + ends)


def test_a_bucket_is_as_large_as_the_job_says() -> None:
    """Eight layers of 54M: one each at 40M, two at 100M, all at 768M; only Megatron hides them by size."""
    arch = replace(DENSE, layers=8, hidden=2048, ffn=6144, heads=16, kv_heads=16, head_dim=128)
    (shape,) = stage_shapes(arch, job().layout, None)

    def held(**fields: object) -> list[int]:
        wanted = changed(job(zero=1), software="megatron-2025", **fields)
        (chunk,) = buckets_of(wanted, shape, Sizes.under(wanted.layout, 8))
        assert sum(b.parameters for b in chunk) == pytest.approx(count_parameters(arch).total)
        return [b.last - b.first + 1 for b in chunk if b.first >= 0 and b.last < arch.layers]

    assert held() == [1] * 8
    assert held(ddp_bucket=100e6) == [2] * 4
    assert held(ddp_bucket=768e6) == [8]
    for idle in ({"overlap": Overlap(dp=False)}, {"software": "deepspeed-2024"}, {"software": "fsdp-2024"}):
        assert not fills_buckets(changed(job(zero=1), **{"software": "megatron-2025", **idle}))


@pytest.mark.parametrize("zero", [0, 1])
def test_what_is_not_hidden_is_exchanged_whole(zero: int) -> None:
    count = count_parameters(MOE)
    experts = MOE.layers * MOE.experts * count.expert
    wanted = job(expert=4, zero=zero, overlap=Overlap(dp=False))
    counts, sizes = sent(wanted, MOE)
    once = ["dp gradients", "expert dp gradients"] + (
        ["dp parameters", "expert dp parameters"] if zero else []
    )
    assert [counts[purpose] for purpose in once] == [1] * len(once)
    assert sizes["dp gradients"] == pytest.approx(4 * (count.total - experts))
    assert sizes["expert dp gradients"] == pytest.approx(4 * experts / 4)
    hidden = sent(changed(wanted, overlap=Overlap(dp=True)), MOE)
    assert hidden[0]["expert dp gradients"] > 1
    assert hidden[1]["expert dp gradients"] == pytest.approx(sizes["expert dp gradients"])
    # every virtual stage is a buffer of its own
    twice = sent(job(pipeline=2, virtual_pipeline=2, zero=zero, overlap=Overlap(dp=False)), DENSE)[0]
    assert twice["dp gradients"] == 2


@pytest.mark.parametrize("tensor", [1, 4])
def test_both_ends_of_a_pipeline_reduce_a_tied_embedding(tensor: int) -> None:
    # 32,000 x 1,024 gradients in fp32, cut over the tensor ranks, between two ranks; waited for by all
    tied = replace(DENSE, tied_embeddings=True)
    wanted = job(pipeline=2, tensor=tensor, batch=64)
    for stage in (0, 1):
        result = simulate(
            wanted, tied, machine(4), predict=priced(50e9, 0.0), kernel=lambda _: 1e-6, stage=stage
        )
        (one,) = (c for c in result.collectives if c.purpose == "tied embedding gradients")
        assert (one.count, one.prediction.ranks, one.prediction.op) == (1, 2, "all_reduce")
        assert one.prediction.size == 4 * 32000 * 1024 / tensor
        assert sum(s.exposed for s in result.shares) == pytest.approx(result.step_time)
        exposed = result.exposed("dp")
        assert exposed >= one.prediction.time * (1 - 1e-9)


@pytest.mark.parametrize("schedule", ["1f1b", "dualpipe", "zb-h1"])
def test_an_inner_stage_sends_every_microbatch_on_once_each_way(schedule: str) -> None:
    wanted = job(gpus=8, pipeline=4, schedule=schedule, batch=32)
    result = simulate(
        wanted, DENSE, machine(4), predict=priced(50e9), kernel=roofline, stage=1, must_fit=False
    )
    (sends,) = (c for c in result.collectives if c.purpose == "pp send")
    assert sends.count == 2 * 32 / 2


@pytest.mark.parametrize("parallel", [True, False])
def test_an_extra_prediction_sends_its_layer_its_ends_and_what_joins_its_inputs(parallel: bool) -> None:
    # Megatron-LM, multi_token_prediction.py: embedding reduced; two hidden states into one product, whose
    # columns are gathered; a layer; the head.  In units of hidden states of the one microbatch:
    def volumes(layers: int) -> dict[str, float]:
        wanted = job(gpus=8, batch=4, tensor=2, sequence_parallel=parallel)
        return sent(wanted, replace(DENSE, mtp_layers=layers))[1]

    found = {
        purpose: (size - volumes(0).get(purpose, 0.0)) / BSH
        for purpose, size in volumes(1).items()
        if purpose.startswith("tp ")
    }
    if parallel:
        # forward: layer 2, pair 2, columns 1, head 1; backward: layer 2, the cut sequence 1, embedding 1
        assert found["tp all-gather"] == 2 + 2 + 1 + 1 + 2 + 1 + 1
        assert found["tp all-gather again"] == 2 + 2 + 1
        # forward: embedding 1, layer 2; backward: head 1, layer 2, pair 2
        assert found["tp reduce-scatter"] == 1 + 2 + 1 + 2 + 2
    else:
        assert found == {"tp all-reduce": 1 + 2 + 1 + 2 + 2, "tp all-gather": 1}


def test_split_passes_of_an_extra_prediction_send_the_same() -> None:
    arch = replace(DENSE, mtp_layers=1)
    cut = {"tensor": 2, "pipeline": 2, "sequence_parallel": True}
    step = simulate(job(**cut), arch, machine(4), predict=priced(50e9), kernel=roofline)  # type: ignore[arg-type]
    split = job(**cut, schedule="zb-h1")  # type: ignore[arg-type]
    other = simulate(split, arch, machine(4), predict=priced(50e9), kernel=roofline)
    volumes = [
        {
            name: sum(c.count * c.prediction.size for c in one.collectives if c.purpose == name)
            for name in ("tp all-gather", "tp all-gather again", "tp reduce-scatter")
        }
        for one in (step, other)
        if one.stage == 1
    ]
    assert len(volumes) == 2
    assert volumes[0] == pytest.approx(volumes[1])


@pytest.mark.parametrize(("tensor", "heads"), [(1, 4), (2, 2), (4, 1), (8, 1)])
def test_heads_of_keys_that_travel_are_a_tensor_ranks_own(tensor: int, heads: int) -> None:
    # 4 heads of keys and values, 64 wide, cut over tensor ranks; more ranks than heads hold one each
    _, sizes = sent(job(gpus=tensor * 2, batch=1, tensor=tensor, context=2), DENSE)
    block = 2 * (1024 / 2) * heads * 64 * 2
    assert sizes["cp ring"] == 8 * block
    assert sizes["cp ring backward"] == 8 * 2 * block
