"""What checks of a layout say that they read: no other one's answer changes with a field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.errors import PlanError
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.training.checks.plan import CHECKS, READ, READING
from training_cases import DENSE, LATENTS, MOE, job, machine

FABRIC = machine(servers=4).network.fabric

VALUES: dict[str, tuple[Any, ...]] = {
    "micro_batch": (1, 2, 3, 8),
    "sequence_parallel": (False, True),
    "recompute": ("none", "selective", "full"),
    "zero": (0, 1, 2, 3),
    "offload": ((), ("optimizer",), ("activations",), ("weights", "activations")),
    "overlap": tuple(
        Overlap(tp=tp, ep=ep, dp=dp, pp=dp)
        for tp in (False, True)
        for ep in (False, True)
        for dp in (False, True)
    ),
}
LAYOUTS = st.fixed_dictionaries(
    {
        "tensor": st.sampled_from([1, 2, 4]),
        "pipeline": st.sampled_from([1, 2, 4]),
        "context": st.sampled_from([1, 2]),
        "virtual_pipeline": st.sampled_from([1, 2]),
        "schedule": st.sampled_from(["auto", "1f1b", "zb-h1", "zb-v", "dualpipe", "gpipe"]),
        "expert": st.sampled_from([1, 2, 8]),
        "shard": st.sampled_from([None, 2, 3]),
        "recompute_layers": st.sampled_from([None, 1, 99]),
    }
)


def with_field(one: TrainingJob, field: str, value: Any) -> TrainingJob:
    if field in Layout.model_fields:
        return one.model_copy(update={"layout": one.layout.model_copy(update={field: value})})
    return one.model_copy(update={field: value})


def answers(one: TrainingJob, arch: Any) -> dict[str, str]:
    """What every check says; '' where it accepts."""
    said = {}
    for check in CHECKS:
        try:
            check.refuse(one, arch, FABRIC)
        except PlanError as no:
            said[check.name] = str(no)
        else:
            said[check.name] = ""
    return said


@pytest.mark.parametrize("field", READ)
@settings(max_examples=60)
@given(data=st.data())
def test_a_field_changes_no_check_that_does_not_say_it_reads_it(field: str, data: Any) -> None:
    arch = data.draw(st.sampled_from([DENSE, MOE, LATENTS]))
    first = job().model_copy(
        update={
            "layout": Layout(**data.draw(LAYOUTS)),
            "optimizer": data.draw(st.sampled_from(["adam", "muon"])),
            "software": data.draw(st.sampled_from(["megatron-2025", "fsdp-2025", "megatron-2021"])),
            "launch_blocking": data.draw(st.booleans()),
            "global_batch": data.draw(st.sampled_from([7, 32, 64])),
        }
    )
    for other in READ:
        first = with_field(first, other, data.draw(st.sampled_from(VALUES[other])))
    second = with_field(first, field, data.draw(st.sampled_from(VALUES[field])))
    before, after = answers(first, arch), answers(second, arch)
    assert {name for name in before if before[name] != after[name]} <= {one.name for one in READING[field]}


@pytest.mark.parametrize("field", [f for f in READ if f != "sequence_parallel"])
def test_every_field_but_sequence_parallelism_is_read_by_some_check(field: str) -> None:
    assert READING[field]
