"""What a step gains by cuDNN's attention in FlashAttention-2's place, as PyTorch chooses it since 2.11.

pytorch/torchtitan, issue 1042 (April 2025): Llama 3 8B cut to 14 layers on two H100, one sequence of 8,192
tokens each, nothing computed again, PyTorch 2.7.0.dev20250310: "a ~10% e2e improvement"; whether compiled is
not said.  Scored before any era had cuDNN's kernels; nothing was fitted to it.
Rules: sharded by FSDP2, Llama's positions as torchtitan turns them; 8 to 12 % count as "~10 %".
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from railwright.measure.machines import published_machine
from railwright.model import load_model
from railwright.spec.training import Software, TrainingJob
from railwright.training import simulate
from railwright.training.software.eras import eras

THUNDER: dict[str, object] = {
    "name": "pull request 940", "model": "llama-2-7b", "gpus": 8, "tokens": 1e12, "master": "none",
    "sequence": 4096, "global_batch": 8, "micro_batch": 1, "software": "fsdp-2024",
    "layout": {"zero": 3, "reshard": False},
}  # fmt: skip
EAGER = ("rotary", "norm", "activation")
SUCCEEDED = [(name, era.like) for name, era in eras().items() if era.like]


def seconds(software: Software, gpu: str = "H100", backend: str | None = None) -> float:
    compiled = eras()[software].launcher == "inductor"
    fields = {
        "name": "issue 1042", "model": "llama-3-8b", "gpus": 2, "tokens": 1e12, "layout": {"zero": 3},
        "sequence": 8192, "global_batch": 2, "micro_batch": 1, "software": software,
        "unfused": ("rotary",) if compiled else EAGER, "attention_backend": backend,
    }  # fmt: skip
    arch = replace(load_model("llama-3-8b"), layers=14)
    machine = published_machine(gpu, 2, 400)
    return simulate(TrainingJob.model_validate(fields), arch, machine, must_fit=False).step_time


@pytest.mark.parametrize(
    ("software", "gain"), [("fsdp-2024-eager", 8.9), ("fsdp-2024", 10.6), ("fsdp-2025", 10.3)]
)
def test_what_cudnns_attention_gains_on_h100(software: Software, gain: float) -> None:
    """[%]"""
    found = 100 * (seconds(software, backend="flash") / seconds(software, backend="fused") - 1)
    assert found == pytest.approx(gain, abs=0.2)
    assert 8 < found < 12


def test_what_it_gains_thunders_7b() -> None:
    """lightning-thunder, pull request 940 (August 2024): FSDP2 of Llama 2 7B on 8 H100 under torch.compile
    with Thunder, 11,946.70 tokens a second of a GPU, with cuDNN's attention 12,493.36: 4.6 % more, which says
    too that PyTorch's own choice there was FlashAttention-2."""
    arch, machine = load_model("llama-2-7b"), published_machine("H100", 8, 400)
    jobs = [TrainingJob.model_validate(THUNDER | {"attention_backend": b}) for b in ("flash", "fused")]
    flash, fused = (simulate(job, arch, machine, must_fit=False).step_time for job in jobs)
    assert 100 * (flash / fused - 1) == pytest.approx(8.0, abs=0.2)  # 3 points more than measured


@pytest.mark.parametrize(("software", "older"), SUCCEEDED)
def test_an_era_of_2026_is_its_elder_with_that_attention(software: Software, older: Software) -> None:
    assert seconds(software) == seconds(older, backend="fused") < seconds(older)
    assert eras()[software].pace == eras()[older].pace


@pytest.mark.parametrize(("software", "older"), SUCCEEDED)
def test_elsewhere_both_run_one_kernel(software: Software, older: Software) -> None:
    """PyTorch prefers cuDNN's on compute capability 9.0 and 10 alone."""
    assert seconds(software, "A100") == seconds(older, "A100")


@pytest.mark.parametrize(("backend", "measured", "off"), [("flash", 10_902, -8.3), ("fused", 12_211, -3.1)])
def test_torchtitans_8b_on_b200(backend: str, measured: float, off: float) -> None:
    """Its pull request 1196 (May 2025): tokens a second of a GPU before and after cuDNN's attention.

    Llama 3 8B by its FLOPs a token; what its llama3_8b.toml had then: one sequence of 8,192 tokens, a
    checkpoint by operators, nothing compiled.  Its cuDNN is not known, the row's is 9.19; FlashAttention-2's
    row was made of kernels alone.  [%]"""
    layout = {"zero": 3, "recompute": "selective", "recompute_modules": ("ops",)}
    fields = {
        "name": "pull request 1196", "model": "llama-3-8b", "gpus": 8, "tokens": 1e12, "layout": layout,
        "sequence": 8192, "global_batch": 8, "micro_batch": 1, "software": "fsdp-2024-eager",
        "unfused": EAGER, "attention_backend": backend,
    }  # fmt: skip
    machine = published_machine("B200", 8, 400)
    step = simulate(TrainingJob.model_validate(fields), load_model("llama-3-8b"), machine)
    assert 100 * (step.tokens_per_second_per_gpu / measured - 1) == pytest.approx(off, abs=0.3)


def test_all_pytorch_eras_with_a_compiled_loss_or_none_have_a_successor() -> None:
    without = {"fsdp-2023", "fsdp-2024"}  # Triton's attention; a loss that is not compiled
    named = {name for name in get_args(Software) if name.startswith(("fsdp", "deepspeed"))}
    assert named - without == {name for pair in SUCCEEDED for name in pair}
