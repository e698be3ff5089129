"""Weights, gradients and optimizer states of one GPU, by format, sharding and software."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model import count_parameters
from railwright.model.shape.architecture import Transformer
from railwright.spec.lora import Lora
from railwright.spec.training import Overlap
from railwright.training.layers.stages import stage_shapes
from railwright.training.memory.cached import cached
from railwright.training.memory.moved import MOVED, at_start, buffers
from railwright.training.memory.peak import SYSTEM, peak_memory
from railwright.training.memory.states import COPY, PASSING, WIDENED, cached_weights, state_parts
from railwright.training.memory.units import GATHERED, WAITING, beside
from training_cases import DENSE, MOE, changed, job, machine


def test_experts_are_sharded_over_fewer_ranks() -> None:
    # EP8 of 32 ranks: 4 replicas of each expert, 32 of the rest
    wanted = job(expert=8)
    (shape,) = stage_shapes(MOE, wanted.layout)
    states = state_parts(wanted, MOE, shape, 32)["optimizer states"]
    assert states == pytest.approx(12 * (shape.dense_total / 32 + shape.expert_total / 4))


def test_every_weight_lies_once_on_all_ranks_under_zero_3() -> None:
    # EP4 of 32 ranks: a GPU holds an eighth of its quarter of the experts, and 1/32 of the rest
    wanted = job(expert=4, zero=3)
    (shape,) = stage_shapes(MOE, wanted.layout)
    assert state_parts(wanted, MOE, shape, 32)["weights"] == pytest.approx(
        2 * count_parameters(MOE).total / 32
    )


def states(ranks: int = 32, **changes: object) -> dict[str, float]:
    """State parts of the dense model on one stage, with fields of job and layout changed."""
    layout = {k: v for k, v in changes.items() if k in ("zero", "shard", "reduce_each", "reshard", "offload")}
    own = {k: v for k, v in changes.items() if k not in layout}
    wanted = job(**layout).model_copy(update=own)  # type: ignore[arg-type]
    (shape,) = stage_shapes(DENSE, wanted.layout, wanted.lora)
    return state_parts(wanted, DENSE, shape, ranks)


PARAMETERS = float(count_parameters(DENSE).total)


@pytest.mark.parametrize(
    ("changes", "per_rank"),
    [
        ({}, 12),
        ({"moment_dtype": "bf16"}, 8),
        ({"moment_dtype": "fp8"}, 6),
        ({"master": "remainder"}, 10),
        ({"offload": ("optimizer",)}, 0),
    ],
)
def test_optimizer_states_by_format(changes: dict[str, object], per_rank: float) -> None:
    # fp32 master weight and moments 4 + 4 + 4; narrow moments 4 + 2 + 2 and 4 + 1 + 1; 16 bits beyond the
    # bf16 weight 2 + 4 + 4
    assert states(**changes).get("optimizer states", 0.0) == pytest.approx(per_rank * PARAMETERS / 32)


def test_16_bit_gradients_are_copied_for_the_step_unless_the_optimizer_takes_them() -> None:
    narrow = states(gradient_dtype="bf16")
    assert narrow["gradients"] == pytest.approx(2 * PARAMETERS)
    assert narrow[COPY] == pytest.approx(4 * PARAMETERS / 32)
    assert COPY not in states(gradient_dtype="bf16", moment_dtype="bf16")
    assert COPY not in states()


@pytest.mark.parametrize(
    ("moments", "software", "widened"),
    [
        ("fp32", "megatron-2025", 0),
        ("bf16", "megatron-2025", 8),
        ("bf16", "megatron-2026", 0),
        ("fp8", "megatron-2025", 8),
        ("fp8", "megatron-2026", 8),
        ("fp8", "fsdp-2025", 0),
    ],
)
def test_narrow_moments_are_widened_for_the_step(moments: str, software: str, widened: float) -> None:
    """Two moments in fp32 of a rank's share: FusedAdam of Transformer Engine, which reads bf16 since 2.14."""
    zero = 3 if software.startswith("fsdp") else 1
    parts = states(zero=zero, moment_dtype=moments, software=software)
    assert parts.get(WIDENED, 0.0) == pytest.approx(widened * PARAMETERS / 32)
    assert WIDENED not in states(zero=zero, moment_dtype=moments, software=software, offload=("optimizer",))


