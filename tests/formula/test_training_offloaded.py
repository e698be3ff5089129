"""What stays on the GPU of activations that go to the host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model import load_model
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Overlap
from railwright.training.layers.stages import stage_shapes
from railwright.training.memory.activations import _gradients, layer_kept_parts, stage_activations
from railwright.training.memory.cached import cached
from railwright.training.memory.peak import SYSTEM, peak_memory
from training_cases import DENSE, MOE, job, machine


def test_offloaded_layers_leave_every_pass_but_the_one_at_work() -> None:
    def kept(**layout: object) -> tuple[float, float]:
        wanted = job(recompute="full", **layout)  # type: ignore[arg-type]
        found = stage_activations(wanted, DENSE, stage_shapes(DENSE, wanted.layout)[0])
        return found.chunks[0], found.layer_backward["layer on its way to the host"]

    sent = ("activations",)
    (whole, way), layer = kept(), 1024 * 2 * 1024
    assert (whole, way) == (8 * layer, 0)
    # all but the last of 8 layers go; while that one runs back the one before it comes back
    assert kept(offload=sent) == (layer, layer)
    # 3 of 8 go: 5 are more than the two that a pass at work needs
    assert kept(offload=sent, offload_layers=3) == (5 * layer, 0)
    # a stage of two layers; one of a single layer needs that at once
    assert kept(offload=sent, pipeline=4) == (layer, layer)
    assert kept(offload=sent, pipeline=8) == (layer, 0)


def test_a_forward_and_a_backward_pass_together_have_two_layers_each() -> None:
    def way(arch: Transformer, hidden: bool = False, **layout: object) -> float:
        wanted = job(
            recompute="full",
            offload=("activations",),
            overlap=Overlap(ep=hidden),
            gpus=32,
            batch=64,
            **layout,
        )  # type: ignore[arg-type]
        found = stage_activations(wanted, arch, stage_shapes(arch, wanted.layout)[0])
        return found.layer_backward["layer on its way to the host"] / (1024 * 2 * 1024)

    # of each pass the last layer of its chunk stays; zb-v runs one pass after the other
    assert way(DENSE, pipeline=2, schedule="zb-v") == 1
    assert way(DENSE, pipeline=2, schedule="dualpipe") == way(DENSE, pipeline=2, schedule="dualpipe-v") == 2
    assert way(DENSE, pipeline=2, schedule="dualpipe", offload_layers=4) == 0
    # of passes that take turns one layer each is counted; in chunks of two layers three are there at most
    assert way(MOE, hidden=True, expert=4) == 2
    assert way(MOE, hidden=True, expert=4, offload_layers=6) == 1
    assert way(MOE, hidden=True, expert=4, pipeline=2, virtual_pipeline=2) == 1


def test_offloaded_layers_leave_what_a_pass_keeps_beside_its_layers() -> None:
    # DeepSeek-V3 joins two hidden states for its extra layer: inputs and outputs of two norms stay, 4 x 2
    # bytes per row and number of the hidden size, beside the last layer's input
    arch = load_model("deepseek-v3")
    wanted = job(expert=8, sequence=4096, offload=("activations",), recompute="full")
    (shape,) = stage_shapes(arch, wanted.layout)
    (kept,) = stage_activations(wanted, arch, shape).chunks
    assert kept == pytest.approx(4096 * arch.hidden * (2 + 4 * 2))


@pytest.mark.parametrize("dense", [1, 4, 7])
def test_layers_of_two_kinds_come_back_one_after_another(dense: int) -> None:
    """Of eight layers the last one stays; a pass has it alone, then two others at a time without it."""
    arch = replace(MOE, dense_layers=dense)
    wanted = job(offload=("activations",), expert=2)
    (shape,) = stage_shapes(arch, wanted.layout)
    sizes = {kind: sum(layer_kept_parts(wanted, arch, kind, "none").values()) for kind in ("dense", "moe")}
    found = stage_activations(wanted, arch, shape)
    beside = {kind: _gradients(wanted, arch, kind) for kind in ("dense", "moe")}
    kinds = shape.chunks[0].layers
    assert kinds == ("dense",) * dense + ("moe",) * (8 - dense)
    # at work with the one before it: the last layer, and any other when that one is over
    pairs = [(kinds[i], sizes[kinds[i]] + (sizes[kinds[i - 1]] if i else 0.0)) for i in range(8)]
    assert sum(found.layer_backward.values()) == pytest.approx(
        max(pair + beside[kind] for kind, pair in pairs) - sizes["moe"]
    )


def test_what_stays_and_comes_back_is_what_a_replay_holds() -> None:
    arch, fabric = replace(MOE, expert_layers=(0, 1, 5)), machine(4).network.fabric
    again = {"recompute": "selective", "recompute_modules": ("moe",), "schedule": "gpipe"}
    wanted = job(
        gpus=32, sequence=4096, batch=64, pipeline=2, zero=3, offload=("activations",), **again
    ).model_copy(update={"software": "megatron-2026"})
    # stages of layers of experts in front of dense ones, 10 % too much where each kind's most was taken
    for stage in peak_memory(wanted, arch, fabric, 80e9).stages:
        found = cached(wanted, arch, fabric, stage.stage)
        assert found is not None
        assert stage.total - stage.parts[SYSTEM] == pytest.approx(found.allocated, rel=0.03)
