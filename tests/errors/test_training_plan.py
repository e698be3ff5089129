"""A layout that cannot work is refused in one sentence that says what would."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.errors import PlanError
from railwright.model import load_model
from railwright.spec.lora import Lora
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.checks.fitting import check_memory
from railwright.training.checks.plan import check
from railwright.training.memory.peak import peak_memory
from railwright.units import GIB
from training_cases import DENSE, MOE, changed, job, machine, priced, refusal, roofline


def test_more_gpus_than_the_cluster() -> None:
    assert "gpus is 64, but the cluster has 32" in refusal(job(gpus=64))


def test_tensor_larger_than_the_server() -> None:
    text = refusal(job(tensor=12))
    assert "layout.tensor 12 is more than the 8 GPUs of a server and not a multiple of them" in text
    assert text.endswith("; 1, 2, 4, 8, 16 work."), "16 heads over two servers"


def test_tensor_that_straddles_servers() -> None:
    assert "3 does not divide the 8 GPUs of a server" in refusal(job(tensor=3))


def test_gpus_not_a_multiple_of_tensor_times_pipeline() -> None:
    text = refusal(job(tensor=4, pipeline=3))
    assert "32 GPUs are not a multiple of tensor x pipeline = 4 x 3 = 12" in text
    assert "set gpus to 24" in text
    assert "pipeline from 1, 2, 4, 8" in text


def test_no_number_of_stages_helps_where_tensor_does_not_divide_the_gpus() -> None:
    assert "set gpus to 4, or choose tensor from 1, 2." in refusal(job(gpus=6, tensor=4))
    text = refusal(job(gpus=6, tensor=2, context=2))
    assert "set gpus to 4, or choose tensor x context from 1, 2, 3, 6." in text


def test_experts_of_a_dense_model() -> None:
    assert "dense-8 is a dense model" in refusal(job(expert=2))


def test_every_second_product_of_experts() -> None:
    again = {"recompute": "selective", "recompute_modules": ("ops",)}
    check(job(**again), MOE, machine().network.fabric)
    plain = replace(MOE, gated=False)
    assert "a gated MLP or gated experts without biases" in refusal(job(**again), plain)
    with pytest.raises(PlanError, match="choose parts of the layer instead"):
        check(job(**again), plain, machine().network.fabric)
    check(job(recompute_modules=("ops",)), plain, machine().network.fabric)


def test_more_layers_computed_again_than_a_piece_has() -> None:
    again = {"recompute": "full", "recompute_layers": 3}
    text = refusal(job(pipeline=4, **again))
    assert "layout.recompute_layers is 3, but a stage has at most 2 layers of dense-8" in text
    assert "use at most 2, or leave it out for all" in text
    text = refusal(job(pipeline=4, virtual_pipeline=2, **again))
    assert "a virtual stage has at most 1 layer of dense-8" in text
    # one stage of the four has three
    check(job(pipeline=4, **again), replace(DENSE, layers=9), machine().network.fabric)
    check(job(pipeline=4, recompute_layers=3), DENSE, machine().network.fabric)


def test_layers_computed_again_beside_activations_on_the_host() -> None:
    text = refusal(job(recompute="full", recompute_layers=3, offload=("activations",)))
    assert "recompute_layers beside offload of activations is not modelled" in text


def test_experts_not_divisible_by_ep() -> None:
    text = refusal(job(expert=3), MOE)
    assert "8 experts of moe-8 cannot be spread over layout.expert = 3" in text
    assert "1, 2, 4, 8 work" in text


def test_data_parallel_not_divisible_by_ep() -> None:
    text = refusal(job(tensor=8, expert=8), MOE)
    assert "4 data-parallel ranks are not a multiple of layout.expert = 8; 1, 2, 4 work" in text


def test_heads_not_divisible_by_tensor() -> None:
    assert "12 attention heads" in refusal(job(tensor=8), replace(DENSE, heads=12, kv_heads=4))


def test_mlp_width_not_divisible_by_tensor() -> None:
    assert "4100 MLP width" in refusal(job(tensor=8), replace(DENSE, ffn=4100))


def test_key_value_heads_neither_cut_nor_replicated() -> None:
    assert "neither cut nor replicated" in refusal(job(tensor=8), replace(DENSE, kv_heads=3, heads=24))


def test_layers_not_divisible() -> None:
    text = refusal(job(pipeline=16))
    assert "8 layers of dense-8 cannot be cut into 16 pieces" in text
    assert "use at most 10" in text


def test_interleaving_one_stage() -> None:
    assert "only one pipeline stage" in refusal(job(virtual_pipeline=2))


def test_interleaving_needs_a_multiple_of_the_stages() -> None:
    text = refusal(job(pipeline=4, virtual_pipeline=2, batch=40))
    assert "multiple of 4 microbatches per step, but there are 5" in text
    assert "global_batch to 32 or 64" in text


@pytest.mark.parametrize(
    ("batch", "layout", "near"),
    [
        (30, {}, (28, 32)),
        (30, {"virtual_pipeline": 2}, (24, 32)),  # rounds of two microbatches
        (3, {"virtual_pipeline": 2}, (8,)),
        (46, {"schedule": "dualpipe"}, (40, 48)),
        (3, {"schedule": "dualpipe"}, (16,)),
        (46, {"schedule": "dualpipe-v"}, (44, 48)),
        (9, {"schedule": "dualpipe-v"}, (16,)),
    ],
)
def test_the_nearest_batches_work_under_the_schedule_too(
    batch: int, layout: dict[str, object], near: tuple[int, ...]
) -> None:
    def cut(size: int) -> TrainingJob:
        return job(gpus=8, batch=size, pipeline=2, **layout)

    assert refusal(cut(batch)).endswith(f"the nearest that work: {' or '.join(map(str, near))}.")
    for size in near:
        check(cut(size), DENSE, machine(1).network.fabric)


def test_global_batch_not_a_multiple() -> None:
    text = refusal(job(batch=100))
    assert "100 is not a multiple" in text
    assert "96 or 128" in text


def test_a_batch_smaller_than_the_ranks() -> None:
    assert "the nearest that work: 32" in refusal(job(batch=10))


def test_what_would_fit_can_be_placed() -> None:
    """More expert parallelism needs less memory, but expert-across lays out no halves of experts."""
    asked = job(sequence=2048, tensor=2, expert_tensor=1, placement="expert-across", recompute="full", zero=1)
    small = replace(machine(4), gpu=replace(machine(4).gpu, hbm_bytes=10e9))
    with pytest.raises(PlanError, match=r"what would fit: zero: 2 .*; pipeline: 2 ") as caught:
        simulate(asked, replace(MOE, layers=16), small)
    assert "expert: " not in str(caught.value)
    nowhere = job(expert=8, placement="expert-across")
    with pytest.raises(PlanError, match="a pipeline stage has only 4"):
        simulate(nowhere, replace(MOE, layers=64), small)


def test_expert_across_without_enough_servers() -> None:
    text = refusal(job(expert=8, placement="expert-across"), MOE)
    assert "a pipeline stage has only 4; lower layout.expert to at most 4" in text


def test_servers_too_few_for_the_experts_of_a_token() -> None:
    """Four experts a token, two on each of four servers: one server has too few, two have enough."""
    arch = replace(MOE, experts_per_token=4)
    across = job(expert=4, placement="expert-across")
    text = refusal(across.model_copy(update={"expert_nodes": 1}), arch)
    assert "lets a token reach 2 experts" in text
    assert "give 2 or more" in text
    simulate(
        across.model_copy(update={"expert_nodes": 2}), arch, machine(4), predict=priced(50e9), kernel=roofline
    )
    # four ranks of two GPUs lie on one server, which holds all eight
    packed = job(expert=4, tensor=2).model_copy(update={"expert_nodes": 1})
    simulate(packed, arch, machine(4), predict=priced(50e9), kernel=roofline)


def test_expert_across_without_whole_servers() -> None:
    text = refusal(job(pipeline=8, expert=2, placement="expert-across"), MOE)
    assert "whole servers per pipeline stage" in text


def test_adapters_that_fit_beside_frozen_weights_of_16_bits_are_told_so() -> None:
    """FSDP's frozen shards have fp32; torchtune loads half as much.  Nothing is said where none fits."""
    arch = load_model("llama-3.1-70b")
    one = job(batch=16, sequence=8192, zero=3, recompute="full")
    tuned = changed(one, lora=Lora(rank=16), software="fsdp-2025")
    with pytest.raises(PlanError) as refused:
        simulate(tuned, arch, machine(1, server="server-8x-l40s"))
    text = str(refused.value)
    # 70.6 billion weights over 8 GPUs take two bytes less each, 16.4 GiB
    assert "needs 51.2 GiB" in text
    assert (
        "with lora.frozen_dtype: bf16, as torchtune loads them, the fullest GPU would hold 34.8 GiB" in text
    )
    narrow = changed(tuned, lora=Lora(rank=16, frozen_dtype="bf16"))
    simulate(narrow, arch, machine(1, server="server-8x-l40s"), predict=priced(50e9), kernel=roofline)
    with pytest.raises(PlanError) as refused:
        simulate(changed(tuned, sequence=131_072), arch, machine(1, server="server-8x-l40s"))
    assert "16 bits" not in str(refused.value)


