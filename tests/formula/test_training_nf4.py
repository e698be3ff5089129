"""Frozen weights in 4 bits (QLoRA), against closed forms (docs/training/layouts.md)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from railwright.catalog import load_catalog
from railwright.model import count_parameters, load_model
from railwright.model.shape.architecture import Operator, Transformer
from railwright.spec.lora import Lora
from railwright.spec.training import Layout, TrainingJob
from railwright.training import simulate
from railwright.training.checks.plan import check
from railwright.training.lanes.result import StepResult
from railwright.training.layers.costs import costs
from railwright.training.layers.operators import operators_of
from railwright.training.layers.stages import stage_shapes
from railwright.training.memory.allocator import play
from railwright.training.memory.cached import requests_of
from railwright.training.memory.host_memory import host_memory
from railwright.training.memory.peak import SYSTEM, peak_memory
from railwright.training.memory.stage_weights import widened
from railwright.training.memory.states import PASSING, state_parts
from railwright.training.memory.units import GATHERED
from railwright.training.passes.offload import host_link
from railwright.training.software.host import launch_times
from railwright.training.software.lora import DEQUANTISED, adapter_parameters
from railwright.training.software.nf4 import BRANCHES, NF4_BYTES, is_nf4, widening
from training_cases import DENSE, MOE, changed, job, machine, priced, sent

LORA = Lora(rank=16, frozen_dtype="nf4")
TOTAL = count_parameters(DENSE).total
ENDS = 2 * DENSE.vocab * DENSE.hidden
ADAPTERS = DENSE.layers * adapter_parameters(DENSE, "dense", Layout(), LORA, apart=True)
FROZEN = TOTAL - ENDS
H100, L40S = (load_catalog().gpus[name] for name in ("h100-sxm", "l40s"))


def tuned(software: str = "fsdp-2025", lora: Lora = LORA, **fields: object) -> TrainingJob:
    """A job with adapters, in software that has weights in 4 bits."""
    return changed(job(**fields), software=software, lora=lora)  # type: ignore[arg-type]


def wide(software: str = "fsdp-2025", **fields: object) -> TrainingJob:
    """The same with weights in 16 bits."""
    return tuned(software, Lora(rank=16, frozen_dtype="bf16"), **fields)


def states(wanted: TrainingJob, ranks: int = 32, arch: Transformer = DENSE) -> dict[str, float]:
    """Weights, gradients and optimizer states of a GPU."""
    (shape,) = stage_shapes(arch, wanted.layout, wanted.lora, apart=True)
    return state_parts(wanted, arch, shape, ranks)


def widening_of(operators: Iterable[Operator]) -> list[Operator]:
    return [op for op in operators if op.name.endswith(DEQUANTISED)]


def test_a_weight_takes_4_127_bits() -> None:
    """QLoRA, section 3: double quantization saves 0.373 of the 0.5 bits that an fp32 scale per 64 weights
    takes."""
    assert pytest.approx(4 + 8 / 64 + 32 / (64 * 256)) == 8 * NF4_BYTES
    assert pytest.approx(0.373, abs=5e-4) == 4.5 - 8 * NF4_BYTES


def test_layers_are_in_4_bits_and_embedding_and_head_in_16() -> None:
    parts = states(tuned(zero=0))
    assert parts["weights"] == pytest.approx(
        NF4_BYTES * (FROZEN - 1024) + 2 * (ENDS + 1024) + 2 * ADAPTERS
    ), "the final norm lies with the head"
    plain = states(wide(zero=0))
    assert plain["weights"] - parts["weights"] == pytest.approx((2 - NF4_BYTES) * (FROZEN - 1024))
    # only adapters have gradients and states
    assert {name: size for name, size in parts.items() if name != "weights"} == {
        name: size for name, size in plain.items() if name != "weights"
    }


def test_llama_2_70b_fits_two_gpus_of_24_gb_where_its_weights_alone_took_65_gib() -> None:
    """answer.ai's claim (FSDP with QLoRA, March 2024): shards of 2 ranks, and every scale on both."""
    arch = load_model("llama-2-70b")
    part = states(tuned("fsdp-2023", zero=3), 2, arch)["weights"]
    total = count_parameters(arch).total
    ends = 2 * arch.vocab * arch.hidden
    adapters = arch.layers * adapter_parameters(arch, "dense", Layout(), LORA, apart=True)
    scales = (1 / 64 + 4 / 64 / 256) * (total - ends)
    codes = 0.5 * (total - ends)
    assert part == pytest.approx(codes / 2 + scales + (2 * ends + 4 * adapters) / 2)
    assert 17 < part / 2**30 < 18.5


