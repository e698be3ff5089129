"""What the newer layouts send, hold and compute, against closed forms (docs/training/layouts.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from railwright.catalog import load_catalog
from railwright.compute import kernel_time
from railwright.model import count_parameters, layer_operators
from railwright.model.shape.architecture import Operator
from railwright.spec.training import Layout, Overlap
from railwright.training import simulate
from railwright.training.layers.costs import on_context_ranks
from railwright.training.layers.stages import layers_per_piece, stage_shapes
from railwright.training.software.eras import Pace
from training_cases import DENSE, MOE, changed, job, machine, priced, roofline, sent

BSH = 1024 * 1024 * 2.0
"""Bytes of one microbatch's hidden states: 1 x 1024 tokens x 1024 wide x bf16."""
KV = 1024 * 2 * 4 * 64 * 2.0
"""Bytes of one microbatch's keys and values: 4 heads of 64."""


def test_a_ring_sends_c_minus_1_blocks_of_keys_and_values_and_twice_that_backward() -> None:
    # 8 layers, 8 data-parallel ranks of 4: 8 microbatches; a block is 1/4 of the keys and values
    counts, sizes = sent(job(context=4, batch=64), DENSE)
    assert counts["cp ring"] == counts["cp ring backward"] == 8 * 8 * 3
    assert sizes["cp ring"] == pytest.approx(8 * 8 * 3 * KV / 4)
    assert sizes["cp ring backward"] == pytest.approx(2 * 8 * 8 * 3 * KV / 4)


def test_swapping_heads_for_tokens_sends_queries_keys_values_and_outputs_once_each_way() -> None:
    # per layer and pass: (b s / c) x (16 + 2 x 4) x 64 in, (b s / c) x 16 x 64 out; backward the same
    counts, sizes = sent(job(context=4, batch=64, context_kind="all-to-all"), DENSE)
    for way in ("", " backward"):
        assert counts[f"cp all-to-all in{way}"] == counts[f"cp all-to-all out{way}"] == 64
    total = sum(size for purpose, size in sizes.items() if purpose.startswith("cp"))
    assert total == pytest.approx(64 * 2 * (BSH + KV + BSH) / 4)


def test_gathered_keys_and_values_are_gathered_twice_and_reduced_once() -> None:
    _, sizes = sent(job(context=4, batch=64, context_kind="all-gather"), DENSE)
    assert sizes["cp all-gather"] == sizes["cp all-gather backward"] == sizes["cp reduce-scatter"]
    assert sizes["cp all-gather"] == pytest.approx(64 * KV)


def test_context_ranks_hold_the_same_weights() -> None:
    # gradients are reduced over data x context ranks: the same bytes over the same 32 GPUs
    one, four = sent(job(batch=64), DENSE)[1], sent(job(context=4, batch=64), DENSE)[1]
    assert one["dp gradients"] == four["dp gradients"]
    result = simulate(job(context=4), DENSE, machine(4), predict=priced(50e9), kernel=roofline)
    assert {c.prediction.ranks for c in result.collectives if c.purpose == "dp gradients"} == {32}


@pytest.mark.parametrize("how", ["ring", "all-to-all", "all-gather"])
def test_context_ranks_share_the_work_of_a_sequence(how: str) -> None:
    whole = layer_operators(DENSE, "dense", 4096, 4096)
    part = on_context_ranks(layer_operators(DENSE, "dense", 1024, 4096), how, 4, 1, 16)  # type: ignore[arg-type]
    for name in ("forward", "backward_input", "backward_weight"):
        flops = [sum(op.flops for op in getattr(found, name)) for found in (whole, part)]
        assert flops[0] == pytest.approx(4 * flops[1])


