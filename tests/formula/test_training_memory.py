"""Memory meets Megatron's bytes per parameter and the published figures of Korthikanti et al. 2022."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model import count_parameters, head_operators, load_model
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer
from railwright.spec.lora import Lora
from railwright.spec.training import Layout, Overlap
from railwright.training.layers.stages import stage_shapes, tied_parameters
from railwright.training.layout.in_flight import held_sets
from railwright.training.layout.schedule import orders_of, route_of
from railwright.training.memory.activations import layer_kept
from railwright.training.memory.cached import cached
from railwright.training.memory.peak import SYSTEM, peak_memory
from railwright.training.memory.states import state_parts
from training_cases import DENSE, MOE, changed, job, machine

MEGATRON_175B = Transformer(
    name="megatron-175b",
    layers=96,
    hidden=12288,
    vocab=51200,
    heads=96,
    kv_heads=96,
    head_dim=128,
    ffn=49152,
    gated=False,
    tied_embeddings=True,
    position_embeddings=2048,
    attention_bias=True,
    mlp_bias=True,
    norm_bias=True,
)


def per_parameter(dtype: str, zero: int, data: int) -> float:
    wanted = job(dtype=dtype, zero=zero)
    (shape,) = stage_shapes(DENSE, wanted.layout)
    return sum(state_parts(wanted, DENSE, shape, data).values()) / shape.dense_total


@pytest.mark.parametrize(
    ("dtype", "whole", "kept", "spread"),
    [
        ("bf16", 18, 6, 12),
        ("fp16", 20, 4, 16),
        ("fp8", None, 6, 12),  # 16 bits beside layers' weights where nothing is sharded: test_training_states
    ],
)
def test_bytes_per_parameter_are_megatrons(
    dtype: str, whole: float | None, kept: float, spread: float
) -> None:
    assert whole is None or per_parameter(dtype, 0, 32) == pytest.approx(whole)
    for data in (1, 8, 32):
        assert per_parameter(dtype, 1, data) == pytest.approx(kept + spread / data)


@pytest.mark.parametrize("layout", [{}, {"pipeline": 4}, {"pipeline": 2, "virtual_pipeline": 2}])
@pytest.mark.parametrize("arch", [DENSE, MOE])
def test_stages_hold_the_whole_model_once(arch: Transformer, layout: dict[str, int]) -> None:
    shapes = stage_shapes(arch, job(**layout).layout)  # type: ignore[arg-type]
    held = sum(s.dense_total + s.expert_total for s in shapes)
    assert held == pytest.approx(count_parameters(arch).total)
    layers = [
        first + i
        for s in shapes
        for first, c in zip(s.first, s.chunks, strict=True)
        for i in range(len(c.layers))
    ]
    assert sorted(layers) == list(range(arch.layers))


def test_175b_on_64_gpus_keeps_45_gib_of_state() -> None:
    # Korthikanti et al. 2022, figure 1: parameters and optimizer of 175B under TP8 PP8; digitised by
    # Calculon (validation.py) as 45.56 GiB at 18 bytes per parameter.  Ours is the first stage, which also
    # holds the embedding, 3 % more.
    wanted = job(tensor=8, pipeline=8, zero=0, sequence=2048)
    first = stage_shapes(MEGATRON_175B, wanted.layout)[0]
    assert sum(state_parts(wanted, MEGATRON_175B, first, 1).values()) / 2**30 == pytest.approx(
        45.56, rel=0.04
    )


def test_175b_activations_under_sequence_parallelism() -> None:
    # Same figure: 12.35 GiB = 34 s b h / t per layer, 12 layers per stage, p (1 + (p-1)/(p v)) with v = 3.
    # Without dropout masks (1 byte on two of them per layer and the attention's) 32 of the 34 remain.
    wanted = job(
        tensor=8,
        pipeline=8,
        virtual_pipeline=3,
        sequence=2048,
        batch=64,
        sequence_parallel=True,
        recompute="selective",
    )
    memory = peak_memory(wanted, MEGATRON_175B, machine(8).network.fabric, 80e9)
    masks = 2048 * 12288 * 2 / 8 * 12 * 8 * (1 + 7 / 24)
    assert (memory.parts["activations"] + masks) / 2**30 == pytest.approx(12.35, rel=0.02)


def test_full_recompute_keeps_layer_inputs_only() -> None:
    wanted = job(recompute="full", sequence=1024, zero=0)
    memory = peak_memory(wanted, DENSE, machine(4).network.fabric, 80e9)
    assert memory.parts["activations"] == pytest.approx(2 * 1024 * DENSE.hidden * DENSE.layers)


def test_parts_add_up() -> None:
    memory = peak_memory(job(expert=4, tensor=2), MOE, machine(4).network.fabric, 80e9)
    assert sum(memory.parts.values()) == pytest.approx(memory.total)


@pytest.mark.parametrize(
    ("layout", "adapters"),
    [({}, 4), ({"recompute": "selective", "recompute_modules": ("mlp",)}, 2), ({"tensor": 4}, 4)],
)
def test_adapters_keep_what_lies_between_their_products(layout: dict[str, object], adapters: int) -> None:
    """The gradient of B needs x A: two bytes a token and a number of the rank, on every tensor rank."""

    def activations(rank: int) -> float:
        wanted = job(batch=32, **layout).model_copy(update={"lora": Lora(rank=rank)})  # type: ignore[arg-type]
        return peak_memory(wanted, DENSE, machine(4).network.fabric, 80e9).parts["activations"]

    inner = 2 * 1024 * (512 - 16) * adapters * DENSE.layers
    assert activations(512) - activations(16) == pytest.approx(inner)


def test_a_stage_without_layers_has_no_gradient_of_adapters() -> None:
    # the first of two stages has the embedding alone: under zero: 3 none of it waits to be reduced
    layout = {"pipeline": 2, "layers_per_stage": (0, 8), "zero": 3}
    wanted = job(batch=64, **layout).model_copy(update={"lora": Lora(rank=16)})  # type: ignore[arg-type]
    first, last = peak_memory(wanted, DENSE, machine(4).network.fabric, 80e9).stages
    assert "gradients before reduction" not in first.parts
    assert last.parts["gradients before reduction"] > 0


@pytest.mark.parametrize(
    ("layout", "held"),
    [
        # p - s passes of 1F1B; all m of GPipe; every stage p of ZB-H1
        ({"pipeline": 4}, [4, 3, 2, 1]),
        ({"pipeline": 4, "schedule": "gpipe"}, [8, 8, 8, 8]),
        ({"pipeline": 4, "schedule": "zb-h1"}, [4, 4, 4, 4]),
        ({"pipeline": 4, "schedule": "zb-h1", "virtual_pipeline": 2}, [8, 8, 8, 8]),
        # of chunks half as large: 2 p of ZB-V, 2 p + 1 of DualPipeV
        ({"pipeline": 4, "schedule": "zb-v"}, [8, 8, 8, 8]),
        ({"pipeline": 4, "schedule": "dualpipe-v"}, [9, 9, 9, 9]),
        # interleaved: 2 (p - s - 1) + (v - 1) p + 1
        ({"pipeline": 4, "virtual_pipeline": 2}, [11, 9, 7, 5]),
    ],
)
def test_passes_held_by_schedule(layout: dict[str, object], held: list[int]) -> None:
    orders = orders_of(job(**layout), 8)
    chunks = route_of(job(**layout).layout).chunks
    assert [max(map(sum, held_sets(order, chunks))) for order in orders] == held


def test_dualpipe_holds_two_copies_and_one_pass_more() -> None:
    # arXiv 2412.19437, table 2: 2 x parameters, p + 1 sets of activations
    plain, both = (
        peak_memory(job(pipeline=4, batch=64, schedule=s), DENSE, machine(4).network.fabric, 80e9)
        for s in ("1f1b", "dualpipe")
    )
    middle = [m.stages[1].parts["weights"] for m in (plain, both)]
    assert middle[1] == pytest.approx(2 * middle[0])
    assert max(s.passes for s in both.stages) == 5


def test_a_folded_model_has_embedding_and_head_on_the_first_stage() -> None:
    shapes = stage_shapes(DENSE, job(pipeline=4, schedule="zb-v").layout)
    ends = [(any(c.embedding for c in s.chunks), any(c.head for c in s.chunks)) for s in shapes]
    assert ends == [(True, True), (False, False), (False, False), (False, False)]
    assert [[s.first[c] for s in shapes] for c in (0, 1)] == [[0, 1, 2, 3], [7, 6, 5, 4]]
    # tied, one table is both, and none is reduced between stages
    tied = replace(DENSE, tied_embeddings=True)
    layout = job(pipeline=4, schedule="zb-v").layout
    assert tied_parameters(tied, layout) == 0
    one, two = (stage_shapes(arch, layout)[0].dense_total for arch in (tied, DENSE))
    assert two - one == DENSE.vocab * DENSE.hidden


def test_a_tied_table_of_dualpipe_is_one_on_each_of_the_outer_stages() -> None:
    # each has the embedding of one copy of the model and the head of the other; the copies are summed anyhow
    layout = job(pipeline=4, schedule="dualpipe").layout
    tied = replace(DENSE, tied_embeddings=True)
    assert tied_parameters(tied, layout) == 0
    first, last = ([stage_shapes(arch, layout)[s].dense_total for arch in (DENSE, tied)] for s in (0, 3))
    assert first[0] - first[1] == last[0] - last[1] == DENSE.vocab * DENSE.hidden


def test_passes_held_when_gradients_reach_the_embedding() -> None:
    def ends(schedule: str, hidden: bool = False, **layout: object) -> tuple[tuple[int, ...], ...]:
        wanted = job(schedule=schedule, expert=2, overlap=Overlap(ep=hidden), **layout)  # type: ignore[arg-type]
        order, chunks = orders_of(wanted, 8)[0], route_of(wanted.layout).chunks
        return held_sets(order, chunks, embedding=0, layered=hidden)

    # 1F1B holds p passes of which one has just ended
    assert ends("1f1b", pipeline=4) == ((3,),)
    # two chunks of two stages: 5 passes in flight at most, one of the first chunk has ended
    assert ends("interleaved", pipeline=2, virtual_pipeline=2) == ((3, 1), (2, 2))
    # in pairs the forward pass beside is whole by then: one more
    assert ends("auto", hidden=True, pipeline=2, virtual_pipeline=2) == ((3, 2),)


def test_every_stage_has_its_peak_and_the_fullest_is_named() -> None:
    memory = peak_memory(job(pipeline=4), DENSE, machine(4).network.fabric, 80e9)
    assert [s.stage for s in memory.stages] == [0, 1, 2, 3]
    assert memory.total == max(s.total for s in memory.stages)
    assert memory.parts == memory.stages[memory.stage].parts
    assert memory.why.startswith(f"stage {memory.stage} of 4 at ")
    for stage in memory.stages:
        assert sum(stage.parts.values()) == pytest.approx(stage.total)
    assert memory.stages[3].moment == "head backward"


def test_context_ranks_share_the_rows() -> None:
    def kept(**layout: object) -> float:
        wanted = job(sequence=1024, zero=0, **layout)  # type: ignore[arg-type]
        return peak_memory(wanted, DENSE, machine(4).network.fabric, 80e9).parts["activations"]

    assert kept(context=4) == pytest.approx(kept() / 4)
    # heads swapped for tokens: the output before the swap back is kept too
    swapped = kept(context=4, context_kind="all-to-all")
    assert swapped - kept(context=4) == pytest.approx(8 * 256 * 2 * 1024)


def test_multi_token_prediction_lies_on_the_last_stage() -> None:
    # DeepSeek-V3: one more MoE layer, a product joining two hidden states, three norms, and, where the first
    # stage is another, a copy of the embedding; the head runs twice
    arch = load_model("deepseek-v3")
    layout = job(pipeline=4, expert=8).layout
    shapes = stage_shapes(arch, layout)
    held = sum(s.dense_total + 8 * s.expert_total for s in shapes)
    table = 129280 * 7168
    assert held == pytest.approx(count_parameters(arch).total + count_parameters(arch).mtp + table)
    assert tied_parameters(arch, layout) == table
    whole = stage_shapes(arch, job(expert=8).layout)[0]
    assert whole.dense_total + 8 * whole.expert_total == pytest.approx(held - table)
    assert sum(len(c.layers) for s in shapes for c in s.chunks) == 62
    without = replace(arch, mtp_layers=0)
    with_head, plain = (
        peak_memory(job(pipeline=4, expert=8, sequence=1024), a, machine(4).network.fabric, 80e9).stages[3]
        for a in (arch, without)
    )
    logits = 1024 * (2 * 2 * 7168 + 2 * 129280)
    assert with_head.parts["logits"] - plain.parts["logits"] == pytest.approx(logits)
    heads = [op.name for op in head_operators(arch, 1024).forward if op.name.endswith("lm head")]
    assert heads == ["lm head", "mtp 1 lm head"]


def test_an_eager_loss_keeps_its_softmax_in_fp32_beside_the_logits() -> None:
    # Transformer Engine's: 16-bit logits, replaced by their gradient; Megatron's own: 4 bytes of softmax kept
    # and 2 of logits or gradient (core/tensor_parallel/cross_entropy.py).
    fused = job(micro_batch=8).model_copy(update={"software": "megatron-2025"})
    eager = fused.model_copy(update={"unfused": ("loss",)})
    fabric = machine(1).network.fabric
    stages = [peak_memory(one, DENSE, fabric, 0.0).stages[-1] for one in (fused, eager)]
    logits = [stage.parts["logits"] for stage in stages]
    assert [stage.moment for stage in stages] == ["head backward"] * 2
    assert logits[1] - logits[0] == 8 * 1024 * DENSE.vocab * 4


def test_pytorchs_loss_takes_6_bytes_of_a_logit_more_than_flash_attns() -> None:
    """Hugging Face's models: fp32 logits, their log-softmax and a gradient of either."""
    fused = job(micro_batch=8).model_copy(update={"software": "fsdp-2023"})
    eager = fused.model_copy(update={"unfused": ("loss",)})
    fabric = machine(1).network.fabric
    logits = [peak_memory(one, DENSE, fabric, 0.0).stages[-1].parts["logits"] for one in (fused, eager)]
    assert logits[1] - logits[0] == 8 * 1024 * DENSE.vocab * (12 - 6)


