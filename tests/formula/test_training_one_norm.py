"""Layers whose attention and MLP share one norm: nothing else of a step may depend on the norm left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model import layer_operators, parse_config
from railwright.search import Space, search
from railwright.spec.training import Overlap
from railwright.training import simulate
from railwright.training.layers.costs import Cost, costs, sections
from railwright.training.software.constants import constant
from railwright.training.software.eras import Pace
from railwright.training.software.host import launch_times
from training_cases import DENSE, job, machine, priced, roofline

ONE = replace(DENSE, norms_per_layer=1)
COMMAND_R = parse_config(
    """{"model_type": "cohere", "hidden_size": 8192, "intermediate_size": 22528, "num_attention_heads": 64,
    "num_hidden_layers": 40, "vocab_size": 256000}""",
    "config.json",
    "command-r",
)
H100 = machine().gpu
OPERATION = constant("host_operation_seconds")
GRAPHS = [(), ("attention",), ("mlp",), ("attention", "mlp"), ("step",)]


def names(found: list[Cost]) -> list[str]:
    return [cost.name for cost in found]


def test_attention_ends_with_its_residual_whatever_norm_follows() -> None:
    (one_attention, one_mlp), (attention, mlp) = (
        sections(costs(layer_operators(arch, "dense", 1024, 1024), roofline)) for arch in (ONE, DENSE)
    )
    assert one_attention == attention
    assert names(attention)[-1] == "attention residual"
    assert names(mlp) == ["mlp norm", *names(one_mlp)]


def test_a_norm_less_is_one_launch_less_each_way() -> None:
    one, two = (launch_times(layer_operators(arch, "dense", 1024, 1024), H100) for arch in (ONE, DENSE))
    assert two.forward - one.forward == pytest.approx(OPERATION)
    assert two.backward - one.backward == pytest.approx(OPERATION)


def test_graphs_of_both_halves_hold_the_whole_layer() -> None:
    layer = layer_operators(ONE, "dense", 1024, 1024)
    whole, attention, mlp, both = (
        launch_times(layer, H100, graphs=graphs) for graphs in (GRAPHS[0], *GRAPHS[1:4])
    )
    assert (both.forward, both.backward) == (0.0, 0.0)
    # what one graph leaves to launch, the other holds
    assert attention.forward + mlp.forward == pytest.approx(whole.forward)
    assert attention.backward + mlp.backward == pytest.approx(whole.backward)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_a_step_is_shorter_by_the_norms_kernels(recompute: str) -> None:
    # every kernel takes 1 ms; 32 GPUs, each a replica with 2 microbatches of 8 layers
    times = {"predict": priced(0.0), "kernel": lambda operator: 1e-3, "pace": Pace()}
    one, two = (
        simulate(job(batch=64, recompute=recompute, overlap=Overlap(dp=False)), arch, machine(4), **times)
        for arch in (ONE, DENSE)
    )
    runs = 3 if recompute == "full" else 2
    assert two.step_time - one.step_time == pytest.approx(2 * 8 * runs * 1e-3)


@pytest.mark.parametrize("graphs", GRAPHS)
@pytest.mark.parametrize(
    "recompute",
    [
        {},
        {"recompute": "full"},
        *({"recompute": "selective", "recompute_modules": (name,)} for name in ("core_attn", "mlp", "ops")),
    ],
)
def test_command_r_runs_on_eight_gpus_a_layer(graphs: tuple[str, ...], recompute: dict[str, object]) -> None:
    wanted = job(tensor=8, sequence_parallel=True, sequence=4096, batch=32, **recompute)
    step = simulate(
        wanted.model_copy(update={"cuda_graphs": graphs}), COMMAND_R, machine(4), predict=priced(400e9)
    )
    assert 0.3 < step.mfu < 0.6


def test_command_r_is_searched() -> None:
    fixed = {"micro_batch": (1,), "zero": (1,), "placement": ("packed",), "schedule": ("auto",)}
    space = Space({"tensor": (8,), "context": (1,), "pipeline": (1, 2, 4), "recompute": ("none",), **fixed})
    wanted = job(tensor=8, sequence_parallel=True, pipeline=4, sequence=4096, batch=32)
    found = search(wanted, COMMAND_R, machine(4), space, top=1, steps=0)
    assert found.own is not None
    assert found.best[0].step.step_time <= found.own.step.step_time