def test_apexs_kernel_reads_narrow_moments_as_they_are() -> None:
    """multi_tensor_distopt_adam_kernel.cu, DistAdamFunctor: of any type, and no copy is made of them."""
    apex = {"software": "nemo-2024", "moment_dtype": "bf16"}
    assert WIDENED in states(**apex)
    assert WIDENED not in states(**apex, apex_bucket=125 * 2.0**20)


def test_moments_of_experts_and_of_other_weights_are_widened_in_turn() -> None:
    # EP8 of 32 ranks: 4 replicas of each expert, 32 of the rest
    wanted = job(expert=8).model_copy(update={"moment_dtype": "fp8"})
    (shape,) = stage_shapes(MOE, wanted.layout)
    most = max(shape.dense_total / 32, shape.expert_total / 4)
    assert state_parts(wanted, MOE, shape, 32)[WIDENED] == pytest.approx(8 * most)


def test_the_allocator_holds_widened_moments_too() -> None:
    """Two ranks of a small model with few tokens are fullest at the step."""
    wanted = job(gpus=2, batch=2, sequence=512, zero=1).model_copy(update={"moment_dtype": "fp8"})
    fabric = machine(1).network.fabric
    memory, held = peak_memory(wanted, DENSE, fabric, 80e9), cached(wanted, DENSE, fabric, 0)
    assert WIDENED in memory.parts
    assert held is not None
    assert held.allocated == pytest.approx(memory.total - memory.parts[SYSTEM], rel=0.02)


@pytest.mark.parametrize(("dtype", "byte"), [("bf16", 2), ("fp8", 2), ("mxfp8", 2.0625), ("nvfp4", 3.125)])
def test_weights_by_format(dtype: str, byte: float) -> None:
    # embedding, head and final norm stay in 16 bits
    (shape,) = stage_shapes(DENSE, job().layout)
    ends = shape.embedding + shape.head
    assert states(dtype=dtype)["weights"] == pytest.approx(2 * ends + byte * (PARAMETERS - ends))


@pytest.mark.parametrize(
    ("dtype", "gather", "byte"),
    [
        ("fp8", False, 4),
        ("fp8", True, 2),
        ("mxfp8", False, 4.0625),
        ("bf16", False, 2),
        ("nvfp4", False, 3.125),
    ],
)
def test_16_bits_lie_beside_weights_in_8_where_a_job_says_so(dtype: str, gather: bool, byte: float) -> None:
    """Megatron-LM without --fp8-param-gather: a weight in bf16, and two cached copies that products read."""
    (shape,) = stage_shapes(DENSE, job().layout)
    ends = shape.embedding + shape.head
    wanted = changed(job(), dtype=dtype, fp8_param_gather=gather)
    found = state_parts(wanted, DENSE, shape, 32)["weights"]
    assert found == pytest.approx(2 * ends + byte * (PARAMETERS - ends))
    if gather is False and dtype in ("fp8", "mxfp8"):
        # the copies come with the first pass; until then a weight is as in bf16
        made = cached_weights(wanted, shape, 32)
        assert found - made == pytest.approx(2 * PARAMETERS)
        assert {b.weights for b in buffers(wanted, shape)} == {b.weights for b in buffers(job(), shape)}
        # with one copy (Blackwell) both lack the other
        one = state_parts(wanted, DENSE, shape, 32, one_copy=True)["weights"]
        assert one - cached_weights(wanted, shape, 32, one_copy=True) == pytest.approx(2 * PARAMETERS)
    assert state_parts(changed(wanted, software="fsdp-2025"), DENSE, shape, 32)["weights"] == pytest.approx(
        state_parts(changed(job(), dtype=dtype, software="fsdp-2025"), DENSE, shape, 32)["weights"]
    )


