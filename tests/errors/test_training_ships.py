"""A pipeline schedule that the job's software does not ship is told, and so is one without stages."""

from __future__ import annotations

import pytest

from railwright.search.training.frameworks import FRAMEWORKS
from railwright.spec.training import TrainingJob
from railwright.training.checks.doubts import doubts
from railwright.training.checks.ships import of_schedule, shipped
from railwright.training.layout.schedule import FOLDED
from railwright.training.software.eras import eras
from training_cases import DENSE, MOE, job

SCHEDULES = ("1f1b", "interleaved", "gpipe", "zb-h1", "zb-v", "dualpipe", "dualpipe-v")


def staged(schedule: str, software: str = "megatron-2025", virtual: int = 1) -> TrainingJob:
    if schedule == "interleaved":
        virtual = 2
    wanted = job(pipeline=4, batch=64, schedule=schedule, virtual_pipeline=virtual)
    return wanted.model_copy(update={"software": software})


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1", "zb-v", "dualpipe", "dualpipe-v"])
def test_megatron_ships_two_schedules(schedule: str) -> None:
    (told,) = of_schedule(staged(schedule))
    assert told.startswith(
        f"software megatron-2025 does not ship schedule {schedule} (Megatron-LM: only 1f1b"
    )
    assert "the step is predicted as if it did; leave schedule at auto, or " in told
    assert told in doubts(staged(schedule), DENSE, 4)


@pytest.mark.parametrize("schedule", ["auto", "1f1b", "interleaved"])
def test_what_megatron_ships_is_not_told(schedule: str) -> None:
    assert not of_schedule(staged(schedule))


def test_who_ships_it_is_named() -> None:
    assert "name software that does (fsdp-2025, fsdp-2026)." in of_schedule(staged("dualpipe-v"))[0]
    assert "name software that does (fsdp-2024, fsdp-2025, fsdp-2026)." in of_schedule(staged("zb-v"))[0]
    assert "or use deepseek-ai/DualPipe." in of_schedule(staged("dualpipe"))[0]
    assert "sail-sg/zero-bubble-pipeline-parallelism" in of_schedule(staged("zb-h1"))[0]
    assert "set schedule to gpipe" in of_schedule(staged("1f1b", "xla-2025"))[0]


def test_software_without_pipelines() -> None:
    assert "which has no pipelines), and" in of_schedule(staged("auto", "fsdp-2023"))[0]
    assert "set pipeline to 1" in of_schedule(staged("auto", "fsdp-2023"))[0]


def test_nothing_is_said_of_software_nobody_looked_at() -> None:
    assert not of_schedule(staged("dualpipe", "xla-2024"))


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1", "zb-v", "dualpipe-v"])
def test_a_schedule_of_one_stage_is_told(schedule: str) -> None:
    (told,) = of_schedule(job(batch=64, schedule=schedule))
    does = "shortens nothing" if schedule in FOLDED else "does nothing"
    assert told.startswith(f"schedule {schedule} {does} while layout.pipeline is 1")


@pytest.mark.parametrize("schedule", ["auto", "1f1b"])
def test_the_schedule_of_one_stage_is_not(schedule: str) -> None:
    assert not of_schedule(job(batch=64, schedule=schedule))


@pytest.mark.parametrize(("framework", "era"), [("megatron", "megatron-2025"), ("torchtitan", "fsdp-2025")])
@pytest.mark.parametrize("virtual", [1, 2])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_search_knows_the_same_schedules(framework: str, era: str, virtual: int, schedule: str) -> None:
    if virtual > 1 and schedule not in ("interleaved", "zb-h1"):
        return
    wanted = staged(schedule, era, virtual)
    lacks = [lack for lack in FRAMEWORKS[framework].lacks(wanted, MOE, 8) if lack.startswith("schedule ")]
    assert bool(lacks) == bool(of_schedule(wanted))


def test_every_row_names_eras_and_schedules_that_exist() -> None:
    assert set(shipped()) <= set(eras())
    for row in shipped().values():
        assert {name.removesuffix(" interleaved") for name in row.schedules} <= set(SCHEDULES)
        assert row.source