def test_weights_in_nvfp4_that_would_fit_alone_are_told_so() -> None:
    """68.5 billion weights of layers on 16 GPUs take 2 bytes less each without 16 bits beside: 8.0 GiB."""
    arch, where = load_model("llama-3-70b"), machine(4)
    wanted = job(dtype="nvfp4", tensor=4, pipeline=4, sequence=4096)
    room = (wanted, arch, where.network.fabric)
    total = peak_memory(*room, 1e12).total / GIB
    for less, told in ((7.0, True), (8.5, False)):
        with pytest.raises(PlanError) as refused:
            check_memory(*room, (total - less) * GIB, where.server)
        found = f"which is not modelled, the fullest GPU would hold {total - 7.97:.1f} GiB."
        assert (found in str(refused.value)) is told


def test_a_model_that_does_not_fit_says_what_would() -> None:
    large = replace(DENSE, layers=64, hidden=8192, ffn=28672, heads=64, kv_heads=8, head_dim=128)
    text = refusal(job(sequence=4096), large)
    capacity = machine(4).gpu.hbm_bytes / 2**30
    assert f"GiB more than its {capacity:.1f} GiB" in text
    assert "weights" in text
    assert "what would fit: " in text
    # and what it names does fit
    fitting = text.split("what would fit: ")[1].split(" (")[0]
    change = dict(part.split(": ") for part in fitting.split(" with "))
    layout = {k: int(v) if v.isdigit() else v for k, v in change.items()}
    simulate(job(sequence=4096, **layout), large, machine(4), predict=priced(50e9), kernel=roofline)  # type: ignore[arg-type]


