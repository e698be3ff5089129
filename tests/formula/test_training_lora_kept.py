"""What adapters keep of a layer, against closed forms (docs/training/memory.md).

h, f hidden and MLP width, q columns of queries, keys and values, r rank; bytes a token of 16 bits are 2.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model.shape.architecture import Transformer
from railwright.spec.lora import Lora, LoraTarget
from railwright.spec.training import TrainingJob
from railwright.training.memory.activations import layer_kept_parts
from railwright.training.memory.allocator import Requests
from railwright.training.memory.cached import _plans
from railwright.training.memory.tape import forward
from training_cases import DENSE, KIMI, MOE, changed, job

H, F, Q, R = 1024, 4096, 24 * 64, 8
TOKENS = 4096
SHARED = {"tensor": 4, "sequence_parallel": True}


def tuned(*targets: LoraTarget, dropout: float = 0.0, position: str = "pre", **layout: object) -> TrainingJob:
    """A job of one sequence a microbatch under NeMo of 2024, whose products keep no output of a norm."""
    lora = Lora(rank=R, targets=targets, dropout=dropout, dropout_position=position)  # type: ignore[arg-type]
    return changed(job(gpus=32, **layout), lora=lora, software="nemo-2024", sequence=TOKENS, micro_batch=1)


def kept(one: TrainingJob, arch: Transformer = DENSE, kind: str = "dense") -> dict[str, float]:
    """Bytes a token that a layer keeps, tensor by tensor."""
    parts = layer_kept_parts(one, arch, kind, one.layout.recompute)  # type: ignore[arg-type]
    return {name: size / (TOKENS / one.layout.context) for name, size in parts.items()}


def more(one: TrainingJob, other: TrainingJob, arch: Transformer = DENSE) -> float:
    """Bytes a token and layer that the first job keeps beyond the second."""
    return sum(kept(one, arch).values()) - sum(kept(other, arch).values())


@pytest.mark.parametrize(
    ("target", "adds"),
    [
        # the copy takes the place of a norm's output or an activation's; attention keeps its own for itself
        ("qkv", H),
        ("attention output", H + 2 * H),
        ("mlp up", H),
        ("mlp down", F),
    ],
)
def test_dropout_keeps_a_copy_and_a_mask_of_every_input(target: LoraTarget, adds: int) -> None:
    assert more(tuned(target, dropout=0.1), tuned(target)) == pytest.approx(adds)
    assert more(tuned(target, dropout=0.9), tuned(target, dropout=0.1)) == 0


@pytest.mark.parametrize(
    ("target", "width"), [("qkv", Q), ("attention output", H), ("mlp up", 2 * F), ("mlp down", H)]
)
def test_dropout_behind_an_adapter_keeps_a_mask_of_its_result(target: LoraTarget, width: int) -> None:
    assert more(tuned(target, dropout=0.1, position="post"), tuned(target)) == pytest.approx(width)


def test_masks_behind_products_cut_by_rows_are_of_a_ranks_own_tokens() -> None:
    for layout, ranks in (({"tensor": 4, "sequence_parallel": False}, 1), (SHARED, 4)):
        one, none = (tuned("mlp down", dropout=d, position="post", **layout) for d in (0.1, 0.0))
        assert more(one, none) == pytest.approx(H / ranks)


def test_tensor_ranks_keep_what_they_gather_for_adapters() -> None:
    """Megatron-core's linear layer saves what it multiplies: all tokens, not the 1/4 that the norm made."""
    shared, frozen = kept(tuned("qkv", **SHARED)), kept(tuned("attention output", **SHARED))
    assert shared["adapters' inputs, qkv"] == 2 * H
    assert "attention norm output" not in shared
    assert "attention norm output" not in frozen
    # an input that is cut by rows is a rank's own
    assert "adapters' inputs, attention output" not in frozen
    assert kept(tuned("qkv"))["attention norm output"] == 2 * H


def test_masks_in_front_of_what_user_buffers_gather_are_of_a_ranks_own_tokens() -> None:
    one = tuned("qkv", "mlp down", dropout=0.1, **SHARED)
    hidden = changed(one, overlap=one.overlap.model_copy(update={"tp": True}))
    for wanted, ranks in ((one, 1), (hidden, 4)):
        found = kept(wanted)
        assert found["adapters' dropout masks, qkv"] == H / ranks
        assert found["adapters' inputs, qkv"] == 2 * H
        assert found["adapters' dropout masks, mlp down"] == F / 4
        assert found["adapters' inputs, mlp down"] == 2 * F / 4


