"""What PyTorch's asynchronous tensor parallelism leaves in the open (torch/_inductor/fx_passes/
micro_pipeline_tp.py): it hides a reduction behind the one product that makes what is reduced, and a gather
behind products that read it as it arrives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Overlap
from railwright.training import simulate
from railwright.training.layers.unhidden import casts_first, sums_first
from training_cases import DENSE, changed, job, machine, priced, roofline

PLAIN = replace(DENSE, gated=False)


EACH = 1e-6
"""What a collective takes, far less than the product beside it. [s]"""


def shown(arch: Transformer, software: str, dtype: str = "bf16") -> float:
    """How many whole collectives a layer's microbatch shows, of 8 that it sends: 4 forward, 4 backward."""
    wanted = job(tensor=4, batch=64, sequence_parallel=True, zero=3, overlap=Overlap(tp=True))
    one = changed(wanted, software=software, dtype=dtype)
    step = simulate(one, arch, machine(4), predict=priced(1e18, EACH), kernel=roofline, must_fit=False)
    [share] = [share for share in step.shares if share.kind == "tp"]
    return share.exposed / (8 * 8 * EACH)


@pytest.mark.parametrize(
    ("arch", "dtype", "software", "whole"),
    [
        (DENSE, "bf16", "megatron-2025", 0),
        # the gradient of the attention's input is three products added up, that of a gated MLP's two
        (DENSE, "bf16", "fsdp-2025", 2),
        (DENSE, "fp8", "fsdp-2024", 2),
        (PLAIN, "bf16", "fsdp-2025", 1),
        # scales per row: 4 gathers of 16 bits, cast behind
        (DENSE, "fp8_rowwise", "fsdp-2025", 6),
    ],
)
def test_what_is_in_the_open(arch: Transformer, dtype: str, software: str, whole: int) -> None:
    """Of what is hidden the last of four shards shows, of two forward reductions; of embedding and head at
    most three collectives for 8 layers."""
    assert whole + 2 / 4 <= shown(arch, software, dtype) < whole + 2 / 4 + 3 / 8 + 1e-3


def test_whose_reductions_and_gathers_they_are() -> None:
    titan = changed(job(), software="fsdp-2024", dtype="fp8_rowwise")
    megatron = changed(titan, software="megatron-2025")
    assert sums_first(titan, DENSE) == ("qkv projection", "mlp up", "shared expert up")
    assert sums_first(titan, PLAIN) == ("qkv projection",)
    assert sums_first(megatron, DENSE) == ()
    assert casts_first(titan)
    assert not casts_first(megatron)
    assert not casts_first(changed(titan, dtype="fp8"))
