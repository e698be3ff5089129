"""Parts of layers that run again send what they send, and no other communication of a step is repeated."""

from __future__ import annotations

from collections import Counter

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from search_cases import ALTERNATING, LATENT
from training_cases import BLOCKS, DELTA, DENSE, KIMI, MIXED, MOE, changed, job, machine, priced, roofline

SENDS: dict[str, tuple[str, ...]] = {
    "core_attn": ("cp",),
    "layernorm": (),
    "mla_up_proj": ("tp all-gather",),
    "mlp": ("tp",),
    "moe": ("tp", "expert tp", "ep"),
    "moe_act": (),
    "shared_experts": ("tp",),
    "ops": ("tp all-gather again",),
}
"""What a part sends, by the first words of its purpose (docs/training/layouts.md, recomputation)."""


@st.composite
def jobs(draw: st.DrawFn) -> tuple[TrainingJob, Transformer]:
    """Layouts on 32 GPUs of which nothing is computed again."""
    arch = draw(st.sampled_from([DENSE, MOE, ALTERNATING, LATENT, BLOCKS, DELTA, KIMI, MIXED]))
    tensor, context = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 4]))
    pipeline = draw(st.sampled_from([1, 2]))
    software = draw(st.sampled_from(["megatron-2025", "fsdp-2024-eager", "fsdp-2025", "xla-2025"]))
    one = job(
        batch=64,
        tensor=tensor,
        context=context,
        context_kind=draw(st.sampled_from(["ring", "all-to-all", "all-gather"])),
        pipeline=pipeline,
        expert=draw(st.sampled_from([1, 2, 4])) if arch.is_moe else 1,
        sequence_parallel=draw(st.booleans()),
        zero=1 if software.startswith("megatron") else 3,
        schedule=draw(st.sampled_from(["auto", "gpipe"])) if pipeline > 1 else "auto",
    )
    return changed(one, software=software), arch


def counts(wanted: TrainingJob, arch: Transformer) -> Counter[str]:
    """Collectives of a step by purpose, on the first stage."""
    on = {"predict": priced(50e9), "kernel": roofline, "stage": 0, "most_events": 0}
    step = simulate(wanted, arch, machine(4), **on)  # type: ignore[arg-type]
    return Counter({one.purpose: one.count for one in step.collectives})


@settings(max_examples=80)
@given(jobs(), st.sampled_from(sorted(SENDS)))
def test_a_part_that_runs_again_sends_its_own_and_nothing_else(
    drawn: tuple[TrainingJob, Transformer], part: str
) -> None:
    wanted, arch = drawn
    again = {"recompute": "selective", "recompute_modules": (part,)}
    try:
        plain = counts(wanted, arch)
        found = counts(changed(wanted, layout=wanted.layout.model_copy(update=again)), arch)
    except PlanError:
        assume(False)
    assert not plain - found, "nothing is sent less often"
    assert all(purpose.startswith(SENDS[part]) for purpose in found - plain)