@pytest.mark.parametrize(
    ("software", "at_work", "waiting"),
    [("megatron-2025", 2, 2), ("nemo-2024", 6, 4), ("fsdp-2024", 12, 4), ("fsdp-2025", 4, 2)],
)
def test_passes_that_wait_under_gpipe_hold_what_their_loss_kept(
    software: str, at_work: int, waiting: int
) -> None:
    # the last of 4 stages holds 8 passes; gradients of logits are those of one
    wanted = job(pipeline=4, schedule="gpipe", sequence=4096).model_copy(update={"software": software})
    last = peak_memory(wanted, DENSE, machine(4).network.fabric, 80e9).stages[3]
    assert (last.moment, last.passes) == ("head backward", 8)
    norms = 8 * 2 * 2 * DENSE.hidden
    assert last.parts["logits"] == 4096 * (norms + (at_work + 7 * waiting) * DENSE.vocab)


@pytest.mark.parametrize(("software", "hidden"), [("xla-2024", 2), ("xla-2025", 1)])
def test_jax_saves_what_it_names(software: str, hidden: int) -> None:
    """The layer's input, queries, keys and values, and PaXML's output projection (dgxc-benchmarking)."""
    modules = ("layernorm", "core_attn", "mlp")
    wanted = job(sequence=4096, zero=3, recompute="selective", recompute_modules=modules)
    queries = 2 * 4096 * DENSE.head_dim * (DENSE.heads + 2 * DENSE.kv_heads)
    kept = layer_kept(changed(wanted, software=software), DENSE, "dense")
    assert kept == hidden * 2 * 4096 * DENSE.hidden + queries