@pytest.mark.parametrize(
    ("ranks", "changes", "beside"),
    [
        (32, {"zero": 0}, 2),
        (1, {"zero": 0}, 0),  # nothing is shared out: the distributed optimizer costs nothing
        (32, {"zero": 1}, 0),
        (32, {"offload": ("optimizer",)}, 2),
        (32, {"zero": 0, "software": "fsdp-2025"}, 0),
    ],
    ids=str,
)
def test_weights_in_8_bits_have_16_beside_them_where_megatron_cannot_gather_them(
    ranks: int, changes: dict[str, object], beside: int
) -> None:
    """Megatron-LM, arguments.py, validate_args: fp8_param_gather wants the distributed optimizer on the GPU,
    or scales of earlier steps."""
    (shape,) = stage_shapes(DENSE, job().layout)
    layers = PARAMETERS - shape.embedding - shape.head
    for dtype, alone in (("mxfp8", 2.0625), ("fp8", 2.0)):
        found = states(ranks, dtype=dtype, **changes)["weights"]
        assert found == pytest.approx(2 * (PARAMETERS - layers) + (alone + beside) * layers)
        if beside:
            # until the first pass makes what products read, a weight is as in bf16, in buffers too
            wanted = changed(job(**{k: v for k, v in changes.items() if k != "software"}), dtype=dtype)
            assert found - cached_weights(wanted, shape, ranks) == pytest.approx(2 * PARAMETERS)
            kept = {b.weights for b in buffers(wanted, shape)}
            assert kept == {b.weights for b in buffers(changed(wanted, dtype="bf16"), shape)}
    if "offload" in changes:
        delayed = states(ranks, dtype="fp8", amax_over="stage", **changes)["weights"]
        assert delayed == pytest.approx(2 * PARAMETERS)


def test_zero_3_keeps_a_share_and_gathers_units() -> None:
    # the head (32,000 x 1,024 and its norm) and the embedding are the largest two units: one computes, one is
    # prefetched
    parts = states(zero=3)
    assert parts["weights"] == pytest.approx(2 * PARAMETERS / 32)
    assert parts["gathered weights"] == pytest.approx(2 * (2 * 32000 * 1024 + 1024))
    assert parts["gradients"] == pytest.approx(4 * PARAMETERS / 32)
    assert parts["gradients before reduction"] == pytest.approx(4 * (32000 * 1024 + 1024))
    assert states(zero=3, overlap=Overlap(prefetch=0))["gathered weights"] == pytest.approx(
        2 * (32000 * 1024 + 1024)
    )
    assert states(zero=3, reshard=False)["gathered weights"] == pytest.approx(2 * PARAMETERS)
    assert states(zero=3, shard=8)["weights"] == pytest.approx(2 * PARAMETERS / 8)
    torch = states(zero=3, software="fsdp-2024")
    assert torch["weights"] + torch["optimizer states"] == pytest.approx(12 * PARAMETERS / 32)


@pytest.mark.parametrize(("dtype", "copies"), [("nvfp4", 2 * 9 / 16), ("fp8_block", 2 * (1 + 4 / 128**2))])
def test_zero_3_shards_no_copies_that_transformer_engine_makes(dtype: str, copies: float) -> None:
    (shape,) = stage_shapes(DENSE, job().layout)
    layers = PARAMETERS - shape.embedding - shape.head
    found = states(dtype=dtype, zero=3)["weights"]
    assert found == pytest.approx(2 * PARAMETERS / 32 + copies * layers)
    assert cached_weights(job(dtype=dtype, zero=3), shape, 32) == pytest.approx(copies * layers)
    # in 8 bits Megatron-FSDP shards what products read; others cast in every pass
    assert states(dtype="mxfp8", zero=3)["weights"] == pytest.approx(2 * PARAMETERS / 32)
    others = states(dtype=dtype, zero=3, software="fsdp-2025")
    assert others["weights"] == states(zero=3, software="fsdp-2025")["weights"]


def test_states_are_divided_inside_a_group() -> None:
    """Of 32 ranks in groups of 8 each keeps an eighth: Megatron's distributed optimizer instances."""
    parts = states(shard=8)
    assert parts["optimizer states"] == pytest.approx(12 * PARAMETERS / 8)
    assert (parts["weights"], parts["gradients"]) == (states()["weights"], states()["gradients"])
    assert states(zero=2, shard=8)["gradients"] == pytest.approx(4 * PARAMETERS / 8)


def test_zero_2_keeps_one_bucket_of_gradients_whole() -> None:
    parts = states(zero=2)
    assert parts["gradients before reduction"] == pytest.approx(4 * 40e6)
    assert parts["weights"] == pytest.approx(2 * PARAMETERS)
    assert states(zero=2, reduce_each=False)["gradients"] == pytest.approx(4 * PARAMETERS)


def test_frozen_weights_have_neither_gradients_nor_states() -> None:
    parts = states(lora=Lora(rank=16))
    adapters = parts["gradients"] / 4
    assert 0 < adapters < 0.02 * PARAMETERS
    assert parts["weights"] == pytest.approx(2 * (PARAMETERS + adapters))
    assert parts["optimizer states"] == pytest.approx(12 * adapters / 32)


