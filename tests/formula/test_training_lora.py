"""Adapters beside frozen weights, against closed forms (docs/training/layouts.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from railwright.model import count_parameters, layer_operators, load_model
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Layer, Operator, Transformer
from railwright.spec.lora import Lora
from railwright.spec.training import Layout, Overlap
from railwright.training.checks.plan import check
from railwright.training.layers.cut import cut_of
from railwright.training.layers.stages import stage_shapes
from railwright.training.software.lora import adapter_parameters, linears, with_adapters
from training_cases import DENSE, MOE, job, machine, sent

ROWS = 1024


def adapted(
    lora: Lora, arch: Transformer = DENSE, kind: Layer = "dense", hidden: bool = False, **layout: object
) -> LayerOperators:
    """Operators of a layer on 1,024 tokens; hidden: tensor parallelism behind products."""
    wanted = job(gpus=32, **layout).model_copy(update={"lora": lora, "overlap": Overlap(tp=hidden)})  # type: ignore[arg-type]
    plain = layer_operators(arch, kind, ROWS, ROWS, cut_of(wanted, kind))
    return with_adapters(plain, wanted, "bf16")


def bytes_of(operators: Iterable[Operator], end: str) -> dict[str, float]:
    """Bytes of operators whose name has an end before its phase, by product."""
    found = ((op.name.rsplit(", ", 1)[0], op.bytes) for op in operators)
    return {name.removesuffix(end): moved for name, moved in found if name.endswith(end)}


def test_adapters_train_and_nothing_else_does() -> None:
    lora = Lora(rank=8)
    wanted = job(batch=32).model_copy(update={"lora": lora})
    # qkv 1024 -> (16 + 2 x 4) x 64, output 1024 -> 1024, up 1024 -> 2 x 4096 (gated), down 4096 -> 1024
    widths = (1024 + 24 * 64) + (1024 + 1024) + (1024 + 8192) + (4096 + 1024)
    assert adapter_parameters(DENSE, "dense", Layout(), lora) == 8 * widths
    sizes = sent(wanted, DENSE)[1]
    assert sizes["dp gradients"] == pytest.approx(4 * 8 * 8 * widths, rel=1e-9)
    assert sizes["dp parameters"] == pytest.approx(2 * 8 * 8 * widths, rel=1e-9)


def test_llama_3_8b_has_as_many_adapter_weights_as_peft_prints() -> None:
    """Of rank 16 beside all seven linear layers: "trainable params: 41,943,040 || all params: 8,072,204,288"
    (print_trainable_parameters).  NeMo has one of queries, keys and values, and one of gate and up."""
    arch = load_model("llama-3-8b")
    peft, nemo = (
        32 * adapter_parameters(arch, "dense", Layout(), Lora(rank=16), apart) for apart in (True, False)
    )
    assert peft == 41_943_040
    assert nemo == peft - 32 * 16 * 4096 * 3


def test_adapters_of_linear_layers_are_each_their_own() -> None:
    """Three of queries, keys and values and two of gate and up read and write as much as one, but that each
    reads its input, and has its dropout."""
    lora = Lora(rank=8, targets=("qkv", "mlp up"), dropout=0.1)
    wanted = job().model_copy(update={"lora": lora})
    plain = layer_operators(DENSE, "dense", ROWS, ROWS)
    one, own = (with_adapters(plain, wanted, "bf16", linears(DENSE, apart)) for apart in (False, True))

    def added(end: str) -> dict[str, float]:
        fused, single = bytes_of(one.forward, end), Counter[str]()
        for op in own.forward:
            if op.name.endswith(end):
                single[op.name.removesuffix(end)] += round(op.bytes)
        return {name: single[name] - size for name, size in fused.items()}

    # x again, A again and x A again
    again = 2 * (ROWS * 1024 + 1024 * 8 + ROWS * 8)
    assert added(" adapter in") == {"qkv projection": 2 * again, "mlp up": again}
    # x A again; B is as large as before
    assert added(" adapter out") == {"qkv projection": 2 * 2 * ROWS * 8, "mlp up": 2 * ROWS * 8}
    assert set(added(" adapter sum").values()) == {0}
    assert added(" adapter dropout") == {"qkv projection": 2 * 5 * ROWS * 1024, "mlp up": 5 * ROWS * 1024}
    counts = Counter(op.name for op in own.forward)
    assert (counts["qkv projection adapter out"], counts["mlp up adapter sum"]) == (3, 2)
    assert sum(op.flops for op in own.backward_weight) == pytest.approx(
        2 * ROWS * adapter_parameters(DENSE, "dense", Layout(), lora, apart=True)
    )
    assert linears(replace(DENSE, gated=False, shared_values=True), True) == {"qkv projection": 2}


def test_adapters_stand_beside_experts_that_only_expert_tensor_cuts() -> None:
    # an expert of 1001 columns is whole on a GPU; what its layer adapts is cut over the 4 tensor ranks
    arch = replace(MOE, expert_ffn=1001)
    wanted = job(gpus=32, tensor=4, expert=8, expert_tensor=1, sequence_parallel=True)
    lora = Lora(rank=8)
    (shape,) = stage_shapes(arch, wanted.layout, lora)
    widths = ((1024 + 24 * 64) + (1024 + 1024)) // 4
    assert shape.adapters == ((8.0 * widths,) * 8,)


@pytest.mark.parametrize(("arch", "kind"), [(DENSE, "dense"), (MOE, "moe")])
def test_tensor_ranks_hold_and_multiply_every_adapter_once(arch: Transformer, kind: Layer) -> None:
    # both products of an adapter are cut, beside products cut by columns and by rows
    lora = Lora(rank=8)
    one = adapter_parameters(arch, kind, Layout(), lora)
    assert adapter_parameters(arch, kind, Layout(tensor=4), lora) == one / 4
    made = [adapted(lora, arch, kind, tensor=tp).backward_weight for tp in (1, 4)]
    whole, cut = (sum(op.flops for op in operators) for operators in made)
    assert whole == pytest.approx(2 * 1024 * one)
    assert cut == pytest.approx(whole / 4)


def test_frozen_weights_have_no_weight_gradients() -> None:
    full = layer_operators(DENSE, "dense", 1024, 1024)
    thin = adapted(Lora(rank=8, targets=("qkv",)))
    assert {op.name.split(" adapter")[0] for op in thin.backward_weight} == {"qkv projection"}
    flops = sum(op.flops for op in thin.backward_weight)
    assert flops == pytest.approx(2 * 1024 * 8 * (1024 + 24 * 64))
    more = sum(op.flops for op in thin.forward) - sum(op.flops for op in full.forward)
    assert more == pytest.approx(flops)


def test_what_adapters_add_is_summed_where_their_product_is() -> None:
    """Two reads and a write of two bytes; a product cut by rows has scattered its tokens by then."""
    lora = Lora(rank=8, targets=("qkv", "attention output"))
    whole, cut = (bytes_of(adapted(lora, **layout).forward, " adapter sum") for layout in ({}, SHARED))
    assert whole == {"qkv projection": 6 * ROWS * 24 * 64, "output projection": 6 * ROWS * 1024}
    assert cut == {name: size / 4 for name, size in whole.items()}


SHARED = {"tensor": 4, "sequence_parallel": True}


def test_results_are_scaled_and_gradients_of_their_input_summed() -> None:
    """Two bytes read and two written each way; and two gradients read and one written of every input.  A
    compiler has neither: it scales what it sums, and sums what it reads."""
    lora = Lora(rank=8)
    made = {"qkv projection": 24 * 64, "output projection": 1024, "mlp up": 8192, "mlp down": 1024}
    read = {"qkv projection": 1024, "output projection": 1024, "mlp up": 1024, "mlp down": 4096}
    layer = adapted(lora)
    scaled = {name: 4 * ROWS * width for name, width in made.items()}
    assert bytes_of(layer.forward, " adapter scale") == scaled
    assert bytes_of(layer.backward_input, " adapter scale") == scaled
    summed = {name: 6 * ROWS * width for name, width in read.items()}
    assert bytes_of(layer.backward_input, " adapter sum") == summed
    plain = layer_operators(DENSE, "dense", ROWS, ROWS)
    joined = with_adapters(plain, job().model_copy(update={"lora": lora}), "bf16", compiled=True)
    for operators in (joined.forward, joined.backward_input):
        assert not bytes_of(operators, " adapter scale")
    assert bytes_of(joined.forward, " adapter sum") == bytes_of(layer.forward, " adapter sum")
    assert not bytes_of(joined.backward_input, " adapter sum")


@pytest.mark.parametrize(("hidden", "ranks"), [(False, 1), (True, 4)])
def test_gradients_are_summed_where_their_input_is(hidden: bool, ranks: int) -> None:
    """Of what Transformer Engine gathered for the adapter before they are scattered, else behind it."""
    lora = Lora(rank=8, targets=("qkv", "attention output"))
    summed = bytes_of(adapted(lora, hidden=hidden, **SHARED).backward_input, " adapter sum")
    assert summed == {"qkv projection": 6 * ROWS * 1024 / ranks, "output projection": 6 * ROWS * 1024 / 4}


def test_dropout_is_one_kernel_each_way() -> None:
    """Forward two bytes are read and three written, result and mask; backward three read and two written."""
    none = adapted(Lora(rank=8))
    widths = {"qkv projection": 1024, "output projection": 1024, "mlp up": 1024, "mlp down": 4096}
    made = {"qkv projection": 24 * 64, "output projection": 1024, "mlp up": 8192, "mlp down": 1024}
    for position, fell_on in (("pre", widths), ("post", made)):
        lora = Lora(rank=8, dropout=0.1, dropout_position=position)
        layer = adapted(lora)
        for operators in (layer.forward, layer.backward_input):
            moved = bytes_of(operators, " adapter dropout")
            assert moved == {name: 5 * ROWS * width for name, width in fell_on.items()}
        assert layer.backward_weight == none.backward_weight
        assert len(layer.forward) == len(none.forward) + 4


@pytest.mark.parametrize(
    ("position", "inside"), [("pre", "dropout in out scale sum"), ("post", "in out dropout scale sum")]
)
def test_dropout_lies_before_or_behind_both_products(position: str, inside: str) -> None:
    layer = adapted(Lora(rank=8, targets=("mlp up",), dropout=0.1, dropout_position=position))
    begin = "mlp up adapter "
    assert [
        op.name.removeprefix(begin) for op in layer.forward if op.name.startswith(begin)
    ] == inside.split()
    back = [op.name.removeprefix(begin).split(",")[0] for op in layer.backward_input if begin in op.name]
    assert back == list(reversed(inside.split()))


def test_dropout_runs_again_with_its_product() -> None:
    lora = Lora(rank=8, dropout=0.1)
    wanted = job().model_copy(update={"lora": lora})
    plain = layer_operators(DENSE, "dense", ROWS, ROWS, modules=("mlp",))
    again = [op.name for op in with_adapters(plain, wanted, "bf16").recomputed]
    assert "mlp up adapter dropout" in again
    assert not [name for name in again if name.startswith("qkv")]


def test_dropout_falls_on_a_ranks_own_tokens_where_user_buffers_gather() -> None:
    """Else Transformer Engine gives adapters of queries, keys and values what it gathered of all ranks."""
    lora = Lora(rank=8, targets=("qkv", "attention output"), dropout=0.1)
    for hidden, ranks in ((False, 1), (True, 4)):
        moved = bytes_of(adapted(lora, hidden=hidden, **SHARED).forward, " adapter dropout")
        assert moved == {"qkv projection": 5 * ROWS * 1024 / ranks, "output projection": 5 * ROWS * 1024 / 4}


def test_frozen_weights_of_16_bits_are_gathered_as_fp32_ones_are() -> None:
    """FSDP gathers in the type of the products; only shards differ."""
    one = job(batch=32, zero=3).model_copy(update={"software": "fsdp-2025"})
    wide, narrow = (
        sent(one.model_copy(update={"lora": Lora(rank=8, frozen_dtype=frozen)}), DENSE)
        for frozen in ("fp32", "bf16")
    )
    assert wide == narrow
    # two bytes of every weight and adapter forward, of all but the ends backward
    adapters = 8 * adapter_parameters(DENSE, "dense", Layout(), Lora(rank=8), apart=True)
    ends = 2 * DENSE.vocab * DENSE.hidden
    held = 2 * (2 * (count_parameters(DENSE).total + adapters) - ends)
    assert narrow[1]["dp parameters"] == pytest.approx(held, rel=1e-3)


def test_a_type_of_frozen_weights_without_shards_of_their_own_is_told_to_do_nothing() -> None:
    fabric = machine(4).network.fabric
    asked = job().model_copy(update={"lora": Lora(rank=8, frozen_dtype="bf16")})
    assert "lora.frozen_dtype does nothing" in " ".join(check(asked, DENSE, fabric))
    sharded = job(zero=3).model_copy(update={"lora": asked.lora, "software": "fsdp-2025"})
    assert "frozen_dtype" not in " ".join(check(sharded, DENSE, fabric))
