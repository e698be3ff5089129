"""What Megatron-LM and NeMo do not run of a layout, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from railwright.model.shape.architecture import Transformer
from railwright.search.training.frameworks import FRAMEWORKS
from railwright.spec.training import Overlap
from search_cases import HYBRID, LATENT_EXPERTS, lacks
from training_cases import DENSE, MOE, changed, job

EP, SP = Overlap(ep=True), {"tensor": 2, "sequence_parallel": True}


@pytest.mark.parametrize(
    ("layout", "missing"),
    [
        ({"tensor": 2}, "experts under tensor parallelism without sequence parallelism"),
        (SP, ""),
        ({"recompute": "selective", "recompute_modules": ("ops", "moe_act")}, "recomputation of ops"),
        ({"pipeline": 2, "virtual_pipeline": 2}, ""),
        (
            {"pipeline": 2, "virtual_pipeline": 2, "overlap": Overlap(pp=False)},
            "two interleaved stages that do not hide what they send",
        ),
        ({"pipeline": 4, "virtual_pipeline": 2, "overlap": Overlap(pp=False)}, ""),
        ({"expert": 4, "zero": 2, "overlap": EP}, ""),
        ({"expert": 4, "zero": 3, "overlap": EP}, ""),
        (
            {"expert": 4, "zero": 2, "pipeline": 4, "virtual_pipeline": 2, "overlap": EP},
            "expert all-to-alls hidden in virtual stages beside zero 2 and 3",
        ),
        ({"zero": 3, "reshard": False}, "sharded parameters kept until the backward pass"),
        ({"zero": 2, "reduce_each": False}, "sharded gradients reduced once per step"),
        ({"zero": 1, "reduce_each": False}, ""),
    ],
    ids=str,
)
def test_what_megatron_refuses_of_experts(layout: dict[str, Any], missing: str) -> None:
    """moe_layer.py, validate_args and combined_1f1b.py at the commit that the exports name."""
    assert lacks("megatron", MOE, **layout) == lacks("nemo", MOE, **layout) == missing


BIASED = replace(MOE, attention_bias=True, output_bias=True, mlp_bias=True)
SHARED = replace(MOE, shared_experts=1, shared_ffn=512)


def again(*modules: str, **other: Any) -> dict[str, Any]:
    """A layout that computes these modules again."""
    return {"recompute": "selective", "recompute_modules": modules, **other}


@pytest.mark.parametrize(
    ("arch", "layout", "missing"),
    [
        (BIASED, SP, "biases in experts that are cut"),
        (BIASED, {**SP, "expert_tensor": 1}, ""),
        (replace(MOE, attention_bias=True), SP, ""),
        (replace(DENSE, attention_bias=True, output_bias=True, mlp_bias=True), SP, ""),
        (
            SHARED,
            again("shared_experts", expert=4, overlap=Overlap(shared=True)),
            "recomputation of shared_experts beside all-to-alls hidden behind them",
        ),
        (SHARED, again("shared_experts", expert=4), ""),
        # nothing to compute again, which is no lack
        (DENSE, again("moe_act", "mla_up_proj"), ""),
    ],
    ids=str,
)
def test_what_megatron_refuses_of_biases_and_modules(
    arch: Transformer, layout: dict[str, Any], missing: str
) -> None:
    """TransformerConfig.__post_init__ at the commit that the exports name."""
    assert lacks("megatron", arch, **layout) == lacks("nemo", arch, **layout) == missing


@pytest.mark.parametrize(
    ("arch", "module", "over", "refused"),
    [
        (MOE, "moe_act", "stage", True),
        (DENSE, "layernorm", "tensor", True),
        (MOE, "moe_act", "none", False),
        (MOE, "mlp", "stage", False),
        (DENSE, "moe_act", "stage", False),
    ],
)
def test_delayed_scaling_takes_its_inputs_from_the_forward_pass(
    arch: Transformer, module: str, over: str, refused: bool
) -> None:
    """TransformerConfig: "Delayed scaling does not support moe_act and layernorm recompute for fp8"."""
    one = changed(job(**again(module, dtype="fp8")), amax_over=over)
    words = f"recomputation of {module} beside fp8 with delayed scaling"
    assert FRAMEWORKS["megatron"].lacks(one, arch, 8) == ([words] if refused else [])


TURNS = Overlap(ep=True, tp=True)
BESIDE = "expert all-to-alls hidden beside hidden tensor parallelism"
UNBUFFERED = "tensor parallelism hidden beside latent attention"


@pytest.mark.parametrize(
    ("arch", "layout", "missing"),
    [
        (MOE, {**SP, "expert": 4, "overlap": Overlap(ep=True)}, ""),
        (MOE, {**SP, "expert": 4, "overlap": Overlap(tp=True)}, ""),
        (MOE, {**SP, "expert": 4, "overlap": TURNS}, BESIDE),
        (MOE, {**SP, "expert": 4, "pipeline": 2, "virtual_pipeline": 2, "overlap": TURNS}, BESIDE),
        # formats that user buffers gather, and formats that they do not
        (MOE, {**SP, "overlap": Overlap(tp=True), "dtype": "mxfp8"}, ""),
        (MOE, {**SP, "overlap": Overlap(tp=True), "dtype": "nvfp4"}, "tensor parallelism hidden in NVFP4"),
        (
            MOE,
            {**SP, "overlap": Overlap(tp=True), "dtype": "fp8_block"},
            "tensor parallelism hidden in fp8 with scales per block",
        ),
        (MOE, {**SP, "expert": 4, "overlap": Overlap(ep=True), "dtype": "nvfp4"}, ""),
        # nothing is exchanged among experts, or among tensor-parallel ranks
        (MOE, {**SP, "overlap": TURNS}, ""),
        (MOE, {"expert": 4, "overlap": TURNS}, ""),
        (LATENT_EXPERTS, {**SP, "overlap": Overlap(tp=True)}, UNBUFFERED),
        (LATENT_EXPERTS, {"overlap": Overlap(tp=True)}, ""),
        # there tp_comm_overlap does nothing, which hinders no turns
        (LATENT_EXPERTS, {**SP, "expert": 4, "overlap": TURNS}, UNBUFFERED),
        (replace(MOE, mtp_layers=1), {"expert": 4, "overlap": EP}, ""),
        (
            replace(MOE, mtp_layers=2),
            {"expert": 4, "overlap": EP},
            "expert all-to-alls hidden beside several layers of multi-token prediction",
        ),
        (HYBRID, {"expert": 4, "overlap": EP}, "expert all-to-alls hidden in a model of pretrain_hybrid.py"),
        (HYBRID, {"expert": 4}, ""),
    ],
    ids=str,
)
def test_what_megatron_does_not_hide_together(
    arch: Transformer, layout: dict[str, Any], missing: str
) -> None:
    """Delayed weight gradients are no Userbuffers' (Transformer Engine, WeightGradStore), and the products of
    latent attention have no such buffers (Megatron-LM, TELinear)."""
    assert lacks("megatron", arch, **layout) == lacks("nemo", arch, **layout) == missing


NARROW = "narrow optimizer states that are not sharded"
KEPT = "master weights as remainders"


@pytest.mark.parametrize(
    ("data", "layout", "states", "missing"),
    [
        (1, {"zero": 0}, {"moment_dtype": "bf16"}, ""),
        (2, {"zero": 0}, {"moment_dtype": "bf16"}, NARROW),
        (2, {"zero": 1}, {"moment_dtype": "bf16"}, ""),
        # one copy of the dense parameters, two of every expert
        (1, {**SP, "zero": 0, "expert_tensor": 1}, {"moment_dtype": "bf16"}, NARROW),
        (1, {**SP, "zero": 0, "expert_tensor": 1, "expert": 2}, {"moment_dtype": "bf16"}, ""),
        (2, {"zero": 1}, {"master": "remainder"}, ""),
        (2, {"zero": 2}, {"master": "remainder"}, f"{KEPT} under Megatron-FSDP"),
        (2, {"zero": 1}, {"master": "remainder", "dtype": "nvfp4"}, ""),
        (2, {"zero": 1}, {"master": "remainder", "dtype": "fp8", "amax_over": "stage"}, ""),
        (2, {"zero": 1}, {"master": "remainder", "dtype": "fp8"}, ""),
        (2, {"zero": 2}, {"master": "remainder", "dtype": "mxfp8"}, ""),
    ],
    ids=str,
)
def test_what_megatron_keeps_of_narrow_states(
    data: int, layout: dict[str, Any], states: dict[str, Any], missing: str
) -> None:
    """optimizer_config.py, __post_init__, and optimizer/__init__.py at the commit that the exports name."""
    wanted = job(batch=64, **layout).model_copy(update=states)
    assert "; ".join(FRAMEWORKS["megatron"].lacks(wanted, MOE, data)) == missing