def test_no_mask_cuts_a_ring_s_blocks_but_the_first() -> None:
    """Each block has as many scores; those behind the rank's own are half the queries against all keys of the
    block or all queries against half of them, by turns: 2/3 of the keys in the mean of what a tile costs."""
    part = on_context_ranks(layer_operators(DENSE, "dense", 1024, 4096), "ring", 4, 1, 16)
    blocks = [op for op in part.forward if op.name == "core attention"]
    assert [(op.masked, op.n) for op in blocks] == [(True, 1024), *[(False, 683)] * 3]
    assert len({op.flops for op in blocks}) == 1
    h100 = load_catalog().gpus["h100-sxm"]
    own, other = (kernel_time(op, h100) for op in blocks[:2])
    assert 0.6 < other / own < 0.9


def test_a_ring_is_hidden_where_attention_takes_as_long() -> None:
    # 4 blocks of attention of 1 ms each, hops of 0.5 ms: only attention remains
    def attention_only(operator: Operator) -> float:
        return 1e-3 if operator.kind == "attention" else 0.0

    hidden, exposed = (
        simulate(
            job(context=4, batch=8, zero=0, overlap=Overlap(cp=overlapped)),
            DENSE,
            machine(4),
            predict=priced(KV / 4 / 0.5e-3, 0.0),
            kernel=attention_only,
        )
        for overlapped in (True, False)
    )
    busy = {s.kind: s.busy for s in hidden.shares}["cp"]
    assert busy == pytest.approx(8 * (3 * 0.5e-3 + 3 * 1.0e-3))
    # backward hops of 1 ms beside blocks of 1 ms, slowed by 1.189: none is waited for
    assert hidden.exposed("cp") == pytest.approx(0.0, abs=1e-9)
    assert exposed.exposed("cp") == pytest.approx(busy)


def whole(parameters: float) -> float:
    return pytest.approx(parameters, rel=1e-9)  # type: ignore[return-value]


def test_zero_2_reduces_gradients_in_every_microbatch() -> None:
    parameters = count_parameters(DENSE).total
    sizes = sent(job(zero=2, batch=128), DENSE)[1]
    assert sizes["dp gradients"] == whole(4 * 4 * parameters)
    assert sizes["dp parameters"] == whole(2 * parameters)
    once = sent(job(zero=2, batch=128, reduce_each=False), DENSE)[1]
    assert once["dp gradients"] == whole(4 * parameters)


def test_zero_3_gathers_twice_and_reduces_once_per_microbatch() -> None:
    # forward all, backward the layers: the head stays from the forward pass, an embedding needs none
    count = count_parameters(DENSE)
    ends = count.embedding + count.head + DENSE.hidden
    layers = count.total - ends
    for batch, times in ((32, 1), (128, 4)):
        sizes = sent(job(zero=3, batch=batch), DENSE)[1]
        assert sizes["dp parameters"] == whole(times * 2 * (2 * layers + ends))
        assert sizes["dp gradients"] == whole(times * 4 * count.total)
    kept = sent(job(zero=3, batch=128, reshard=False, reduce_each=False), DENSE)[1]
    assert kept["dp parameters"] == whole(4 * 2 * count.total)
    assert kept["dp gradients"] == whole(4 * count.total)


@pytest.mark.parametrize("virtual", [1, 2])
def test_a_pipeline_that_keeps_its_parameters_gathers_them_once_a_step(virtual: int) -> None:
    layout = {"zero": 3, "pipeline": 2, "virtual_pipeline": virtual, "reshard": False}
    stage = sent(job(batch=32, reduce_each=False, **layout), DENSE)[1]["dp gradients"] / 4
    for batch, microbatches in ((32, 2), (128, 8)):
        once = sent(job(batch=batch, reduce_each=False, **layout), DENSE)[1]
        each = sent(job(batch=batch, **layout), DENSE)[1]
        assert once["dp parameters"] == each["dp parameters"] == whole(2 * stage)
        assert once["dp gradients"] == whole(4 * stage)
        assert each["dp gradients"] == whole(microbatches * 4 * stage)


