"""Experts of eager PyTorch in grouped products (`Era.dispatch`), and modules of PyTorch alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model import Cut, layer_activations, layer_operators, load_model
from railwright.model.operators.grouped_rows import COUNTS, SORTS, rows_back, rows_there
from railwright.model.operators.looped import KERNELS, SORTED
from railwright.model.operators.recompute import OFFSETS, ORDER
from railwright.model.shape.architecture import Operator
from railwright.model.shape.pattern import Layer
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.layers.cut import cut_of
from railwright.training.layers.recompute import counts_stay
from railwright.training.software.constants import constant
from railwright.training.software.eras import Pace, eras, pace_of
from railwright.training.software.host import launch_times
from training_cases import LATENTS, MOE, changed, job, machine, priced

OPERATION, NATIVE = constant("host_operation_seconds"), constant("host_native_seconds")
H100, ROWS = machine().gpu, 4096
EAGER = Cut(unfused=("activation",), dispatch="eager")


def experts(**layout: object) -> TrainingJob:
    return changed(job(gpus=8, batch=8, zero=1, **layout), software="fsdp-2024-eager")


def test_a_sort_is_one_operation_of_many_kernels() -> None:
    layer = layer_operators(MOE, "moe", ROWS, ROWS, EAGER)
    kernels = {op.name: op.launches for op in layer.forward}
    assert (kernels[ORDER], kernels[OFFSETS]) == (SORTS * KERNELS[ORDER], COUNTS)
    ordered = replace(layer, forward=tuple(op for op in layer.forward if op.name == ORDER))
    assert launch_times(ordered, H100).forward == pytest.approx(
        SORTS * (OPERATION + (KERNELS[ORDER] - 1) * NATIVE)
    )
    sums = tuple(op for op in layer.backward_input if op.name.endswith(SORTED))
    each = replace(layer, backward_input=sums)
    per_sum = OPERATION + (KERNELS[SORTED] - 1) * NATIVE
    assert launch_times(each, H100).input == pytest.approx(4 * per_sum)  # rows and sums, two indexings each


@pytest.mark.parametrize("expert", [1, 2])
def test_the_host_waits_for_counts_where_tokens_leave_the_gpu(expert: int) -> None:
    """It runs ahead over a step whose kernels hide all launches; else every layer waits for its own."""
    wanted = experts(expert=expert)
    stay = expert == 1
    assert counts_stay(wanted) is stay
    assert cut_of(wanted, "moe").dispatch == ("eager" if stay else "fused")
    names = {op.name for op in layer_operators(MOE, "moe", ROWS, ROWS, cut_of(wanted, "moe")).forward}
    assert (ORDER in names, "permute" in names) == (stay, not stay)


@pytest.mark.parametrize(
    "other", [{"unfused": ("experts",)}, {"software": "fsdp-2025"}, {"software": "megatron-2025"}], ids=str
)
def test_where_it_waits_though_no_token_leaves(other: dict[str, object]) -> None:
    assert not counts_stay(changed(experts(), **other))


def test_a_slow_layer_hides_the_launches_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of which a backward pass is longer than its launches, and a forward pass shorter: together they
    hide them, where the host need not wait for counts in each layer."""

    def exposed() -> float:
        layer = layer_operators(MOE, "moe", ROWS, ROWS, EAGER)
        known = launch_times(layer, H100)
        forward = 0.8 * known.forward / len(layer.forward)
        back = 2.0 * (known.input + known.weight) / len(layer.backward_input + layer.backward_weight)

        def kernel(op: Operator) -> float:
            return forward if op.phase == "forward" else back

        return simulate(experts(), MOE, machine(), predict=priced(1e15), kernel=kernel, pace=Pace()).exposed(
            "host"
        )

    ahead = exposed()
    monkeypatch.setattr("railwright.training.passes.work.counts_stay", lambda _: False)
    assert ahead < 0.2 * exposed()


def test_what_experts_make_is_kept_weighted_and_not() -> None:
    names = ("expert output", "expert output, weighted")
    kept = layer_activations(MOE, "moe", ROWS, ROWS, EAGER)
    assert [kept[name] for name in names] == [2 * MOE.experts_per_token * MOE.hidden * ROWS] * 2
    narrow = layer_activations(LATENTS, "moe", ROWS, ROWS, EAGER)
    assert narrow[names[0]] == 2 * LATENTS.experts_per_token * LATENTS.expert_width * ROWS
    cut = layer_activations(MOE, "moe", ROWS, ROWS, replace(EAGER, tp=2, expert_tp=1, imbalance=1.5))
    assert cut[names[0]] == 1.5 / 2 * kept[names[0]]
    fused = layer_activations(MOE, "moe", ROWS, ROWS, Cut(unfused=("activation",)))
    assert not fused.keys() & set(names)


def test_plain_modules_take_what_is_measured_of_one() -> None:
    plain = {name for name, era in eras().items() if era.plain_modules}
    assert plain == {"fsdp-2023", "deepspeed-2024", "fsdp-2024-eager", "deepspeed-2026", "fsdp-2026-eager"}
    paces = [(key, pace.host) for name in plain for key, pace in eras()[name].pace.items()]
    assert {host for key, host in paces if key.endswith("16-bit")} == {1.0}
    assert min(host for key, host in paces if not key.endswith("16-bit")) > 4  # other modules
    assert pace_of(changed(job(), software="megatron-2025"), H100).host > 4


@pytest.mark.parametrize(
    ("name", "kind", "longer"), [("llama-3.1-8b", "dense", 3.5), ("qwen3-30b-a3b", "moe", 5.0)]
)
def test_what_modules_of_transformer_engine_would_take(name: str, kind: Layer, longer: float) -> None:
    """docs/training/calibration.md."""
    how = replace(EAGER, unfused=("rotary", "norm", "activation"), rotation="halves")
    layer = layer_operators(load_model(name), kind, 1024, 1024, how)
    theirs, plain = (launch_times(layer, H100, factor) for factor in (7.76, 1.0))
    both = (theirs.forward + theirs.backward) / (plain.forward + plain.backward)
    assert both == pytest.approx(longer, abs=0.05)


def test_how_often_rows_move() -> None:
    """docs/training.md, with many experts for each token."""
    there, back = rows_there(1000, 8000, 2048), rows_back(1000, 8000, 2048)
    rows = 2 * 8000 * 2048
    blocks = [*there, back]
    behind = [op for block in blocks for op in block.backward_input]
    assert sum(block.forward.bytes for block in blocks) / rows == pytest.approx(11, abs=0.2)
    assert sum(op.bytes for op in behind) / rows == pytest.approx(19, abs=0.2)
    assert sum(block.forward.launches for block in blocks) == 25
    assert sum(op.launches for op in behind) == 44