def test_what_would_fit_is_told_once_an_axis_and_only_of_what_there_is() -> None:
    """Tensor parallelism stays inside a server, and a model without latent attention has none to repeat."""
    large = replace(MOE, layers=48, hidden=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128, vocab=32000)
    text = refusal(job(sequence=8192, micro_batch=4, batch=128, expert=8), large).split("what would fit: ")[1]
    ways = [way.split(" (")[0] for way in text.split("; ")[:-1]]
    assert ways
    assert len({way.split(":")[0] for way in ways}) == len(ways)
    assert "mla_up_proj" not in text
    for way in ways:
        if way.startswith("tensor: "):
            assert way.endswith(" with sequence_parallel: true")
            assert int(way.split()[1]) <= 8


def test_hopeless_model_says_so() -> None:
    huge = replace(DENSE, layers=64, hidden=65536, ffn=4 * 65536, heads=512, kv_heads=512, head_dim=128)
    assert "use more or larger GPUs" in refusal(job(sequence=4096), huge)


def test_context_of_more_ranks_than_gpus() -> None:
    text = refusal(job(tensor=4, context=3))
    assert (
        "32 GPUs are not a multiple of tensor x context x pipeline = 4 x 3 x 1 = 12; set gpus to 24" in text
    )


def test_context_ranks_without_whole_heads() -> None:
    text = refusal(job(context=8, context_kind="all-to-all"))
    assert "the 4 (key-value) heads per GPU of dense-8 are not a multiple of layout.context = 8" in text
    assert "1, 2, 4 work, or use context_kind ring" in text