def test_hybrid_shards_all_reduce_their_part_over_the_copies() -> None:
    # shards of 8 of the 32 ranks: 4 copies, each rank all-reduces 1/8 of the gradients
    total = count_parameters(DENSE).total
    result = simulate(
        job(zero=3, shard=8, batch=32), DENSE, machine(4), predict=priced(50e9), kernel=roofline
    )
    ranks = {c.purpose: c.prediction.ranks for c in result.collectives}
    assert ranks == {"dp parameters": 8, "dp gradients": 8, "dp gradients of copies": 4}
    copies = [c for c in result.collectives if c.purpose == "dp gradients of copies"]
    assert sum(c.count * c.prediction.size for c in copies) == whole(4 * total / 8)


def test_experts_of_a_hybrid_lie_in_their_copy_too() -> None:
    # every rank holds all experts; of each copy's 8 ranks one holds 1/8, gathered and reduced as the rest is
    wanted = job(zero=3, shard=8, batch=32)
    result = simulate(wanted, MOE, machine(4), predict=priced(50e9), kernel=roofline)
    ranks = {c.purpose: c.prediction.ranks for c in result.collectives if "expert dp" in c.purpose}
    assert ranks == {
        "expert dp parameters": 8, "expert dp gradients": 8, "expert dp gradients of copies": 4,
    }  # fmt: skip
    copied = [c for c in result.collectives if c.purpose.endswith("gradients of copies")]
    assert sum(c.count * c.prediction.size for c in copied) == whole(4 * count_parameters(MOE).total / 8)


@pytest.mark.parametrize("zero", [1, 2])
def test_states_of_several_copies_are_summed_up_over_them(zero: int) -> None:
    """Megatron's distributed optimizer instances: 32 ranks in 4 groups of 8, of which each rank scatters and
    gathers inside its own and all-reduces an eighth of the gradients over all four."""
    layout: dict[str, Any] = {"zero": zero, "shard": 8, "reduce_each": False, "batch": 64}
    result = simulate(job(**layout), DENSE, machine(4), predict=priced(50e9), kernel=roofline)
    ranks = {c.purpose: c.prediction.ranks for c in result.collectives}
    assert ranks == {"dp parameters": 8, "dp gradients": 8, "dp gradients of copies": 4}
    _, sizes = sent(job(**layout), DENSE)
    total = count_parameters(DENSE).total
    assert sizes["dp parameters"] == whole(2 * total)
    assert sizes["dp gradients"] == whole(4 * total)
    assert sizes["dp gradients of copies"] == whole(4 * total / 8)


def test_experts_are_shared_inside_a_copy_by_the_ranks_that_hold_the_same() -> None:
    """32 ranks, 4 of every expert; in each of 4 copies one rank of eight holds them: there is nothing to
    gather, and what the 4 have is summed up whole."""
    wanted = job(shard=8, expert=8, batch=32)
    result = simulate(wanted, MOE, machine(4), predict=priced(50e9), kernel=roofline)
    ranks = {c.purpose: c.prediction.ranks for c in result.collectives if "expert dp" in c.purpose}
    assert ranks == {"expert dp gradients of copies": 4}
    wider = simulate(
        job(shard=16, expert=4, batch=32), MOE, machine(4), predict=priced(50e9), kernel=roofline
    )
    ranks = {c.purpose: c.prediction.ranks for c in wider.collectives if "expert dp" in c.purpose}
    assert ranks == {
        "expert dp parameters": 4, "expert dp gradients": 4, "expert dp gradients of copies": 2,
    }  # fmt: skip


def test_16_bit_gradients_are_half_as_many_bytes() -> None:
    wanted = job(batch=32)
    half = wanted.model_copy(update={"gradient_dtype": "bf16"})
    assert sent(half, DENSE)[1]["dp gradients"] == whole(sent(wanted, DENSE)[1]["dp gradients"] / 2)


