"""Settings that leave time and memory as they are: each is told, once, and none of them by default."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.checks.doubts import doubts
from railwright.training.checks.plan import check
from railwright.training.software.formats import master_of
from training_cases import DENSE, MOE, job, machine, priced, roofline

SHARDED = {"zero": 3, "software": "fsdp-2024"}
ON_HOST = {"offload": ("optimizer",)}
MIXED = replace(MOE, dense_layers=1)


def asked(**changes: object) -> TrainingJob:
    """A small job with some fields of it, of its layout, or of its overlap changed."""
    plain = job()
    rest: dict[str, object] = {}
    parts: dict[str, dict[str, object]] = {"layout": {}, "overlap": {}}
    for name, value in changes.items():
        part = next((p for p in parts if name in type(getattr(plain, p)).model_fields), None)
        (parts[part] if part else rest)[name] = value
    update = {part: getattr(plain, part).model_copy(update=inside) for part, inside in parts.items()}
    return plain.model_copy(update={**update, **rest})


@pytest.mark.parametrize(
    ("base", "setting", "arch", "says"),
    [
        ({}, {"tp": True}, DENSE, "overlap.tp does nothing while layout.tensor is 1"),
        ({}, {"ep": True}, DENSE, "overlap.ep does nothing: dense-8 is a dense model"),
        ({}, {"ep": True}, MOE, "overlap.ep does nothing while layout.expert is 1"),
        ({}, {"prefetch": 9}, DENSE, "overlap.prefetch does nothing with zero: 1"),
        ({"zero": 2}, {"prefetch": 0}, DENSE, "overlap.prefetch does nothing with zero: 2"),
        (
            {},
            {"context_kind": "all-to-all"},
            DENSE,
            "context_kind all-to-all does nothing while layout.context",
        ),
        (
            {},
            {"ends_as_layers": "both"},
            DENSE,
            "ends_as_layers does nothing while the model is in one piece",
        ),
        (
            {"pipeline": 2, "layers_per_stage": (4, 4)},
            {"ends_as_layers": "head"},
            DENSE,
            "ends_as_layers does nothing beside layers_per_stage",
        ),
        (
            {},
            {"cuda_graphs": ("router",)},
            DENSE,
            "cuda_graphs router does nothing: dense-8 is a dense model",
        ),
        (
            {},
            {"cuda_graphs": ("mlp",)},
            MOE,
            "cuda_graphs mlp does nothing: every layer of moe-8 has experts",
        ),
        (SHARDED, {"ddp_bucket": 768e6}, DENSE, "ddp_bucket does nothing: only Megatron-LM's"),
        ({"zero": 2}, {"ddp_bucket": 768e6}, DENSE, "ddp_bucket does nothing: only Megatron-LM's"),
        ({"dp": False}, {"ddp_bucket": 768e6}, DENSE, "ddp_bucket does nothing: only Megatron-LM's"),
        (SHARDED, {"master": "remainder"}, DENSE, "master remainder does nothing with software fsdp-2024"),
        (
            {**SHARDED, "gradient_dtype": "bf16"},
            {"master": "remainder"},
            DENSE,
            "master remainder does nothing with software fsdp-2024",
        ),
        (ON_HOST, {"moment_dtype": "bf16"}, DENSE, "moment_dtype bf16 does nothing beside layout.offload"),
        (ON_HOST, {"master": "remainder"}, DENSE, "master remainder does nothing beside layout.offload"),
        (
            {**SHARDED, "offload": ("weights",)},
            {"moment_dtype": "fp8"},
            DENSE,
            "moment_dtype fp8 does nothing beside layout.offload weights",
        ),
    ],
)
def test_what_changes_nothing_is_told(
    base: dict[str, object], setting: dict[str, object], arch: Transformer, says: str
) -> None:
    plain, more = asked(**base), asked(**base, **setting)
    one, other = (simulate(x, arch, machine(4), predict=priced(50e9), kernel=roofline) for x in (plain, more))
    assert (other.step_time, other.memory) == (one.step_time, one.memory)
    new = [w for w in other.warnings if w not in one.warnings]
    assert len(new) == 1
    assert new[0].startswith(says)


@pytest.mark.parametrize(
    ("wanted", "arch"),
    [
        (asked(tensor=2, sequence_parallel=True, tp=True), DENSE),
        (asked(expert=8, ep=True), MOE),
        (asked(zero=3, prefetch=2), DENSE),
        (asked(context=2, context_kind="all-to-all"), DENSE),
        (asked(pipeline=2, ends_as_layers="both"), DENSE),
        # a folded model has two pieces on every stage
        (asked(pipeline=2, schedule="zb-v", ends_as_layers="both", software="fsdp-2025"), DENSE),
        (asked(cuda_graphs=("attention", "mlp")), DENSE),
        (asked(cuda_graphs=("attention", "mlp", "router")), MIXED),
        (asked(cuda_graphs=("step",), expert_capacity=1.5), MOE),
        (asked(master="remainder"), DENSE),
        (asked(master="remainder", software="fsdp-2024"), DENSE),
        (asked(master="remainder", zero=3), DENSE),
        (asked(offload=("activations",), moment_dtype="bf16"), DENSE),
    ],
)
def test_what_changes_something_is_not(wanted: TrainingJob, arch: Transformer) -> None:
    assert not doubts(wanted, arch, 4)


def test_defaults_are_never_told() -> None:
    for arch in (DENSE, MOE, MIXED):
        assert not doubts(job(), arch, 4)
        assert not doubts(asked(**SHARDED), arch, 4)
    assert job().overlap == Overlap()


def test_only_a_bf16_weight_is_half_of_its_master() -> None:
    fabric = machine(4).network.fabric
    with pytest.raises(PlanError) as caught:
        check(asked(master="remainder", dtype="fp16"), DENSE, fabric)
    text = str(caught.value)
    assert text.startswith("case: master remainder keeps the lower 16 bits of an fp32 master weight")
    assert text.endswith("Set dtype to bf16, or master to fp32.")
    for dtype in ("bf16", "fp8"):
        check(asked(master="remainder", dtype=dtype), DENSE, fabric)


def test_shards_in_fp32_are_the_master_weights() -> None:
    assert master_of(asked(master="remainder")) == "remainder"
    assert master_of(asked(master="remainder", software="fsdp-2024")) == "remainder"
    assert master_of(asked(master="remainder", **SHARDED)) == "fp32"


def test_zero_over_one_rank_is_told_to_do_nothing_and_not_to_exchange() -> None:
    """8 x 4 ranks of tensor and pipeline parallelism leave no two with the same parameters."""
    alone = {"tensor": 8, "pipeline": 4, "zero": 2}
    said = check(asked(**alone, global_batch=8), DENSE, machine(4).network.fabric)
    assert any(told.startswith("zero: 2 shares nothing out: no two ranks") for told in said)
    assert not any("in every microbatch" in told for told in said)
    said = check(asked(tensor=4, pipeline=4, zero=2, global_batch=8), DENSE, machine(4).network.fabric)
    assert not any(told.startswith("zero: 2 shares nothing out") for told in said)
    assert any("in every microbatch" in told for told in said)
    # torchtitan's pipelines gather and reduce once per step
    for once, repeats in (
        ({}, True),
        ({"reshard": False}, True),
        ({"reshard": False, "reduce_each": False}, False),
    ):
        kept = asked(tensor=4, pipeline=4, zero=3, global_batch=8, **once)
        said = check(kept, DENSE, machine(4).network.fabric)
        assert any("in every microbatch" in told for told in said) == repeats
    # FSDP makes 16 bits of its fp32 shards on one rank too
    torch = asked(**{**alone, "zero": 3}, software="fsdp-2025", global_batch=8)
    assert not any("shares nothing out" in told for told in check(torch, DENSE, machine(4).network.fabric))