@pytest.mark.parametrize("software", ["xla-2024", "xla-2025"])
@pytest.mark.parametrize(
    ("arch", "kind", "modules"),
    [
        (DENSE, "dense", ("core_attn",)),
        (DENSE, "dense", ("mlp",)),
        (DENSE, "dense", ("ops",)),
        (MOE, "moe", ("core_attn", "mlp")),
    ],
)
def test_jax_keeps_of_what_does_not_run_again_as_much_as_others(
    software: str, arch: Transformer, kind: Layer, modules: tuple[str, ...]
) -> None:
    """Time is charged for the modules named; memory is not spared for more."""
    wanted = job(sequence=4096, zero=3, recompute="selective", recompute_modules=modules)
    others = layer_kept(changed(wanted, software="megatron-2025"), arch, kind)
    assert layer_kept(changed(wanted, software=software), arch, kind) == others
    full = changed(wanted, software=software, layout=Layout(zero=3, recompute="full"))
    assert layer_kept(full, arch, kind) < others


@pytest.mark.parametrize("software", ["megatron-2025", "nemo-2024"])
def test_the_heads_empty_gradient_stays_since_core_0_14(software: str) -> None:
    """One more shape of weight beside all that a stage with a head does; the head's own backward pass has it
    either way."""
    arch = replace(DENSE, vocab=128_000)
    wanted = job(pipeline=2, micro_batch=4, sequence=4096, batch=128, zero=0).model_copy(
        update={"software": software}
    )
    fabric = machine(4).network.fabric
    size, stays = 2 * arch.vocab * arch.hidden, software == "megatron-2025"
    for fields, moment in (
        ({}, "head backward"),
        ({"gradient_dtype": "bf16", "sequence": 64}, "optimizer step"),
    ):
        one = wanted.model_copy(update=fields)
        first, last = peak_memory(one, arch, fabric, 80e9).stages
        assert last.moment == moment
        assert last.parts.get("gradient of the head", 0) == size * (stays or moment == "head backward")
        assert "gradient of the head" not in first.parts
        for stage in (first, last):
            found = cached(one, arch, fabric, stage.stage)
            assert found is not None
            assert found.allocated == pytest.approx(stage.total - stage.parts[SYSTEM], rel=0.02)