@pytest.mark.parametrize(("software", "gathered"), [("fsdp-2023", 0.5), ("fsdp-2025", NF4_BYTES)])
def test_what_is_cut_is_gathered_as_it_is(software: str, gathered: float) -> None:
    """bitsandbytes' codes alone (`quant_storage`), torchao's with their scales; adapters and ends in 16."""
    found = sent(tuned(software, batch=32, zero=3), DENSE)[1]["dp parameters"]
    # forward all; backward all but the ends, of which one is not dropped and the other not needed
    layers = gathered * FROZEN + 2 * ADAPTERS
    assert found == pytest.approx(2 * layers + 2 * ENDS, rel=1e-3)
    plain = sent(wide(software, batch=32, zero=3), DENSE)[1]["dp parameters"]
    assert plain == pytest.approx(2 * 2 * (FROZEN + ADAPTERS) + 2 * ENDS, rel=1e-3)
    # where all stay, the whole model lies there so
    parts = states(tuned(software, zero=3, reshard=False))
    assert parts[GATHERED] == pytest.approx(layers + 2 * ENDS, rel=1e-3)


def test_copies_of_a_model_exchange_adapters_alone() -> None:
    counts, sizes = sent(tuned(batch=32, zero=0), DENSE)
    assert "dp parameters" not in counts
    assert sizes["dp gradients"] == pytest.approx(4 * ADAPTERS, rel=1e-3)


def test_every_product_has_its_weight_widened_before_it_each_way() -> None:
    """Codes and scales read, 16 bits written: 2.516 bytes a weight, one kernel of each linear layer."""
    wanted = tuned(zero=0)
    found = operators_of(wanted, DENSE, "dense", H100)
    forward, backward = widening_of(found.forward), widening_of(found.backward_input)
    weights = {
        "qkv projection": 1024 * 24 * 64,
        "output projection": 1024 * 1024,
        "mlp up": 1024 * 8192,
        "mlp down": 4096 * 1024,
    }
    for ops, phase in ((forward, "forward"), (backward, "backward_input")):
        moved = {op.name.removesuffix(DEQUANTISED): op.bytes for op in ops}
        assert moved == pytest.approx({name: (NF4_BYTES + 2) * size for name, size in weights.items()})
        assert {op.phase for op in ops} == {phase}
        assert [op.launches for op in ops if op.name.startswith("qkv")] == [3]
        assert [op.launches for op in ops if op.name.startswith("mlp up")] == [2]
    # the kernel stands right before its product, and is part of what that costs
    names = [op.name for op in found.forward]
    assert all(names[names.index(f"{n}{DEQUANTISED}") + 1] == n for n in weights)
    plain = operators_of(wide(zero=0), DENSE, "dense", H100)
    new, old = (costs(ops, lambda op: op.bytes) for ops in (found, plain))
    assert [c.name for c in new] == [c.name for c in old]
    assert [c.product for c in new] == [c.product for c in old]
    more = {a.name: (a.forward - b.forward, a.input - b.input) for a, b in zip(new, old, strict=True)}
    each = {n: (NF4_BYTES + 2) * size for n, size in weights.items()}
    assert {n: d for n, d in more.items() if any(d)} == {n: pytest.approx((s, s)) for n, s in each.items()}


def test_experts_are_linear_layers_of_their_own() -> None:
    found = widening_of(operators_of(tuned(zero=0), MOE, "moe", H100).forward)
    by = {op.name.removesuffix(DEQUANTISED): op for op in found}
    assert by["experts up"].launches == 2 * 8
    assert by["experts down"].bytes == pytest.approx((NF4_BYTES + 2) * 8 * 4096 * 1024)
    assert "router" in by


def test_bitsandbytes_widens_scales_too_and_walked_branches_on_a100_and_hopper() -> None:
    wanted = tuned("fsdp-2023")
    # scales: 1/64 and 1/4096 read, 4/64 written; read and written again with their mean; read by the kernel
    scales = 1 / 64 + 4 / 64 / 256 + 3 * 4 / 64
    main = 0.5 + 4 / 64 + 2
    ada, hopper = (widening(wanted, gpu) for gpu in (L40S, H100))
    assert ada.bytes == pytest.approx(scales + main)
    assert hopper.bytes == pytest.approx(scales + main * BRANCHES)
    assert pytest.approx(1.678, abs=1e-3) == BRANCHES
    assert (ada.launches, hopper.launches) == (3, 3)
    assert widening(tuned(), H100) == widening(tuned(), L40S)


def test_the_host_calls_bitsandbytes_once_a_linear_layer() -> None:
    """Two more kernels follow in each call; PyTorch's factor falls on the first alone."""
    one, plain = (operators_of(wanted("fsdp-2023", zero=0), DENSE, "dense", L40S) for wanted in (tuned, wide))
    for factor in (1.0, 7.75):
        new, old = (launch_times(ops, L40S, factor) for ops in (one, plain))
        again = launch_times(plain, L40S, 1.0)
        operation = again.collective
        layers = 3 + 1 + 2 + 1
        for what in ("forward", "input"):
            more = getattr(new, what) - getattr(old, what)
            assert more == pytest.approx(layers * operation * (factor + 2), rel=1e-9)
        assert new.weight == old.weight


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_fullest_moment_has_one_weight_in_16_bits_again(recompute: str) -> None:
    """Of gate and up the larger one: 1024 x 4096."""
    fabric = machine(4).network.fabric
    new, old = (
        peak_memory(w(zero=0, batch=32, sequence=256, recompute=recompute), DENSE, fabric, 80e9).stages[0]
        for w in (tuned, wide)
    )
    assert widened(tuned(), DENSE, "dense") == 2 * 1024 * 4096
    if new.moment == "a layer backward":
        assert new.parts["weight in 16 bits again"] == 2 * 1024 * 4096
    lost = (2 - NF4_BYTES) * FROZEN
    assert old.total - lost <= new.total <= old.total - lost + 2 * 1024 * 4096