def test_a_sequence_shorter_than_its_ranks() -> None:
    assert "a sequence of 2 tokens cannot be shared" in refusal(job(context=4, sequence=2))


def test_experts_cut_into_more_parts_than_a_stage_has_gpus() -> None:
    text = refusal(job(tensor=2, expert=2, expert_tensor=64), MOE)
    assert "layout.expert_tensor 64 does not divide the 32 GPUs of a stage" in text
    assert "1, 2, 4, 8, 16 work" in text, "with 32 no two ranks are left for the experts"


def test_sizes_of_which_none_helps_alone_are_named_together() -> None:
    """16 GPUs: 5 stages divide them with no tensor parallelism, and tensor of 8 only with fewer stages."""
    many = changed(job(tensor=1, pipeline=5), gpus=16)
    assert "= 1 x 5 = 5; set gpus to 15, or choose pipeline from 1, 2, 4, 8." in refusal(many), "of 8 layers"
    cut = changed(job(tensor=8, pipeline=4), gpus=16)
    assert "= 8 x 4 = 32; choose pipeline from 1, 2." in refusal(cut)
    wide = changed(job(context=3, pipeline=5), gpus=16)
    assert (
        "choose tensor x context from 1, 2, 4, 8, 16, and a pipeline that divides what that leaves."
    ) in refusal(wide)
    alone = changed(job(context=3, pipeline=4), gpus=16)
    assert "choose tensor x context from 1, 2, 4." in refusal(alone)


def test_a_schedule_that_holds_everything_is_named() -> None:
    """GPipe keeps the activations and logits of every microbatch; 1F1B those of as many as stages."""
    asked = job(pipeline=2, schedule="gpipe", batch=2048, sequence=4096)
    assert "what would fit: " in (text := refusal(asked))
    assert "schedule: auto (" in text


def test_adapters_beside_nothing() -> None:
    def adapted(*targets: str) -> TrainingJob:
        return changed(job(), lora=Lora(rank=8, targets=targets))  # type: ignore[arg-type]

    text = refusal(adapted("mlp up", "mlp down"), MOE)
    assert "lora.targets names mlp up, mlp down, and moe-8 has none of them" in text
    assert "routed experts get no adapters" in text
    assert text.endswith("nothing would be trained; name qkv or attention output.")
    fabric = machine(4).network.fabric
    check(adapted("mlp up"), DENSE, fabric)
    check(adapted("mlp up"), replace(MOE, shared_experts=1, shared_ffn=512), fabric)
    told = " ".join(check(adapted("qkv", "mlp up"), MOE, fabric))
    assert "lora.targets: moe-8 has no 'mlp up' to adapt" in told
    # the default names every product there may be
    assert "lora.targets" not in " ".join(check(changed(job(), lora=Lora(rank=8)), MOE, fabric))


def test_sharded_parameters_under_split_backward_passes() -> None:
    assert "use zero: 1, or schedule 1f1b" in refusal(job(zero=3, pipeline=4, schedule="zb-h1"))


