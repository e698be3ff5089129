"""`master: none`: PyTorch's FSDP of weights that were loaded in 16 bits, with nothing wider beside them.

Weights, gradients and moments have 2 bytes (torch.optim.AdamW makes moments like the parameter), as torchtune
trains with `dtype: bf16` and torchtitan with `training.dtype = "bfloat16"`.
"""

from __future__ import annotations

import pytest

from railwright.errors import PlanError
from railwright.model import count_parameters, optimizer_bytes
from railwright.reliability.checkpointing import checkpoint_size
from railwright.spec.training import Layout, TrainingJob
from railwright.training import simulate
from railwright.training.layers.communication import gradient_type
from railwright.training.layers.stages import stage_shapes
from railwright.training.memory.peak import peak_memory
from railwright.training.memory.states import state_parts
from railwright.training.optimizer.adam import adam_types
from railwright.training.software.formats import check_formats
from training_cases import DENSE, changed, job, machine, priced, roofline

PARAMETERS = float(count_parameters(DENSE).total)


def sharded(**asked: object) -> TrainingJob:
    return changed(job(zero=3, batch=128), **({"software": "fsdp-2025", "master": "none"} | asked))


def states(one: TrainingJob, ranks: int = 32) -> dict[str, float]:
    (shape,) = stage_shapes(DENSE, one.layout, one.lora)
    return state_parts(one, DENSE, shape, ranks)


@pytest.mark.parametrize("ranks", [1, 32])
def test_a_rank_keeps_eight_bytes_of_each_parameter_of_its_shard(ranks: int) -> None:
    """2 of the weight, 2 of its gradient, 2 of each moment; 16 with fp32 shards."""
    narrow, wide = states(sharded(), ranks), states(sharded(master="fp32"), ranks)
    kept = [("weights", 2), ("gradients", 2), ("optimizer states", 4)]
    assert [narrow[name] for name, _ in kept] == pytest.approx([b * PARAMETERS / ranks for _, b in kept])
    assert sum(wide[name] for name, _ in kept) == pytest.approx(2 * sum(narrow[name] for name, _ in kept))


def test_moments_in_eight_bits_stay_so() -> None:
    assert states(sharded(moment_dtype="fp8"))["optimizer states"] == pytest.approx(2 * PARAMETERS / 32)


def test_adam_moves_half_of_what_fp32_shards_take() -> None:
    """Norm 2; clipped 4; gradient 2, weight 4, moments 8: 20 bytes, beside 40."""
    assert optimizer_bytes(1.0, adam_types(sharded())) == 20
    assert optimizer_bytes(1.0, adam_types(sharded(master="fp32"))) == 40


def test_gradients_are_reduced_in_the_type_of_the_weights_unless_told_otherwise() -> None:
    assert gradient_type(sharded()) == "bf16"
    assert gradient_type(sharded(gradient_dtype="fp32")) == "fp32"


def test_a_step_is_shorter_and_a_checkpoint_smaller() -> None:
    narrow, wide = (
        simulate(one, DENSE, machine(4), predict=priced(50e9), kernel=roofline).step_time
        for one in (sharded(), sharded(master="fp32"))
    )
    assert narrow < wide
    assert checkpoint_size(sharded(), DENSE) == 6 * PARAMETERS


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"software": "megatron-2025"}, "master none is of PyTorch's own"),
        ({"software": "deepspeed-2024"}, "keeps master weights"),
        ({"dtype": "fp16"}, "Set dtype to bf16"),
    ],
)
def test_what_keeps_master_weights_is_refused(asked: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        check_formats(sharded(**asked))


@pytest.mark.parametrize("where", ["optimizer", "weights"])
def test_adam_on_the_host_is_refused(where: str) -> None:
    one = sharded()
    with pytest.raises(PlanError, match="Adam on the host"):
        check_formats(changed(one, layout=changed(one.layout, offload=(where,))))


def test_one_gpu_trains_weights_of_16_bits_whole() -> None:
    """As torchtune's full_finetune_single_device; gradients are made anew where a step has one microbatch."""
    (one, two) = (changed(sharded(gpus=1, global_batch=n), layout=Layout(zero=0)) for n in (1, 2))
    check_formats(one)
    parts = states(one, 1)
    kept = [("weights", 2), ("gradients", 2), ("optimizer states", 4)]
    assert [parts[name] for name, _ in kept] == pytest.approx([b * PARAMETERS for _, b in kept])
    alone, again = (
        peak_memory(each, DENSE, machine(1).network.fabric, 80e9).stages[0] for each in (one, two)
    )
    assert again.parts["gradients"] == pytest.approx(2 * PARAMETERS)
    assert alone.total <= again.total
    assert "gradients" not in alone.parts or alone.moment != "head backward"
