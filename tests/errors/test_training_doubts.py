"""Layouts that run and read doubtful: settings that do nothing, or say something else than was meant."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.measure.training.replay import records
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.checks.doubts import doubts
from railwright.training.checks.layout_doubts import SHORTEST
from railwright.training.checks.plan import check
from training_cases import DENSE, MOE, changed, job, machine, priced, roofline


def test_doubtful_layouts_are_warned_about() -> None:
    def warnings(wanted: TrainingJob, arch: Transformer) -> str:
        result = simulate(wanted, arch, machine(4), predict=priced(50e9), kernel=roofline)
        return " ".join(result.warnings)

    assert "longer than the 4096 positions" in warnings(job(sequence=8192), DENSE)
    assert "said of the model" in warnings(job(), replace(DENSE, notes=("said of the model.",)))
    assert "each is kept on 2 GPUs" in warnings(job(tensor=8), DENSE)
    assert "only with sequence_parallel" in warnings(job(tensor=2, expert=2), MOE)
    assert "does nothing" in warnings(job(sequence_parallel=True), DENSE)
    assert "only dtype fp8" in warnings(job().model_copy(update={"amax_over": "stage"}), DENSE)
    packed = {"sample_length": 256}
    assert "sample" not in warnings(changed(job(), **packed), DENSE)
    assert "sequences have 1024 tokens" in warnings(changed(job(), sample_length=1024), DENSE)
    assert "masks those between samples" in warnings(
        changed(job(), software="megatron-2022", **packed), DENSE
    )
    assert "waste attention's tiles" in warnings(changed(job(context=2), **packed), DENSE)
    fixed = {"expert_capacity": 1.0}
    assert "is a dense model" in warnings(job().model_copy(update=fixed), DENSE)
    assert "cuts it off" in warnings(job(expert=8, imbalance=1.2).model_copy(update=fixed), MOE)
    assert "does nothing" not in warnings(job(expert=8).model_copy(update=fixed), MOE)
    assert "spans 2 servers of 8 GPUs" in warnings(job(tensor=16), DENSE)
    hidden = {"expert": 8, "overlap": Overlap(ep=True)}
    assert "overlap.ep hides nothing" in warnings(job(batch=32, **hidden), MOE)
    assert "overlap.ep hides nothing" not in warnings(job(batch=64, **hidden), MOE)
    assert "overlap.ep hides nothing with zero: 3" in warnings(job(batch=64, zero=3, **hidden), MOE)
    staged = warnings(job(batch=64, pipeline=2, **hidden), MOE)
    assert "overlap.ep hides nothing with schedule 1f1b over several stages" in staged
    assert "not a multiple of 2 x context = 8" in warnings(job(context=4, sequence=1020), DENSE)
    windowed = replace(DENSE, sliding_window=256)
    assert "context_kind all-to-all or all-gather; ring is predicted" in warnings(job(context=4), windowed)
    assert "over context ranks" not in warnings(job(context=4, context_kind="all-gather"), windowed)
    sinks = replace(DENSE, attention_sinks=True)
    assert "with sinks over" in warnings(job(context=4, context_kind="all-gather"), sinks)
    assert "zero: 1 does so once per step" in warnings(job(zero=2, pipeline=2), DENSE)
    assert "gpus_per_server 4 keeps them inside" in warnings(
        changed(job(gpus=24, batch=24, expert=4), gpus_per_server=6), MOE
    )


def test_a_sequence_and_a_batch_that_look_swapped() -> None:
    """Short sequences are doubted beside a batch that could be a length, and not by themselves."""

    def told(sequence: int, batch: int) -> bool:
        warnings = check(job(sequence=sequence, batch=batch), DENSE, machine(1).network.fabric)
        return any("swapped?" in text for text in warnings)

    assert told(64, 4096)
    assert not told(64, 256)
    assert not told(512, 4096)
    assert not told(4096, 64)


def test_no_published_step_has_shorter_sequences() -> None:
    assert min(int(record["seq"]) for record in records()) == SHORTEST


@pytest.mark.parametrize(
    ("layout", "rest", "arch", "says"),
    [
        ({"offload_layers": 4}, {}, DENSE, "offload_layers does nothing"),
        (
            {"offload": ("activations",), "offload_layers": 9},
            {},
            DENSE,
            "offload_layers 9 counts as 8, all layers of a stage",
        ),
        (
            {"offload": ("activations",), "recompute": "full"},
            {},
            DENSE,
            "software megatron-2025 has no activations offloaded beside a pipeline or recomputation",
        ),
        (
            {"offload": ("optimizer",), "zero": 0},
            {},
            DENSE,
            "no offloaded optimizer states that are not sharded",
        ),
        (
            {"offload": ("activations",), "zero": 3},
            {"software": "fsdp-2025"},
            DENSE,
            "software fsdp-2025 has no activations offloaded",
        ),
        ({"recompute_layers": 4}, {}, DENSE, "recompute_layers does nothing while layout.recompute is none"),
        ({"reshard": False}, {}, DENSE, "reshard does nothing with zero: 1"),
        ({"reduce_each": False}, {}, DENSE, "reduce_each does nothing with zero: 1"),
        ({"recompute_modules": ("mlp",)}, {}, DENSE, "recompute_modules does nothing while layout.recompute"),
        ({"recompute": "selective", "recompute_modules": ()}, {}, DENSE, "names no part"),
        ({"recompute": "selective", "recompute_modules": ("moe",)}, {}, DENSE, "has nothing of 'moe'"),
        ({"recompute": "selective", "recompute_modules": ("mla_up_proj",)}, {}, MOE, "of 'mla_up_proj'"),
        ({"placement": "expert-across"}, {}, MOE, "expert-across does nothing while layout.expert is 1"),
        ({}, {"expert_nodes": 2}, DENSE, "expert_nodes does nothing"),
        ({}, {"expert_imbalance": 1.5}, DENSE, "expert_imbalance does nothing"),
        ({}, {"unfused": ("router",)}, DENSE, "unfused router does nothing"),
        ({}, {"unfused": ("rotary",)}, replace(DENSE, alibi=True), "has ALiBi"),
        ({}, {"unfused": ("rotary",)}, replace(DENSE, position_embeddings=9), "has learned positions"),
        ({}, {"unfused": ("norm",)}, replace(DENSE, norm_bias=True), "unfused norm does nothing"),
        ({}, {"unfused": ("activation",)}, replace(DENSE, gated=False), "unfused activation does nothing"),
        ({}, {"tokens": 1000.0}, DENSE, "more than the whole budget of 1,000"),
    ],
)
def test_settings_that_do_nothing_are_told(
    layout: dict[str, object], rest: dict[str, object], arch: Transformer, says: str
) -> None:
    plain = job()
    asked = plain.model_copy(update={"layout": plain.layout.model_copy(update=layout), **rest})
    assert [w for w in doubts(asked, arch, 1) if says in w]
    assert not doubts(plain, arch, 1)


@pytest.mark.parametrize(
    "layout", [{"offload": ("activations",), "offload_layers": 8}, {"offload": ("optimizer",), "zero": 1}]
)
def test_what_megatron_offloads_is_not_doubted(layout: dict[str, object]) -> None:
    assert not doubts(job(**layout), DENSE, 1)


@pytest.mark.parametrize(("gpus", "told"), [(None, 0), (32, 0), (28, 0), (24, 1), (8, 1)])
def test_named_servers_that_stay_idle_are_told(gpus: int | None, told: int) -> None:
    wanted = changed(job(gpus=gpus, batch=32 if gpus is None else gpus), servers=(7, 5, 3, 1))
    warned = check(wanted, DENSE, machine(8).network.fabric)
    assert (
        len([w for w in warned if "servers names 4 servers with 32 GPUs, of which gpus takes" in w]) == told
    )


@pytest.mark.parametrize(("placement", "told"), [("packed", 1), ("expert-across", 0)])
def test_expert_groups_that_are_meant_to_lie_across_servers_straddle_none(placement: str, told: int) -> None:
    arch = replace(MOE, experts=6)
    wanted = job(gpus=48, batch=48, expert=6, placement=placement)
    warned = check(wanted, arch, machine(8).network.fabric)
    assert len([w for w in warned if "so some straddle two; gpus_per_server 6" in w]) == told