def test_a_projections_input_behind_all_to_alls_gives_way_to_the_copy() -> None:
    swapped = {"context": 2, "context_kind": "all-to-all"}
    assert more(tuned("attention output", dropout=0.1, **swapped), tuned("attention output", **swapped)) == H
    without = kept(tuned("qkv", **swapped))
    assert "attention output" not in without
    assert without["attention output before all-to-all"] == 2 * H
    # gates multiply what all-to-alls brought
    gated = kept(tuned("qkv", **swapped), replace(DENSE, attention_gate="element"))
    assert gated["attention output"] == 2 * H


@pytest.mark.parametrize(("dtype", "bytes_"), [("fp8", 1.0), ("mxfp8", 1 + 1 / 32), ("nvfp4", 0.5 + 1 / 16)])
def test_frozen_products_keep_norms_that_adapters_read_as_they_multiply_them(
    dtype: str, bytes_: float
) -> None:
    """Transformer Engine since 2.0: of a module of norm and product, told to give the norm's output."""
    for target, norm in (("qkv", "qkv"), ("mlp up", "mlp up"), ("attention output", ""), ("mlp down", "")):
        before = changed(tuned(target, **SHARED), dtype=dtype)
        after = changed(before, software="megatron-2025")
        assert more(after, before) == pytest.approx(bytes_ * H / 4 if norm else 0.0)


def test_in_16_bits_that_is_the_norms_output_itself() -> None:
    """What an adapter reads, unless dropout or gathered tokens make another tensor of it."""
    for settings, adds in (({}, 0), ({"dropout": 0.1}, 2 * H), (SHARED, 2 * H / 4)):
        before = tuned("qkv", **settings)  # type: ignore[arg-type]
        assert more(changed(before, software="megatron-2025"), before) == pytest.approx(adds)


def test_norms_of_their_own_are_not_kept_so() -> None:
    """Those in front of latent attention, of a router and of a mixer."""
    for arch, kind in ((KIMI, "moe"), (MOE, "moe"), (replace(DENSE, norms_per_layer=1), "dense")):
        one = changed(tuned("mlp up", "qkv"), dtype="fp8", software="megatron-2025")
        names = kept(one, arch, kind)
        assert ("adapters' norms as multiplied, qkv" in names) == (arch.attention != "mla")
        assert "adapters' norms as multiplied, mlp up" not in names
    eager = changed(tuned("qkv"), dtype="fp8", software="megatron-2025", unfused=("norm",))
    assert not [name for name in kept(eager) if "as multiplied" in name]


@pytest.mark.parametrize(("target", "number"), [("qkv", 3), ("mlp up", 2), ("mlp down", 1)])
def test_linear_layers_of_their_own_drop_their_inputs_each(target: LoraTarget, number: int) -> None:
    """PEFT's and torchtune's: x A, a copy and a mask of every one; without dropout all read one tensor."""
    one, dropped = (changed(tuned(target, dropout=d, zero=3), software="fsdp-2023") for d in (0.0, 0.1))
    width = F if target == "mlp down" else H
    assert kept(one)[f"adapters' inner products, {target}"] == 2 * R * number
    assert more(dropped, one) == pytest.approx(3 * width * number - 2 * width)


def test_what_runs_again_keeps_nothing_of_dropout() -> None:
    again = {"recompute": "selective", "recompute_modules": ("mlp",)}
    one = kept(tuned("mlp up", "mlp down", dropout=0.1, **again))
    assert not [name for name in one if name.startswith("adapters'")]
    whole = kept(tuned("qkv", dropout=0.1, recompute="full"))
    assert whole == {"layer input": 2 * H}


@pytest.mark.parametrize("software", ["nemo-2024", "megatron-2025"])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("layout", [{}, SHARED, {"context": 2, "context_kind": "all-to-all"}])
def test_the_allocator_holds_between_passes_what_is_added_up(
    software: str, dtype: str, layout: dict[str, object]
) -> None:
    targets: tuple[LoraTarget, ...] = ("qkv", "attention output", "mlp up", "mlp down")
    for position in ("pre", "post"):
        one = changed(
            tuned(*targets, dropout=0.1, position=position, **layout), software=software, dtype=dtype
        )
        asked = Requests()
        ranks = one.layout.tensor * one.layout.context
        done, _ = forward(asked, _plans(one, DENSE, "dense")[0], asked.take(2 * TOKENS * H / ranks))
        held = sum(asked.sizes[tensor] for tensor in done.held.values()) * one.layout.context
        assert held == pytest.approx(sum(kept(one).values()) * TOKENS, rel=0.01)
