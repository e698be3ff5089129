"""Model FLOPs of a job: what its training needs, with all weights trained or with adapters alone."""

from __future__ import annotations

import pytest

from railwright.model import flops_per_token
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.flops import product_macs
from railwright.spec.lora import Lora
from railwright.training import simulate
from railwright.training.demand.model_flops import job_flops_per_token
from railwright.training.layers.operators import operators_of
from training_cases import BLOCKS, DELTA, DENSE, KIMI, MOE, changed, job, machine, priced, roofline

ATTENTION = 1024 * (16 + 2 * 4) * 64 + 1024 * 1024
MLP = 3 * 1024 * 4096
HEAD = 1024 * 32000
QKV = Lora(rank=8, targets=("qkv",))


def test_weights_that_a_token_meets() -> None:
    """8 layers of queries, keys, values, output and a gated MLP; of 8 experts a token visits 2."""
    assert product_macs(DENSE) == 8 * (ATTENTION + MLP) + HEAD
    assert product_macs(MOE) == 8 * (ATTENTION + 2 * MLP + 8 * 1024) + HEAD


@pytest.mark.parametrize("arch", [DENSE, MOE, BLOCKS, DELTA, KIMI], ids=lambda arch: arch.name)
def test_all_weights_are_six_each_beside_scores_and_states(arch: Transformer) -> None:
    """What the closed form counts beside products does not hang on the weights: three times forward."""
    whole = flops_per_token(arch, 1024)
    assert job_flops_per_token(job(), arch) == whole.total
    beside = whole.forward - 2 * product_macs(arch)
    assert beside > 0
    assert whole.total == pytest.approx(6 * product_macs(arch) + 3 * beside)


def test_a_frozen_weight_counts_four_and_an_adapters_six() -> None:
    # rank 8 beside queries, keys and values: 8 * (1024 inputs + 1536 outputs) weights in each of 8 layers
    adapters = 8 * 8 * (1024 + 1536)
    scores = 3 * 8 * 4 * 1024 * 16 * 64
    wanted = changed(job(), lora=QKV)
    assert job_flops_per_token(wanted, DENSE) == 4 * product_macs(DENSE) + 6 * adapters + scores


@pytest.mark.parametrize("lora", [None, QKV, Lora(rank=16)])
def test_they_are_the_products_that_run(lora: Lora | None) -> None:
    wanted = changed(job(), lora=lora)
    ran = operators_of(wanted, DENSE, "dense", machine().gpu)
    lists = (ran.forward, ran.backward_input, ran.backward_weight)
    products = sum(op.flops for ops in lists for op in ops if op.kind == "gemm")
    scores = 3 * 8 * 4 * 1024 * 16 * 64
    head = (4 if lora else 6) * HEAD
    rows = wanted.micro_batch * wanted.sequence
    assert 8 * products / rows == pytest.approx(job_flops_per_token(wanted, DENSE) - scores - head)


def test_utilisation_is_made_with_them() -> None:
    """With the FLOPs of full training, utilisation of adapters would be up to half as much again."""
    full, thin = (
        simulate(changed(job(), lora=lora), DENSE, machine(), predict=priced(50e9), kernel=roofline)
        for lora in (None, QKV)
    )
    assert thin.model_flops / full.model_flops == pytest.approx(0.69, abs=0.02)
    assert thin.mfu * thin.step_time / full.mfu / full.step_time == pytest.approx(
        thin.model_flops / full.model_flops
    )
    assert not any("utilisation" in warning for warning in thin.warnings)
