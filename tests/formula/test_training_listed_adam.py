"""`unfused: [optimizer]`: PyTorch's AdamW without a kernel of its own, operation by operation.

It holds a number for every weight beside the states, and moves every one twenty times.
"""

from __future__ import annotations

import pytest

from railwright.model import count_parameters, optimizer_bytes
from railwright.spec.training import TrainingJob
from railwright.training.checks.doubts import doubts
from railwright.training.layers.stages import stage_shapes
from railwright.training.memory.peak import peak_memory
from railwright.training.memory.states import JOINED, ROOTS, state_parts
from railwright.training.optimizer.adam import adam_types
from training_cases import DENSE, changed, job, machine

PARAMETERS = float(count_parameters(DENSE).total)
RANKS = 32


def listed(zero: int = 3, **asked: object) -> TrainingJob:
    return changed(
        job(zero=zero, batch=128), **({"software": "fsdp-2024-eager", "unfused": ("optimizer",)} | asked)
    )


def states(one: TrainingJob, ranks: int = RANKS) -> dict[str, float]:
    (shape,) = stage_shapes(DENSE, one.layout, one.lora)
    return state_parts(one, DENSE, shape, ranks)


@pytest.mark.parametrize(("master", "width"), [("fp32", 4), ("none", 2)])
def test_roots_have_the_type_of_the_moments(master: str, width: int) -> None:
    assert states(listed(master=master))[ROOTS] == pytest.approx(width * PARAMETERS / RANKS)
    assert ROOTS not in states(listed(master=master, unfused=()))


def test_a_copy_of_the_model_on_each_gpu_has_a_root_of_every_weight() -> None:
    """Weights, gradients, two moments and roots of 2 bytes each, as 67.46 GiB of Mistral 7B on an A100."""
    one = listed(zero=0, gpus=1, global_batch=1, master="none")
    memory = peak_memory(one, DENSE, machine(1).network.fabric, 80e9)
    assert memory.stages[0].moment == "optimizer step"
    held = sum(memory.parts[name] for name in ("weights", "gradients", "optimizer states", ROOTS))
    assert held == pytest.approx(10 * PARAMETERS)


def test_deepspeed_takes_roots_of_what_it_updates_at_once() -> None:
    """ZeRO-3 of a group of a billion parameters of a rank's own, at most; ZeRO-2 frees half as many bytes of
    gradients before, which it had joined in as many."""
    assert states(listed(software="deepspeed-2024"))[ROOTS] == pytest.approx(4 * PARAMETERS / RANKS)
    joined = states(listed(zero=2, software="deepspeed-2024"))
    assert joined[ROOTS] == 0.0
    assert joined[JOINED] == pytest.approx(2 * PARAMETERS / RANKS)


@pytest.mark.parametrize(("master", "moved", "fused"), [("fp32", 92, 40), ("none", 46, 20)])
def test_every_number_is_moved_twenty_times(master: str, moved: float, fused: float) -> None:
    """Beside the norm and the clipping of gradients, three passes over these."""
    assert optimizer_bytes(1.0, adam_types(listed(master=master))) == moved
    assert optimizer_bytes(1.0, adam_types(listed(master=master, unfused=()))) == fused


@pytest.mark.parametrize(
    "asked", [{"software": "megatron-2025"}, {"moment_dtype": "fp8"}], ids=["another Adam", "8-bit Adam"]
)
def test_other_optimizers_have_kernels_of_their_own(asked: dict[str, object]) -> None:
    one = listed(**asked)
    assert ROOTS not in states(one)
    assert any("unfused optimizer does nothing" in said for said in doubts(one, DENSE, 4))