def test_schedules_that_do_not_go_with_the_chunks() -> None:
    assert "zb-v needs virtual_pipeline 1, but it is 2" in refusal(
        job(pipeline=4, virtual_pipeline=2, schedule="zb-v")
    )
    assert (
        "zb-h1 with virtual stages needs a multiple of 4 microbatches per step, but there are 6"
        in refusal(job(pipeline=4, batch=48, virtual_pipeline=2, schedule="zb-h1"))
    )
    assert "interleaved needs virtual_pipeline above 1" in refusal(job(pipeline=4, schedule="interleaved"))


def test_dualpipe_needs_pairs_and_enough_microbatches() -> None:
    assert "choose an even number" in refusal(job(gpus=24, batch=96, pipeline=3, schedule="dualpipe"))
    text = refusal(job(pipeline=4, batch=32, schedule="dualpipe"))
    assert "at least 2 x 4 = 8, but there are 4; set global_batch to 64" in text


def test_dualpipe_v_needs_enough_microbatches_of_any_number() -> None:
    text = refusal(job(pipeline=4, batch=56, schedule="dualpipe-v"))
    assert "dualpipe-v needs more microbatches per step, at least 2 x 4 = 8, but there are 7" in text
    enough = changed(job(pipeline=4, batch=72, schedule="dualpipe-v"), software="fsdp-2025")
    assert check(enough, DENSE, machine(4).network.fabric) == ()


def test_layers_of_a_folded_model_are_told_by_pieces() -> None:
    text = refusal(job(pipeline=4, schedule="zb-v", layers_per_stage=(2, 2, 2, 2)))
    assert "must be 8 numbers (2 x pipeline) that add up to the 8 layers" in text


def test_layers_per_stage_must_add_up() -> None:
    text = refusal(job(pipeline=4, layers_per_stage=(2, 2, 2, 3)))
    assert "must be 4 numbers (pipeline x virtual_pipeline) that add up to the 8 layers" in text
    assert "it has 4 that add up to 9" in text
    assert "leaves piece 1 without a layer" in refusal(job(pipeline=4, layers_per_stage=(3, 0, 3, 2)))


def test_servers_must_exist_once_and_suffice() -> None:
    text = refusal(changed(job(), servers=(0, 4)))
    assert "servers names number 4, but the cluster has 4 servers, with the numbers 0 to 3" in text
    assert "(server-01 to server-04)" in text
    assert "names number 1 (server-02) twice" in refusal(changed(job(), servers=(1, 1)))
    assert "gpus is 32, but it names 2 servers with 16 GPUs" in refusal(changed(job(gpus=32), servers=(0, 2)))
    assert "a server has 8 GPUs" in refusal(changed(job(), gpus_per_server=9))
    assert "the cluster of 4 servers gives 16" in refusal(changed(job(gpus=32), gpus_per_server=4))


def test_experts_that_cannot_be_cut_name_the_cut_that_is_theirs() -> None:
    odd = replace(MOE, expert_ffn=4098, ffn=4096)
    assert "4098 expert width of moe-8 cannot be cut into layout.tensor = 4" in refusal(job(tensor=4), odd)
    assert "layout.expert_tensor = 4 equal parts" in refusal(job(tensor=8, expert_tensor=4), odd)
    simulate(job(tensor=4, expert_tensor=2), odd, machine(4), predict=priced(50e9), kernel=roofline)


@pytest.mark.parametrize("field", ["expert_imbalance", "expert_capacity"])
def test_no_expert_gets_more_than_every_token_once(field: str) -> None:
    # 8 experts, 2 of them per token: 4 times the mean at most
    text = refusal(changed(job(expert=8), **{field: 4.5}), MOE)
    assert f"{field} is 4.5" in text
    assert "8 / 2 = 4 times the mean" in text
    simulate(changed(job(expert=8), **{field: 4.0}), MOE, machine(4), predict=priced(50e9), kernel=roofline)


def test_a_batch_in_tokens_is_refused_rather_than_simulated_for_hours() -> None:
    text = refusal(job(batch=32 * 4_000_000))
    assert "4,000,000 microbatches on each of 32 data-parallel ranks" in text
    assert "it counts sequences, not tokens" in text
    assert "use at most 3200000" in text
