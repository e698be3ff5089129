"""What a job asks to hide and Megatron-LM does not is told; the step is predicted as asked."""

from __future__ import annotations

import pytest

from railwright.model.shape.architecture import Transformer
from railwright.spec.lora import Lora
from railwright.spec.training import Overlap, TrainingJob
from railwright.training.checks.doubts import doubts
from railwright.training.layers.unhidden import of_megatron
from railwright.training.software.narrow_weights import of_weights
from search_cases import HYBRID, LATENT_EXPERTS
from training_cases import DENSE, MOE, changed, job

TP, EP, BOTH = Overlap(tp=True), Overlap(ep=True), Overlap(tp=True, ep=True)
SP = {"tensor": 2, "sequence_parallel": True}
PRODUCTS = "overlap.tp is predicted as asked, but Megatron-LM has no tp_comm_overlap "
TURNS = "overlap.ep is predicted as asked, but Megatron-LM has no overlap_moe_expert_parallel_comm "


@pytest.mark.parametrize(
    ("arch", "wanted", "told"),
    [
        (DENSE, job(tensor=2, overlap=TP), [PRODUCTS + "without sequence parallelism."]),
        (LATENT_EXPERTS, job(**SP, overlap=TP), [PRODUCTS + "beside latent attention."]),
        (
            LATENT_EXPERTS,
            job(tensor=2, overlap=TP),
            [PRODUCTS + "without sequence parallelism or beside latent attention."],
        ),
        (MOE, job(expert=4, recompute="full", overlap=EP), [TURNS + "where experts are computed again."]),
        (MOE, job(expert=4, **SP, overlap=BOTH), [TURNS + "beside hidden tensor parallelism."]),
        (
            MOE,
            job(expert=2, pipeline=2, virtual_pipeline=2, zero=2, overlap=EP),
            [TURNS + "in virtual stages beside zero 2 and 3."],
        ),
        (HYBRID, job(expert=4, overlap=EP), [TURNS + "in a model of pretrain_hybrid.py."]),
    ],
    ids=["split", "latent", "split, latent", "recomputed", "both", "sharded", "hybrid"],
)
def test_what_megatron_does_not_hide_is_told(arch: Transformer, wanted: TrainingJob, told: list[str]) -> None:
    assert [one for one in doubts(wanted, arch, 8) if "as asked" in one] == told


@pytest.mark.parametrize(
    ("arch", "wanted"),
    [
        (DENSE, job(**SP, overlap=TP)),
        (DENSE, job(overlap=TP)),  # nothing to hide, which another sentence says
        (MOE, job(expert=4, overlap=EP)),
        (MOE, job(expert=4, pipeline=2, overlap=EP)),  # nothing is predicted as hidden
        (LATENT_EXPERTS, job(expert=4, **SP, overlap=EP)),
        (DENSE, changed(job(tensor=2, overlap=TP), software="fsdp-2025")),
    ],
    ids=["products", "no tensor", "turns", "stages", "latent", "torchtitan"],
)
def test_what_it_hides_and_what_others_do_is_not(arch: Transformer, wanted: TrainingJob) -> None:
    assert not of_megatron(wanted, arch)


@pytest.mark.parametrize(
    ("wanted", "copies", "told"),
    [
        (changed(job(zero=0), dtype="mxfp8"), 8, "without the distributed optimizer: 2 bytes a weight more"),
        (changed(job(zero=0), dtype="mxfp8"), 1, ""),
        (changed(job(zero=1), dtype="mxfp8"), 8, ""),
        (changed(job(offload=("optimizer",)), dtype="mxfp8"), 8, "beside an offloaded optimizer, unless"),
        (changed(job(zero=0), dtype="fp8_block"), 8, ""),
        (changed(job(zero=0), dtype="fp8", software="fsdp-2025"), 8, ""),
        (changed(job(zero=0), dtype="fp8", lora=Lora(rank=8)), 8, ""),
        (changed(job(zero=0), dtype="fp8", fp8_param_gather=False), 8, ""),
        (changed(job(zero=0), dtype="fp8", fp8_param_gather=True), 8, "2 bytes a weight more"),
        (changed(job(), dtype="bf16", fp8_param_gather=True), 8, "fp8_param_gather does nothing: only under"),
        (changed(job(zero=3), dtype="fp8", fp8_param_gather=False), 8, "fp8_param_gather does nothing"),
        (changed(job(), dtype="fp8", fp8_param_gather=True, software="fsdp-2025"), 8, "does nothing"),
    ],
    ids=[
        *("zero 0", "one copy", "zero 1", "offloaded", "blocks", "torchtitan", "adapters", "wanted so"),
        *("asked for otherwise", "16 bits alone", "shards", "torchtitan asked"),
    ],
)
def test_weights_that_megatron_keeps_in_16_bits_too_are_told(
    wanted: TrainingJob, copies: int, told: str
) -> None:
    """arguments.py: --fp8-param-gather wants the distributed optimizer, on the GPU."""
    found = of_weights(wanted, copies)
    assert len(found) == bool(told)
    assert all(told in sentence for sentence in found)


def test_a_job_is_told_of_its_weights() -> None:
    wanted = changed(job(batch=64, zero=0), dtype="mxfp8")
    assert any("weights have 16 bits beside those in mxfp8" in one for one in doubts(wanted, DENSE, 8))
    assert "Set layout.zero to 1." in of_weights(wanted, 8)[0]
