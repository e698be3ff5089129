"""What Megatron-LM had not yet in the years of a job's software: settings, and names of arguments.

Exports are written for the release that was read, of today; software of earlier years takes what it had.
Names of arguments are in data/later.yaml.  Source of the rest: NVIDIA/Megatron-LM, where these were merged:
--use-custom-fsdp, today's Megatron-FSDP, 2025-02-26 (core 0.11), --optimizer-cpu-offload 2025-02-14 (0.12),
--recompute-modules 2025-04-05 (0.12), overlap_moe_expert_parallel_comm 2025-08-01 (0.14);
--overlap-grad-reduce 2023-08-16, --expert-model-parallel-size 2023-10-06, --context-parallel-size 2023-10-12,
--tp-comm-overlap 2023-10-23.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from railwright.shipped import read_data
from railwright.spec.training import Software, TrainingJob

OF_2022: tuple[Software, ...] = ("megatron-2021", "megatron-2021-traced", "megatron-2022")
OF_2024: tuple[Software, ...] = ("nemo-2024",)
"""Eras by the last year of Megatron-LM that they stand for."""

Asks = Callable[[Mapping[str, Any]], bool]
LATER: tuple[tuple[str, Asks, tuple[Software, ...]], ...] = (
    ("zero 2 and 3 (Megatron-FSDP, of 2025)", lambda s: s["zero"] >= 2, OF_2024 + OF_2022),
    (
        "hidden expert all-to-alls (of 2025)",
        lambda s: bool(s["overlap_ep"] and s["expert"] > 1),
        OF_2024 + OF_2022,
    ),
    ("optimizer states on the host (of 2025)", lambda s: "optimizer" in s["offload"], OF_2024 + OF_2022),
    ("context parallelism (of 2023)", lambda s: s["context"] > 1, OF_2022),
    ("expert parallelism (of 2023)", lambda s: s["expert"] > 1, OF_2022),
    ("hidden tensor parallelism (of 2023)", lambda s: bool(s["overlap_tp"] and s["tensor"] > 1), OF_2022),
    (
        "hidden reductions of gradients (of 2023)",
        lambda s: bool(s["overlap_dp"] and s["copies"] > 1),
        OF_2022,
    ),
)
"""What a layout asks for, when it does, and the eras before it."""


def not_yet(setting: Mapping[str, Any], job: TrainingJob) -> list[str]:
    """What of a layout the software of a job's years had not, in words."""
    found = [words for words, asks, eras in LATER if job.software in eras and asks(setting)]
    modules = [name for name in job.layout.recompute_modules if name != "core_attn"]
    if setting["recompute"] == "selective" and modules and job.software in OF_2024 + OF_2022:
        found.append(f"recomputation of {' and '.join(modules)} (of 2025)")
    return [f"{words}, later than {job.software}" for words in found]


def newer(job: TrainingJob, lines: Sequence[str]) -> list[str]:
    """A sentence that names the arguments among some lines which a job's software has not yet."""
    absent = _absent(job.software)
    names = [line.split()[0].removeprefix("--") for line in lines if line.startswith("--")]
    late = dict.fromkeys(f"--{name}" for name in names if name in absent)
    if not late:
        return []
    return [f"later than {job.software}, whose Megatron-LM does not know them: {', '.join(late)}"]


def newer_fields(job: TrainingJob) -> list[str]:
    """The same of fields of configurations, unnamed."""
    if job.software not in OF_2024 + OF_2022:
        return []
    return [f"fields are those of Megatron-LM core 0.19; that of {job.software} does not know all of them"]


@cache
def _absent(software: Software) -> frozenset[str]:
    """Arguments that the software of an era has not; without their dashes."""
    if software not in OF_2024 + OF_2022:
        return frozenset()
    names = read_data("search", "later.yaml")
    return frozenset(names["after_2024"] + (names["after_2022"] if software in OF_2022 else []))