@pytest.mark.parametrize(("software", "byte"), [("fsdp-2023", 4), ("fsdp-2025", 4), ("megatron-2025", 2)])
def test_frozen_shards_have_the_type_that_weights_are_loaded_in(software: str, byte: int) -> None:
    # llm-foundry and torchtitan load fp32 and freeze it; FSDP gathers 16 bits of it
    parts = states(lora=Lora(rank=16), zero=3, software=software)
    adapters = parts["gradients"] / 4 * 32
    assert parts["weights"] == pytest.approx(byte * (PARAMETERS + adapters) / 32)
    assert parts["gathered weights"] < 2 * PARAMETERS


def test_frozen_shards_in_16_bits_take_half_and_the_adapters_beside_them_do_not() -> None:
    """torchtune's, and Hugging Face's Trainer's, which makes fp32 of what trains; as much is gathered."""
    wide, narrow = (
        states(lora=Lora(rank=16, frozen_dtype=frozen), zero=3, software="fsdp-2025")
        for frozen in ("fp32", "bf16")
    )
    adapters = wide["gradients"] / 4
    assert narrow.pop("weights") == pytest.approx(2 * PARAMETERS / 32 + 4 * adapters)
    assert wide.pop("weights") == pytest.approx(4 * PARAMETERS / 32 + 4 * adapters)
    assert narrow == wide


@pytest.mark.parametrize(("frozen", "byte"), [(None, 4 + 2), ("bf16", 2)])
def test_frozen_shards_on_their_way_from_the_host(frozen: str | None, byte: int) -> None:
    """Of the largest unit, a layer with its adapters: fp32 and the 16 bits made of it, or 16 bits alone; of
    what trains 4 + 2 and a gradient in fp32."""
    lora = Lora(rank=16, frozen_dtype=frozen)  # type: ignore[arg-type]
    parts = states(lora=lora, zero=3, software="fsdp-2025", offload=("weights",))
    (shape,) = stage_shapes(DENSE, job().layout, lora)
    largest = max(shape.embedding, shape.head)
    layer, adapters = shape.dense[0][0], shape.adapters[0][0]  # type: ignore[index]
    assert layer - adapters < largest
    each = max(byte * largest, byte * (layer - adapters) + 10 * adapters)
    assert parts[PASSING] == pytest.approx(each / 32)
    assert parts["weights"] == 0


@pytest.mark.parametrize(("reshard", "moment"), [(True, "optimizer step"), (False, "head backward")])
def test_nothing_is_gathered_or_waits_at_the_optimizers_step(reshard: bool, moment: str) -> None:
    """A copy of half of the gradients outweighs units of weights and gradients, but not all the weights."""
    wanted = job(gpus=8, zero=3, shard=2, reshard=reshard, recompute="full", batch=32, sequence=256)
    wanted = wanted.model_copy(update={"gradient_dtype": "bf16"})
    (stage,) = peak_memory(wanted, DENSE, machine(4).network.fabric, 80e9).stages
    assert stage.moment == moment
    at_step = moment == "optimizer step"
    assert (COPY in stage.parts) == at_step
    assert all((name in stage.parts) != at_step for name in (GATHERED, WAITING))


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("arch", [DENSE, MOE])
def test_what_one_rank_alone_holds_is_neither_gathered_nor_reduced(arch: Transformer, zero: int) -> None:
    """Tensor and pipeline parallelism take all 32 GPUs; torchtitan makes 16 bits of its fp32 shards all the
    same."""
    alone = {"tensor": 8, "pipeline": 4, "batch": 8}
    fabric = machine(4).network.fabric

    def total(stage: int, software: str = "megatron-2025") -> float:
        one = job(zero=stage, **alone).model_copy(update={"software": software})  # type: ignore[arg-type]
        return peak_memory(one, arch, fabric, 80e9).total

    # buffers of all gradients have placeholders of single ones beside them, which shards of each have not
    assert total(1) - 4.1e6 < total(zero) <= total(1)
    if zero == 3:
        parts = peak_memory(
            job(zero=3, **alone).model_copy(update={"software": "fsdp-2025"}),  # type: ignore[arg-type]
            arch, fabric, 80e9,
        ).parts  # fmt: skip
        assert parts[GATHERED] > 0


