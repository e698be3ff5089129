"""What a backward pass computes again: all that a checkpoint repeats, and nothing that it keeps.

Megatron-LM checkpoints 'mlp', 'moe' and 'shared_experts' as functions that run again whole; 'layernorm',
'mla_up_proj' and 'moe_act' throw their outputs away and make those again
(core/transformer/transformer_config.py, `recompute_modules`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from railwright.model import Cut, layer_operators
from railwright.model.shape.architecture import Operator, Transformer
from railwright.spec.training import Lora, Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.software.constants import constant
from railwright.training.software.eras import Pace
from railwright.training.software.host import launch_times
from training_cases import BLOCKS, DENSE, MOE, job, machine, priced, roofline

LAYERS = 8
MICROBATCHES = 8
SHARED = replace(MOE, shared_experts=1, shared_ffn=1024, shared_gate=True)


def again(*modules: str, software: str = "", lora: Lora | None = None, **what: object) -> TrainingJob:
    """A job that computes parts of a layer again, or nothing."""
    chosen = {"recompute": "selective", "recompute_modules": modules} if modules else {}
    update: dict[str, object] = {"software": software} if software else {}
    return job(**what, **chosen).model_copy(update=update | ({"lora": lora} if lora else {}))  # type: ignore[arg-type]


def counts(wanted: TrainingJob, arch: Transformer) -> Counter[str]:
    """Collectives of a step by purpose."""
    step = simulate(wanted, arch, machine(4), predict=priced(50e9), kernel=roofline)
    return Counter({one.purpose: one.count for one in step.collectives})


def runs(wanted: TrainingJob, arch: Transformer, *operators: str) -> float:
    """How often a layer and microbatch runs operators: each takes a second forward, all else none."""

    def seconds(op: Operator) -> float:
        return float(op.name in operators)

    step = simulate(wanted, arch, machine(4), predict=priced(0), kernel=seconds, pace=Pace())
    busy = next(share.busy for share in step.shares if share.kind == "compute")
    return busy / LAYERS / MICROBATCHES


@pytest.mark.parametrize("software", ["megatron-2022", "megatron-2025"])
@pytest.mark.parametrize("parallel", [False, True])
def test_an_mlp_is_gathered_and_reduced_again(parallel: bool, software: str) -> None:
    # 8 layers and 8 microbatches more: one reduction, and under sequence parallelism one gather
    cut = {"tensor": 4, "sequence_parallel": parallel, "software": software}
    more = counts(again("mlp", **cut), DENSE) - counts(again(**cut), DENSE)
    each = LAYERS * MICROBATCHES
    assert more == (
        {"tp reduce-scatter": each, "tp all-gather": each} if parallel else {"tp all-reduce": each}
    )


def test_experts_are_dispatched_and_combined_again() -> None:
    each = LAYERS * 2
    plain = counts(again(expert=8), MOE)
    more = counts(again("moe", expert=8), MOE) - plain
    assert more == {"ep counts": each, "ep dispatch": each, "ep combine": each}


def test_experts_without_attention_exchange_what_a_whole_layer_does() -> None:
    # a layer sends what its experts and its attention do: one gather and one reduction of hidden states
    cut = {"tensor": 2, "expert": 4, "sequence_parallel": True}
    part, whole = counts(again("moe", **cut), SHARED), counts(job(**cut, recompute="full"), SHARED)  # type: ignore[arg-type]
    each = LAYERS * MICROBATCHES / 2
    assert whole - part == {"tp reduce-scatter": each, "tp all-gather": each}


def test_shared_experts_are_gathered_and_reduced_again() -> None:
    cut = {"tensor": 2, "expert": 4, "sequence_parallel": True}
    more = counts(again("shared_experts", **cut), SHARED) - counts(again(**cut), SHARED)
    each = LAYERS * MICROBATCHES / 2
    assert more == {"tp reduce-scatter": each, "tp all-gather": each}
    # they are a part of 'moe'
    assert counts(again("moe", "shared_experts", **cut), SHARED) == counts(again("moe", **cut), SHARED)


@pytest.mark.parametrize("part", ["core_attn", "layernorm", "moe_act"])
def test_what_only_loses_its_output_sends_nothing_again(part: str) -> None:
    cut = {"tensor": 2, "expert": 4, "sequence_parallel": True}
    assert counts(again(part, **cut), SHARED) == counts(again(**cut), SHARED)


@pytest.mark.parametrize("kind", ["ring", "all-to-all", "all-gather"])
def test_context_parallel_ranks_meet_again_for_the_core_attention_alone(kind: str) -> None:
    # whatever another part runs again, keys and values have come already
    cut = {"context": 4, "context_kind": kind, "batch": 64}

    def met(*modules: str) -> dict[str, float]:
        found = counts(again(*modules, **cut), SHARED)
        return {purpose: n for purpose, n in found.items() if purpose.startswith("cp")}

    forward = {
        purpose: n for purpose, n in met().items() if "backward" not in purpose and "reduce" not in purpose
    }
    for part in ("layernorm", "moe", "moe_act", "shared_experts"):
        assert met(part) == met()
        assert met(part, "core_attn") == met("core_attn")
    assert met("core_attn") == met() | {purpose: 2 * n for purpose, n in forward.items()}


def test_layers_without_attention_exchange_no_keys_again() -> None:
    # of a hybrid's eight layers one is attention
    cut = {"context": 2, "context_kind": "all-gather", "batch": 64}
    more = counts(again("core_attn", **cut), BLOCKS) - counts(again(**cut), BLOCKS)
    assert more == {"cp all-gather": 4}


@pytest.mark.parametrize(
    ("part", "arch", "repeated"),
    [
        ("mlp", DENSE, ("mlp norm", "mlp up", "mlp activation", "mlp down")),
        ("moe", SHARED, ("router", "permute", "experts up", "experts down", "unpermute", "add shared")),
        ("moe", SHARED, ("shared expert up", "shared expert down", "shared gate")),
        ("shared_experts", SHARED, ("shared expert up", "shared expert down", "shared gate")),
        ("moe_act", MOE, ("experts activation",)),
        ("layernorm", MOE, ("mlp norm",)),
        ("core_attn", DENSE, ("core attention",)),
    ],
)
def test_every_operator_of_a_part_runs_twice(part: str, arch: Transformer, repeated: tuple[str, ...]) -> None:
    one = {"batch": 32 * MICROBATCHES}
    assert runs(again(**one), arch, *repeated) == pytest.approx(len(repeated))
    assert runs(again(part, **one), arch, *repeated) == pytest.approx(2 * len(repeated))


@pytest.mark.parametrize(
    ("part", "arch", "once"),
    [
        ("mlp", DENSE, ("mlp residual", "qkv projection", "core attention", "output projection")),
        ("moe", SHARED, ("mlp norm", "mlp residual")),
        ("shared_experts", SHARED, ("add shared", "experts down")),
        ("moe_act", MOE, ("experts up", "experts down")),
    ],
)
def test_what_lies_around_a_part_runs_once(part: str, arch: Transformer, once: tuple[str, ...]) -> None:
    assert runs(again(part, batch=32 * MICROBATCHES), arch, *once) == pytest.approx(len(once))


def test_a_compiler_drops_what_the_backward_pass_does_not_read() -> None:
    # XLA removes the second product of an MLP and its reduction: only the residual reads them
    cut = {"tensor": 4, "sequence_parallel": True, "software": "xla-2025"}
    assert counts(again("mlp", **cut), DENSE) == counts(again(**cut), DENSE)
    one = {"batch": 32 * MICROBATCHES, "software": "xla-2025"}
    assert runs(again("mlp", **one), DENSE, "mlp down") == 1
    assert runs(again("mlp", **one), DENSE, "mlp up") == 2


@pytest.mark.parametrize("software", ["fsdp-2024", "fsdp-2025", "xla-2025"])
def test_a_whole_layer_runs_again_but_for_what_only_a_sum_reads(software: str) -> None:
    cut = {"tensor": 4, "sequence_parallel": True, "software": software}
    whole, plain = (counts(again(**cut, recompute=how), DENSE) for how in ("full", "none"))
    each = LAYERS * MICROBATCHES
    assert whole["tp reduce-scatter"] - plain["tp reduce-scatter"] == each  # attention's, not the MLP's
    assert whole["tp all-gather"] - plain["tp all-gather"] == 2 * each
    one = {"batch": 32 * MICROBATCHES, "software": software, "recompute": "full"}
    for name, times in {"output projection": 2, "mlp up": 2, "mlp activation": 2, "mlp down": 1}.items():
        assert runs(again(**one), DENSE, name) == times
    normed = replace(DENSE, norms_per_layer=4)  # the norm behind it reads it
    assert runs(again(**one), normed, "mlp down") == 2
    joined = replace(DENSE, parallel_blocks=True)
    assert runs(again(**one), joined, "output projection") == 1
    assert runs(again(**one | {"software": "megatron-2025"}), DENSE, "mlp down") == 2


def test_adapters_run_again_with_their_products() -> None:
    one = {"batch": 32 * MICROBATCHES, "lora": Lora(rank=8, targets=("mlp up", "mlp down"))}
    names = ("mlp up adapter in", "mlp up adapter out", "mlp down adapter in", "mlp down adapter sum")
    assert runs(again("mlp", **one), DENSE, *names) == 2 * len(names)


def test_what_runs_again_is_launched_again() -> None:
    # kernels that take no time: what is left is launching
    free = {"predict": priced(1e18, 0.0), "kernel": lambda operator: 1e-12, "pace": Pace()}
    known = launch_times(layer_operators(DENSE, "dense", 1024, 1024, modules=("mlp",)), machine().gpu)
    # two products, a norm and an activation
    module, operation = constant("host_module_seconds"), constant("host_operation_seconds")
    assert known.again == pytest.approx(2 * module + 2 * operation)
    step = simulate(again("mlp", batch=32, overlap=Overlap(dp=False)), DENSE, machine(4), **free)  # type: ignore[arg-type]
    assert step.exposed("host") == pytest.approx(
        LAYERS * (known.forward + known.backward + known.again), rel=1e-3
    )


def test_the_host_waits_for_counts_again_where_tokens_are_routed_again() -> None:
    # one microbatch: a wait in each layer forward, and in each again or one for all of them backward
    free = {"predict": priced(1e18, 0.0), "kernel": lambda operator: 1e-12, "pace": Pace()}

    def waits(*modules: str) -> tuple[int, float]:
        one = again(*modules, batch=32, expert=8, overlap=Overlap(dp=False))
        step = simulate(one, MOE, machine(4), **free)  # type: ignore[arg-type]
        found = [event for event in step.timeline.events if event.lane == "host"]
        return len({event.start for event in found}), step.exposed("host")

    assert waits()[0] == waits("moe_act")[0] == LAYERS + 1
    count, seconds = waits("moe")
    assert count == 2 * LAYERS
    # two all-to-alls and counts forward, as many again, and two all-to-alls backward are launched too
    known = launch_times(layer_operators(MOE, "moe", 1024, 1024, Cut(ep=8), modules=("moe",)), machine().gpu)
    total = known.forward + known.backward + known.again + 8 * constant("host_operation_seconds")
    assert seconds == pytest.approx(LAYERS * total, rel=1e-3)
