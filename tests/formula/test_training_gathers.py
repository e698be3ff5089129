"""What tensor- and data-parallel ranks gather in 8 or 4 bits: Transformer Engine gathers operands as it
multiplies them (pytorch/distributed.py, gather_along_first_dim), Megatron-LM weights as it keeps them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from railwright.model import count_parameters
from railwright.model.shape.architecture import Transformer
from railwright.spec.lora import Lora
from railwright.spec.training import TrainingJob
from railwright.training import peak_memory, simulate
from railwright.training.memory.activations import layer_kept_parts
from railwright.training.memory.cached import cached
from railwright.training.memory.peak import SYSTEM
from training_cases import BLOCKS, DENSE, LATENTS, MOE, changed, job, machine, priced, roofline, sent

BS = 1024.0
"""Tokens of one microbatch of the cases."""
LAYER, END = 8, 1
"""Layers of a case, and embedding or head."""

ROW = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1 + 4 / 128, "mxfp8": 1 + 1 / 32, "nvfp4": 1 / 2 + 1 / 16}
"""Bytes of one element along rows with its share of a scale: of four bytes per 128, of one per 32, per 16."""
BOTH = {"bf16": 2.0, "fp8": 1.0} | {d: 2 * ROW[d] for d in ("fp8_block", "mxfp8", "nvfp4")}
"""The same of what is sent along rows and columns, whose scales differ; one scale per tensor serves both."""


def gathered(wanted: TrainingJob, arch: Transformer = DENSE, server: str = "dgx-h100") -> dict[str, float]:
    """Per purpose, bytes of all gathers of a microbatch over tokens times hidden width."""
    found: dict[str, float] = defaultdict(float)
    result = simulate(wanted, arch, machine(1, server=server), predict=priced(50e9), kernel=roofline)
    for one in result.collectives:
        if one.purpose.startswith("tp all-gather"):
            found[one.purpose] += one.count * one.prediction.size / BS / arch.hidden
    return found


def cut(dtype: str, **layout: object) -> TrainingJob:
    """One microbatch on a tensor group of eight."""
    return job(gpus=8, batch=1, tensor=8, sequence_parallel=True, dtype=dtype, **layout)


@pytest.mark.parametrize("dtype", sorted(ROW))
def test_linear_layers_gather_operands_as_they_multiply_them(dtype: str) -> None:
    # each layer gathers two inputs and two gradients of outputs; the head's input and the gradient of the
    # embedding travel in 16 bits, and so does what reduces
    found = gathered(cut(dtype), server="dgx-b200")
    each = LAYER * 2 * (ROW[dtype] + BOTH[dtype])
    assert found["tp all-gather"] == pytest.approx(each + 2 * END * 2)
    assert found["tp all-gather again"] == pytest.approx(LAYER * 2 * ROW[dtype] + END * 2)
    counts, sizes = sent(cut("bf16"), DENSE)
    assert sent(cut("fp8"), DENSE)[1]["tp reduce-scatter"] == sizes["tp reduce-scatter"]
    assert sent(cut("fp8"), DENSE)[0] == counts


def test_a_head_in_8_bits_gathers_in_them() -> None:
    plain, narrow = (
        gathered(changed(cut("mxfp8"), dtype_also=also), server="dgx-b200") for also in ((), ("head",))
    )
    for purpose in plain:
        assert plain[purpose] - narrow[purpose] == pytest.approx(2 - ROW["mxfp8"])


@pytest.mark.parametrize("software", ["xla-2025", "fsdp-2025"])
def test_other_software(software: str) -> None:
    wide, narrow = (gathered(changed(cut(dtype), software=software)) for dtype in ("bf16", "fp8"))
    layers = wide["tp all-gather"] - 2 * END * 2
    share = {"xla-2025": 1.0, "fsdp-2025": 0.5}[software]  # torchao casts in front of gathers too
    assert narrow["tp all-gather"] == pytest.approx(share * layers + 2 * END * 2)


def test_split_backward_passes_gather_as_whole_ones() -> None:
    def once(schedule: str) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        wanted = job(batch=64, tensor=4, pipeline=2, sequence_parallel=True, dtype="fp8", schedule=schedule)
        for one in simulate(wanted, DENSE, machine(4), predict=priced(50e9), kernel=roofline).collectives:
            found[one.purpose] += one.count * one.prediction.size
        return found

    whole, split = once("1f1b"), once("zb-h1")
    for purpose in ("tp all-gather", "tp all-gather again"):
        assert split[purpose] == pytest.approx(whole[purpose])


def test_gradients_beside_frozen_weights_travel_along_rows_alone() -> None:
    lora = Lora(rank=16, targets=("attention output",))
    found = gathered(changed(cut("mxfp8"), lora=lora), server="dgx-b200")
    # nothing is gathered again, nor for the embedding, which does not learn
    assert found == {"tp all-gather": pytest.approx(LAYER * 4 * ROW["mxfp8"] + END * 2)}


def test_what_an_adapter_reads_is_gathered_in_16_bits() -> None:
    each = [
        gathered(changed(cut("fp8"), lora=Lora(rank=16, targets=targets)))["tp all-gather"]
        for targets in (("attention output",), ("qkv", "attention output"), ("qkv", "mlp up"))
    ]
    assert each[1] - each[0] == pytest.approx(LAYER * (2 - 1))
    assert each[2] - each[0] == pytest.approx(LAYER * 2 * (2 - 1))


def test_dispatchers_and_rotary_keys_stay_in_16_bits() -> None:
    def volumes(arch: Transformer, dtype: str, **layout: object) -> dict[str, float]:
        return sent(job(batch=32, tensor=2, sequence_parallel=True, dtype=dtype, **layout), arch)[1]

    for purpose in ("expert tp all-gather", "expert tp reduce-scatter", "ep dispatch"):
        assert volumes(MOE, "fp8", expert=8)[purpose] == volumes(MOE, "bf16", expert=8)[purpose]
    latent = replace(DENSE, attention="mla", kv_heads=16, q_lora=512, kv_lora=256, rope_dim=32, v_head_dim=64)
    wide, narrow = (gathered(cut(dtype), latent) for dtype in ("bf16", "fp8"))
    # of 8 layers, elements of a token: latents of queries and keys; forward, and again backward
    halved = LAYER * (512 + 256) / latent.hidden
    assert wide["tp all-gather again"] - narrow["tp all-gather again"] == pytest.approx(
        halved + LAYER  # and the MLP's input
    )
    assert wide["tp all-gather"] - narrow["tp all-gather"] == pytest.approx(halved + LAYER + 2 * LAYER)


def test_mixers_gather_in_8_bits_too() -> None:
    wide, narrow = (gathered(cut(dtype), BLOCKS) for dtype in ("bf16", "fp8"))
    assert wide["tp all-gather again"] - narrow["tp all-gather again"] == pytest.approx(LAYER)
    assert wide["tp all-gather"] - narrow["tp all-gather"] == pytest.approx(2 * LAYER)


def test_shared_experts_beside_all_to_alls_gather_in_16_bits() -> None:
    wanted = job(batch=32, tensor=2, expert=8, sequence_parallel=True, dtype="fp8")
    beside = changed(wanted, overlap=wanted.overlap.model_copy(update={"shared": True}))
    one, other = (sent(each, LATENTS)[1] for each in (wanted, beside))
    # of 8 layers in 2 microbatches: the input and the gradient of the output; the input stays whole
    rows = 8 * 2 * BS * LATENTS.hidden
    assert other["tp all-gather"] - one["tp all-gather"] == 2 * rows
    assert one["tp all-gather again"] - other["tp all-gather again"] == rows


@pytest.mark.parametrize("software", ["fsdp-2025", "megatron-2025"])
def test_what_stays_gathered_is_kept_whole(software: str) -> None:
    # PyTorch's products keep the rows that they read, those of both norms: 7/8 of them more in each layer
    wanted = changed(cut("bf16", zero=3), software=software)
    parts = [layer_kept_parts(wanted, DENSE, "dense", how) for how in ("none", "full")]
    rows = 2 * BS * DENSE.hidden
    for norm in ("attention norm output", "mlp norm output"):
        assert parts[0][norm] == rows / (1 if software == "fsdp-2025" else 8)
    assert parts[1] == {"layer input": rows / 8}
    many = changed(wanted, micro_batch=16, global_batch=16, sequence=4096)
    memory = peak_memory(many, DENSE, machine(1).network.fabric, 0)
    found = cached(many, DENSE, machine(1).network.fabric, 0)
    assert found is not None
    assert found.allocated == pytest.approx(memory.total - memory.parts[SYSTEM], rel=0.02)


@pytest.mark.parametrize(
    ("dtype", "weight"), [("bf16", 2), ("fp8", 1), ("fp8_block", 2), ("mxfp8", 2), ("nvfp4", 2)]
)
@pytest.mark.parametrize("overlapped", [True, False])
def test_weights_kept_in_fp8_are_gathered_in_it(dtype: str, weight: int, overlapped: bool) -> None:
    # Megatron-LM's buffer of fp8 weights is one of bytes; MXFP8's are gathered in 16 bits and cast behind it
    wanted = job(dtype=dtype)
    wanted = changed(wanted, overlap=wanted.overlap.model_copy(update={"dp": overlapped}))
    found = simulate(wanted, DENSE, machine(4, server="dgx-b200"), predict=priced(50e9), kernel=roofline)
    total = count_parameters(DENSE).total
    ends = 2 * DENSE.vocab * DENSE.hidden + DENSE.hidden  # the final norm goes with the head
    sizes = {
        purpose: sum(c.count * c.prediction.size for c in found.collectives if c.purpose == purpose)
        for purpose in ("dp parameters", "dp gradients")
    }
    assert sizes["dp gradients"] == 4 * total
    assert sizes["dp parameters"] == pytest.approx(weight * (total - ends) + 2 * ends)


@pytest.mark.parametrize(("dtype", "less"), [("fp8", 1), ("mxfp8", 1), ("fp8_block", 0), ("nvfp4", 0)])
def test_megatron_fsdp_gathers_weights_that_have_8_bits_in_them(dtype: str, less: int) -> None:
    """A byte a weight less, forward and backward; the ends of the model, and frozen weights, stay wide."""

    def gathered(dtype: str, lora: Lora | None = None) -> float:
        wanted = changed(job(dtype=dtype, zero=3, batch=32), lora=lora)
        fsdp = machine(4, server="dgx-b200")
        found = simulate(wanted, DENSE, fsdp, predict=priced(50e9), kernel=roofline).collectives
        return sum(c.count * c.prediction.size for c in found if c.purpose == "dp parameters")

    layers = count_parameters(DENSE).total - 2 * DENSE.vocab * DENSE.hidden - DENSE.hidden
    assert gathered("bf16") - gathered(dtype) == pytest.approx(2 * less * layers)
    assert gathered("bf16", Lora(rank=16)) == gathered(dtype, Lora(rank=16))


def test_adapters_are_gathered_in_16_bits() -> None:
    wide, narrow = (
        sent(changed(job(dtype=dtype), lora=Lora(rank=16)), DENSE)[1]["dp parameters"]
        for dtype in ("bf16", "fp8")
    )
    assert wide == narrow > 0