@pytest.mark.parametrize("vocab", [32_000, 256_000])
def test_ends_of_one_rank_have_their_gradients_under_zero_3_too(vocab: int) -> None:
    """What Megatron's FSDP lacks beside ZeRO-0 over one rank are empty gradients alone, which its products do
    not make: embedding and head have theirs before these are added to the sums."""
    arch, fabric = replace(DENSE, vocab=vocab), machine(4).network.fabric
    alone, whole = (
        peak_memory(job(zero=zero, gpus=1), arch, fabric, 80e9).stages[0].parts for zero in (3, 0)
    )
    empty = whole.pop("gradient placeholders")
    assert empty > 0
    assert alone == pytest.approx(whole)
    assert {"gradient of the head", "gradient of the embedding"} & set(alone)


def test_a_units_gradients_wait_in_16_bits_for_sums_in_fp32() -> None:
    """FSDP that reduces once a step: 4 bytes of every gradient, and 2 of those of the largest unit; FSDP2 of
    the layer at work."""
    for software in ("fsdp-2023", "fsdp-2025"):
        parts = states(zero=3, reduce_each=False, software=software)
        assert parts["gradients"] == pytest.approx(4 * PARAMETERS)
    (shape,) = stage_shapes(DENSE, job(zero=3).layout)
    layer, end = max(shape.dense[0]), DENSE.vocab * DENSE.hidden
    parts = states(zero=3, reduce_each=False, software="fsdp-2023")
    assert parts[WAITING] == pytest.approx(2 * max(layer, end), rel=1e-3)
    once = changed(job(zero=3, reduce_each=False), software="fsdp-2025")
    assert beside(once, shape, [[0.0] * DENSE.layers]).layer[WAITING] == pytest.approx(2 * layer)
    # sums in 16 bits take what autograd makes as it is
    for software in ("fsdp-2023", "fsdp-2025"):
        narrow = states(zero=3, reduce_each=False, software=software, gradient_dtype="bf16")
        assert WAITING not in narrow
    narrow = changed(once, gradient_dtype="bf16")
    assert beside(narrow, shape, [[0.0] * DENSE.layers]).layer[WAITING] == 0


def test_experts_of_one_rank_are_not_gathered_where_dense_parameters_are() -> None:
    """32 ranks, an expert on each of 8 and 4 copies of it; then groups as large as all that hold experts."""
    (shape,) = stage_shapes(MOE, job(expert=8).layout)
    parts = state_parts(job(expert=8, zero=3, reshard=False), MOE, shape, 8)
    dense = shape.dense_total
    assert parts[GATHERED] == pytest.approx(2 * dense)
    spread = state_parts(job(expert=8, zero=3, reshard=False), MOE, shape, 32)
    assert spread[GATHERED] == pytest.approx(2 * (dense + shape.expert_total))


def test_a_reduced_gradient_has_the_type_of_fp32_shards() -> None:
    """Whatever it is sent in: FSDP keeps 4 bytes of it and copies nothing for the step."""
    parts = states(zero=3, software="fsdp-2025", gradient_dtype="bf16")
    assert parts["gradients"] == pytest.approx(4 * PARAMETERS / 32)
    assert COPY not in parts
    megatron = states(zero=3, gradient_dtype="bf16")
    assert megatron["gradients"] == pytest.approx(2 * PARAMETERS / 32)
    assert megatron[COPY] == pytest.approx(4 * PARAMETERS / 32)


@pytest.mark.parametrize(("dtype", "each"), [(None, 4.0), ("bf16", 2.0)])
def test_at_the_start_weights_are_there_twice_beside_all_gradients(dtype: str | None, each: float) -> None:
    # Megatron-LM's distributed optimizer: one buffer of weights, made behind that of gradients
    wanted = changed(job(gpus=32, sequence=64, batch=32), gradient_dtype=dtype)
    (shape,) = stage_shapes(DENSE, wanted.layout)
    found = at_start(wanted, shape, 2.0 * shape.dense_total)
    assert found == {
        "weights": 2 * shape.dense_total,
        MOVED: 2 * shape.dense_total,
        "gradients": each * shape.dense_total,
    }
    # nothing moves where weights are gathered in the buffer of their gradients, or not sharded so
    for other in (changed(wanted, software="megatron-2022"), job(zero=0), job(zero=2)):
        assert at_start(other, shape, 1.0) == {}