@pytest.mark.parametrize("software", ["fsdp-2023", "fsdp-2025"])
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_allocators_replay_takes_what_the_sums_say(software: str, zero: int, recompute: str) -> None:
    wanted = tuned(software, gpus=8, batch=16, micro_batch=2, zero=zero, recompute=recompute)
    fabric = machine(1).network.fabric
    memory = peak_memory(wanted, DENSE, fabric, 80e9)
    played = play(requests_of(wanted, DENSE, fabric, 0))
    tensors = memory.total - memory.parts[SYSTEM]
    assert played.most_allocated == pytest.approx(tensors, rel=0.03)


def step(wanted: TrainingJob) -> StepResult:
    return simulate(wanted, DENSE, machine(1), predict=priced(0.0), kernel=lambda _: 1e-2)


def test_shards_cross_and_lie_on_the_host_in_4_bits() -> None:
    asked = tuned(gpus=8, batch=8, zero=3, offload=("weights",))
    found = step(asked)
    (copied,) = [s.busy for s in found.shares if s.kind == "copy"]
    # forward all, backward all but the head's unit and the embedding's; adapters in fp32, gradients back
    crossed = 2 * NF4_BYTES * FROZEN + 2 * ENDS + (4 + 4 + 4) * ADAPTERS
    assert copied == pytest.approx(crossed / 8 / host_link(machine(1)), rel=1e-3)
    one = machine(1)
    held = host_memory(asked, DENSE, one.network.fabric, one.server)
    assert held is not None
    # pinned by powers of two, as the adapters' tensors are
    on_host = NF4_BYTES * FROZEN + 2 * ENDS + 4 * ADAPTERS
    assert held.parts["weights"] / held.parts["gradients"] == pytest.approx(
        on_host / (4 * ADAPTERS), rel=1e-3
    )
    (shape,) = stage_shapes(DENSE, asked.layout, LORA, apart=True)
    end = 2 * max(shape.embedding, shape.head)
    layer = NF4_BYTES * FROZEN / 8 + 10 * ADAPTERS / 8
    assert states(asked, 8)[PASSING] == pytest.approx(max(end, layer) / 8, rel=1e-3)


def step_seconds(wanted: TrainingJob) -> float:
    """A step whose kernels that widen take 0.1 us a byte, so that nothing else counts. [s]"""

    def widens(op: Operator) -> float:
        return 1e-7 * op.bytes if op.name.endswith(DEQUANTISED) else 0.0

    return simulate(wanted, DENSE, machine(1), predict=priced(0.0), kernel=widens).step_time


def test_a_forward_pass_that_runs_again_widens_again() -> None:
    """Twice without recomputation, three times with, but for what nothing but a sum reads: a layer's last
    product is not computed again."""
    norms = 1024 * (2 * DENSE.layers + 1)
    each = 1e-7 * (NF4_BYTES + 2) * (FROZEN - norms)
    down = 1e-7 * (NF4_BYTES + 2) * DENSE.layers * 4096 * 1024
    once = step_seconds(tuned(gpus=8, batch=8, zero=0))
    assert once == pytest.approx(2 * each, rel=1e-3)
    assert step_seconds(tuned(gpus=8, batch=8, zero=0, recompute="full")) == pytest.approx(
        3 * each - down, rel=1e-3
    )
    # software of 2023 repeats the whole layer
    whole = step_seconds(tuned("fsdp-2023", gpus=8, batch=8, zero=0, recompute="full"))
    moved = widening(tuned("fsdp-2023"), H100).bytes
    assert whole == pytest.approx(3 * each * moved / (NF4_BYTES + 2), rel=1e-3)
    # every microbatch widens again
    assert step_seconds(tuned(gpus=8, batch=32, zero=0)) == pytest.approx(4 * once, rel=1e-3)


def test_it_is_not_told_to_do_nothing() -> None:
    fabric = machine(4).network.fabric
    for zero in (0, 3):
        assert is_nf4(tuned(zero=zero))
        assert "frozen_dtype" not in " ".join(check(tuned(zero=zero), DENSE, fabric))


def test_experts_in_one_tensor_are_told_to_stay_in_16_bits() -> None:
    """bitsandbytes replaces linear layers: transformers 5 has none for routed experts (its issue 1849)."""
    fabric = machine(4).network.fabric
    told = [w for w in check(tuned(zero=3), MOE, fabric) if "transformers 5" in w]
    assert len(told) == 1
    for one, arch in ((tuned(zero=3), DENSE), (wide(zero=3), MOE)):
        assert "transformers 5" not in " ".join(check(one, arch, fabric))