def test_prefetched_parameters_hide_behind_the_layer_before() -> None:
    # layers of 1 ms forward and 2 ms backward, gathers of 0.5 ms: exposed are the first unit of the step, and
    # what the ends cannot hide; without prefetch every unit
    def slow(operator: Operator) -> float:
        return 1e-3 if operator.name.startswith(("mlp up", "mlp down, input")) else 0.0

    def exposed(prefetch: int) -> float:
        tied = replace(DENSE, vocab=128)
        per_layer = (count_parameters(tied).total - 2 * 128 * 1024 - 1024) / 8
        result = simulate(
            job(zero=3, batch=32, overlap=Overlap(prefetch=prefetch)),
            tied,
            machine(4),
            predict=priced(2 * per_layer * 31 / 32 / 0.5e-3, 0.0),
            kernel=slow,
        )
        return result.exposed("dp")

    assert exposed(1) < 0.35 * exposed(0)


@pytest.mark.parametrize(
    ("layers", "pieces", "ends", "expected"),
    [
        (8, 4, "none", (2, 2, 2, 2)),
        (61, 4, "none", (15, 16, 15, 15)),
        (61, 16, "none", (3, *[4] * 13, 3, 3)),
        (94, 16, "none", (5, *[6] * 14, 5)),
        (70, 12, "both", (5, *[6] * 10, 5)),  # BLOOM 176B: 70 layers and two ends on 12 stages
        (30, 32, "none", (0, *[1] * 30, 0)),  # fewer layers than pieces: the ends stand alone
    ],
)
def test_layers_that_do_not_divide_leave_the_ends_lighter(
    layers: int, pieces: int, ends: str, expected: tuple[int, ...]
) -> None:
    found = layers_per_piece(layers, pieces, Layout(ends_as_layers=ends))  # type: ignore[arg-type]
    assert found == expected
    assert sum(found) == layers


