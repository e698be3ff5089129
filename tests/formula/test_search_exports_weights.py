"""In which types Megatron-LM and NeMo are told to keep weights, and what else must agree with that."""

from __future__ import annotations

from typing import Any

import pytest

from export_cases import exported
from training_cases import DENSE, changed, job

GATHERS, REUSES = "--fp8-param-gather", "--reuse-grad-buf-for-mxfp8-param-ag"


@pytest.mark.parametrize(
    ("dtype", "layout", "written"),
    [
        ("mxfp8", {"zero": 1}, [GATHERS, REUSES]),
        ("mxfp8", {"zero": 2}, [GATHERS]),  # Megatron-FSDP gathers in buffers of its own
        ("mxfp8", {"zero": 3}, []),  # shards have 16 bits
        ("fp8", {"zero": 1}, [GATHERS]),
        ("fp8", {"zero": 0}, []),
        ("mxfp8", {"zero": 1, "offload": ("optimizer",)}, []),
        ("fp8_block", {"zero": 1}, []),
        ("nvfp4", {"zero": 1}, []),
        ("bf16", {"zero": 1}, []),
    ],
    ids=str,
)
def test_weights_that_are_predicted_in_eight_bits_are_kept_so(
    dtype: str, layout: dict[str, Any], written: list[str]
) -> None:
    """Else Megatron keeps 16 bits beside both copies in 8 (MXFP8: 4.06 bytes a weight, not 2.06)."""
    case = (DENSE, changed(job(**layout), dtype=dtype))
    lines = exported(case, "megatron").splitlines()
    assert [line for line in lines if line in (GATHERS, REUSES)] == written
    fields = exported(case, "nemo")
    assert fields.count("fp8_param=True") == fields.count("fp8_param_gather=True") == (GATHERS in written)
    # of the gradients' buffer, which the optimizer fills
    assert fields.count("reuse_grad_buf_for_mxfp8_param_ag=True") == 2 * (REUSES in written)


@pytest.mark.parametrize("dtype", ["fp8", "mxfp8"])
def test_weights_that_shall_have_sixteen_bits_beside_are_left_so(dtype: str) -> None:
    case = (DENSE, changed(job(), dtype=dtype, fp8_param_gather=False))
    assert not {GATHERS, REUSES} & set(exported(case, "megatron").splitlines())
    assert "fp8_param=" not in (nemo := exported(case, "nemo"))
    assert "fp8_param_gather=" not in nemo


def test_one_rank_has_the_distributed_optimizer_for_weights_in_eight_bits() -> None:
    alone = exported((DENSE, changed(job(tensor=8, pipeline=2, zero=0), dtype="mxfp8")), "megatron")
    assert "--use-distributed-optimizer" in alone.splitlines()
    assert GATHERS in alone.splitlines()


def test_nemos_optimizer_knows_the_recipe_that_decides_who_casts() -> None:
    """optimizer_config.py: without one narrow states are taken for those of weights in 16 bits."""
    narrow = changed(job(), dtype="mxfp8", moment_dtype="bf16")
    assert exported((DENSE, narrow), "nemo").count("fp8_recipe='mxfp8'") == 2
    assert exported((DENSE, changed(job(), dtype="mxfp8")), "nemo").count("fp8_recipe='mxfp8'") == 1


def test_nemo_says_what_of_a_recipe_overwrites_its_fields() -> None:
    """Megatron-Bridge, mixed_precision.py and comm_overlap.py: both are applied over model and ddp."""
    text = exported((DENSE, job()), "nemo")
    assert "Megatron-Bridge's mixed_precision overwrite the fields below" in text
    assert "Megatron-Bridge's comm_overlap do so too" in text


def test_ranks_collect_pythons_garbage_together() -> None:
    """Megatron-LM's default leaves it to each rank, for which the others then wait: not predicted."""
    lines = exported((DENSE, job()), "megatron").splitlines()
    assert lines[lines.index("--manual-gc") + 1] == "--manual-gc-interval 100"
    assert "GarbageCollectionCallback(100, 100)" in exported((DENSE, job()), "nemo")
    of_2022 = exported((DENSE, changed(job(zero=0), software="megatron-2022")), "megatron")
    assert "--manual-gc, --manual-gc-interval" in of_2022.partition("does not know them: ")[2]