@pytest.mark.parametrize(
    ("pieces", "expected"), [(16, (*[4] * 15, 1)), (8, (*[8] * 7, 5)), (4, (16, 16, 16, 13))]
)
def test_an_extra_prediction_layer_takes_the_place_of_three(pieces: int, expected: tuple[int, ...]) -> None:
    # Megatron-Bridge's layouts of DeepSeek-V3: 61 layers, one more for the second token, two losses
    assert layers_per_piece(61, pieces, Layout(), mtp=1) == expected
    assert layers_per_piece(64, pieces, Layout(), mtp=1) == (64 // pieces,) * pieces
    assert sum(layers_per_piece(61, 61, Layout(), mtp=2)) == 61


def test_given_layers_per_stage_are_taken_in_the_models_order() -> None:
    shapes = stage_shapes(DENSE, Layout(pipeline=2, virtual_pipeline=2, layers_per_stage=(1, 2, 3, 2)))
    assert [[len(c.layers) for c in s.chunks] for s in shapes] == [[1, 3], [2, 2]]
    assert [s.first for s in shapes] == [(0, 3), (1, 6)]


def test_a_stage_with_more_layers_sets_the_pace() -> None:
    # 8 layers on 4 stages as 5 + 1 + 1 + 1: 32 microbatches take about 5/2 of what 2 + 2 + 2 + 2 take
    def layered(operator: Operator) -> float:
        return 1e-3 if operator.name.startswith("mlp up") else 0.0

    def took(layers: tuple[int, ...] | None) -> float:
        wanted = job(pipeline=4, batch=8 * 64, layers_per_stage=layers)
        free = {"predict": priced(0.0), "kernel": layered, "pace": Pace()}
        return simulate(wanted, DENSE, machine(4), **free).step_time  # type: ignore[arg-type]

    # m (F+B) of the slowest stage, plus the others' share of fill and drain
    assert took((5, 1, 1, 1)) == pytest.approx((64 * 5 + 3) * 3e-3, rel=0.01)
    assert took(None) == pytest.approx((64 + 3) * 2 * 3e-3, rel=0.01)


def test_expert_tensor_parallelism_gathers_routed_tokens_over_its_own_group() -> None:
    # TP 4, ETP 2, EP 8 on 32 GPUs: replicas 32 / 16 = 2; each gather is 2 ranks' routed tokens
    wanted = job(tensor=4, expert=8, expert_tensor=2, sequence_parallel=True)
    counts, sizes = sent(wanted, MOE)
    routed = 2 * BSH / 4
    assert sizes["expert tp all-gather"] / counts["expert tp all-gather"] == pytest.approx(2 * routed)
    assert sizes["ep dispatch"] / counts["ep dispatch"] == pytest.approx(routed)
    result = simulate(wanted, MOE, machine(4), predict=priced(50e9), kernel=roofline)
    ranks = {c.purpose: c.prediction.ranks for c in result.collectives}
    assert ranks["expert tp all-gather"] == 2
    assert ranks["expert dp gradients"] == 2
    assert ranks["dp gradients"] == 8


def test_whole_experts_need_no_tensor_collectives() -> None:
    counts, _ = sent(job(tensor=4, expert=8, expert_tensor=1, sequence_parallel=True), MOE)
    assert not [purpose for purpose in counts if purpose.startswith("expert tp")]


def test_part_of_a_rack_keeps_expert_groups_inside() -> None:
    # 2 servers, 4 of 8 GPUs of each: expert groups of 4 do not cross, of 8 they do
    wanted = job(gpus=8, batch=16, expert=4).model_copy(update={"gpus_per_server": 4})
    from railwright.training.layout.placement import place

    fabric = machine(4).network.fabric
    groups = place(wanted, fabric)
    assert sorted(int(g) for c in groups.ep for g in c.gpus) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert all(c.num_servers(fabric) == 1 for c in groups.ep)


def test_an_offloaded_optimizer_moves_gradients_down_and_weights_up() -> None:
    # 4 + 2 bytes per parameter of the shard at 88 % of PCIe 5.0 x16, and 2.57 s of a host per 10 billion
    from railwright.training.passes.offload import host_update

    one = machine(4)
    assert host_update(1e9, 4.0, 8, one)[:3] == pytest.approx((4e9 / 55.4e9, 8 * 0.257, 2e9 / 55.4e9))


@pytest.mark.parametrize(
    ("server", "slot"),
    [("dgx-h100", 63e9), ("hgx-a100", 31.5e9), ("aws-p4de", 31.5e9), ("dgx-1-v100", 15.75e9)],
)
def test_the_link_to_the_host_is_the_slot_of_the_gpu_and_not_that_of_the_nic(
    server: str, slot: float
) -> None:
    # the A100 of p4de share EFA adapters behind PCIe 3.0 (15.75 GB/s), and keep their own PCIe 4.0
    from railwright.training.passes.offload import host_link
    from railwright.training.whatif.machine import at_rate

    one = machine(4, server=server)
    assert host_link(one) == pytest.approx(55.4 / 63.0 * slot)
    assert host_link(at_rate(one, 2.0)) == host_link(one), "a faster network does not feed the host"


def test_offloaded_activations_are_copied_once_each_way_and_hidden_behind_longer_layers() -> None:
    # all layers but the last of the stage, forward and backward, 2 microbatches
    from railwright.training.memory.activations import layer_kept
    from railwright.training.passes.offload import host_link

    wanted = job(batch=64, offload=("activations",))
    result = simulate(wanted, DENSE, machine(4), predict=priced(0.0), kernel=lambda _: 1e-3)
    copies = {s.kind: s for s in result.shares}["copy"]
    each = layer_kept(wanted, DENSE, "dense") / host_link(machine(4))
    assert copies.busy == pytest.approx(2 * 2 * 7 * each)
    assert copies.exposed == pytest.approx(0.0, abs=1e-9)
    # behind shorter ones they are waited for; launches would hide them too, so all of them are in a graph
    slow, plain = (
        simulate(
            changed(one, cuda_graphs=("step",)), DENSE, machine(4), predict=priced(0.0), kernel=lambda _: 1e-6
        )
        for one in (wanted, job(batch=64))
    )
    assert slow.step_time > plain.step_time
