"""Loading data: who reads what, counted rank by rank, and the wait of a step for it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.errors import PlanError, SpecError
from railwright.model.recommendation.dlrm import Recommender, load_recommender
from railwright.spec import load_study_text
from railwright.spec.dataset import Data
from railwright.spec.recommendation import RecommendationJob
from railwright.spec.training import TrainingJob
from railwright.study import run
from railwright.training import simulate
from railwright.training.checks.feed import feed_of, starving
from railwright.training.lanes.critical import critical_path
from railwright.training.lanes.result import Feed, StepResult
from railwright.training.layout.placement import place
from railwright.training.recommendation.dlrm import recommendation_warnings, simulate_recommendation
from training_cases import DENSE, job, machine

SERVERS, GPUS = 4, 8
"""Of `machine(4)`."""


def reading(base: TrainingJob, **data: object) -> TrainingJob:
    return base.model_copy(update={"data": Data.model_validate(data)})


def step(base: TrainingJob, **data: object) -> StepResult:
    return simulate(reading(base, **data), DENSE, machine(SERVERS))


def feed(base: TrainingJob, **data: object) -> Feed:
    asked = reading(base, **data)
    return feed_of(asked, DENSE, place(asked, machine(SERVERS).network.fabric))


@pytest.mark.parametrize(
    ("layout", "copies", "each"),
    [
        # sequences that all servers read over those of the batch; those of the busiest one, of 64
        ({}, 1, 16),  # 32 ranks read 2 sequences each
        ({"tensor": 8}, 1, 16),  # one rank of each server
        ({"tensor": 2, "context": 2}, 1, 16),  # both context ranks of a server read the same 8 times 2
        ({"tensor": 2, "context": 8}, 2, 32),  # 2 servers share each sequence, and both read it
        ({"tensor": 8, "pipeline": 2}, 2, 32),  # first and last stage, on 2 servers each
        ({"tensor": 8, "pipeline": 4}, 2, 64),  # the stages between read nothing
        ({"pipeline": 32}, 2, 64),  # one pipeline: its first and its last rank
        ({"pipeline": 2, "tensor": 16}, 2, 64),  # rank 0 of 16, on one server of a stage's two
    ],
)
def test_who_reads(layout: dict[str, int], copies: int, each: int) -> None:
    found = feed(job(gpus=32, batch=64, **layout), size="1 MB")
    assert found.read == copies * 64e6
    assert found.server == each * 1e6


def test_stages_on_one_server_read_a_sequence_once() -> None:
    one = job(gpus=8, batch=64, pipeline=8)
    assert feed(one, size="1 MB").read == 64e6


def test_a_folded_model_reads_on_its_first_stage_alone() -> None:
    both = job(gpus=32, batch=64, tensor=8, pipeline=4)
    folded = job(gpus=32, batch=64, tensor=8, pipeline=4, schedule="zb-v")
    assert feed(both).read == 2 * feed(folded).read


@pytest.mark.parametrize(("vocabulary", "token"), [(50_257, 2), (65_499, 2), (65_500, 4), (128_256, 4)])
def test_tokens_take_two_or_four_bytes(vocabulary: int, token: int) -> None:
    asked = job(gpus=32, batch=64)
    found = feed_of(asked, replace(DENSE, vocab=vocabulary), place(asked, machine(SERVERS).network.fabric))
    assert found.read == 64 * 1024 * token


def test_text_never_holds_up_a_step() -> None:
    found = step(job(gpus=32, batch=64))
    assert found.feed is not None
    assert found.feed.seconds == 0.0
    assert "data" not in {s.kind for s in found.shares}


LOADED = job(gpus=32, batch=64, tensor=8, pipeline=2)


@cache
def alone_undrawn() -> StepResult:
    return simulate(LOADED, DENSE, machine(SERVERS), most_events=0)


@given(st.floats(0.1, 10.0))
def test_a_step_takes_as_long_as_the_slower_of_computing_and_loading(factor: float) -> None:
    alone = alone_undrawn()
    rate = 32e6 / (factor * alone.step_time)  # the busiest server reads 32 sequences of 1 MB
    asked = reading(LOADED, size="1 MB", storage=f"{rate!r} B/s")
    found = simulate(asked, DENSE, machine(SERVERS), most_events=0)
    assert found.step_time == pytest.approx(alone.step_time * max(1.0, factor))
    assert sum(s.exposed for s in found.shares) == pytest.approx(found.step_time)
    assert found.tokens_per_second == pytest.approx(found.tokens / found.step_time)
    assert found.mfu * found.step_time == pytest.approx(alone.mfu * alone.step_time)
    assert found.time_to_train / found.step_time == pytest.approx(alone.time_to_train / alone.step_time)
    assert found.gpu_hours / found.step_time == pytest.approx(alone.gpu_hours / alone.step_time)


def test_more_workers_prepare_in_less_time() -> None:
    # two replicas, so that a rank prepares 32 sequences
    times = [feed(LOADED, prepare="30 ms", workers=n).preparing for n in (1, 2, 8)]
    assert times == pytest.approx([0.96, 0.48, 0.12])


def test_readers_beside_preparers_take_as_long_as_the_slower() -> None:
    both = feed(LOADED, size="1 MB", storage="64 MB/s", prepare="30 ms", workers=2)
    assert (both.reading, both.preparing, both.seconds) == pytest.approx((0.5, 0.48, 0.5))


def test_without_workers_a_rank_loads_before_it_computes() -> None:
    alone = step(LOADED)
    found = step(LOADED, size="1 MB", storage="64 MB/s", prepare="30 ms", workers=0)
    assert found.step_time == pytest.approx(alone.step_time + 0.5 + 0.96)
    assert "workers" in found.warnings[-1]


def test_the_wait_is_drawn_and_on_the_critical_path() -> None:
    found = step(LOADED, prepare="100 ms", workers=1)
    waits = [e for e in found.timeline.events if e.kind == "data"]
    assert {e.rank for e in waits} == {0, 1}
    assert all(e.end == found.step_time == found.timeline.span for e in waits)
    starts = [(e.rank, e.start) for e in found.timeline.events]
    assert starts == sorted(starts)
    path = critical_path(found.timeline)
    assert path is not None
    waiting = next(p for p in path.parts if p.what == "waiting for data")
    assert waiting.seconds == pytest.approx(waits[0].end - waits[0].start)


def test_the_rate_that_a_warning_names_is_enough() -> None:
    slow = step(LOADED, size="1 MB", storage="10 MB/s")
    alone = step(LOADED).step_time
    assert "keep up" in slow.warnings[-1]
    assert slow.feed is not None
    enough = slow.feed.server / alone
    assert step(LOADED, size="1 MB", storage=f"{enough!r} B/s").step_time == pytest.approx(alone)


def starved(base: TrainingJob, **data: object) -> list[str]:
    asked = reading(base, **data)
    one = machine(SERVERS)
    return starving(asked, DENSE, place(asked, one.network.fabric), one.gpu.peak_flops["bf16"])


def test_loading_that_no_usual_pace_hides_is_told_without_a_step() -> None:
    """More than ten times what the FLOPs of a step take at the peak of all GPUs."""
    least = step(LOADED).model_flops / (32 * machine(SERVERS).gpu.peak_flops["bf16"])
    for times, told in ((9.9, 0), (10.1, 1)):
        rate = 32e6 / (times * least)
        assert len(starved(LOADED, size="1 MB", storage=f"{rate!r} B/s")) == told
    assert not starved(LOADED)


@pytest.mark.parametrize("more", [0.0, 0.5])
def test_the_whole_run_loads_so_long_by_hand(more: float) -> None:
    """32 sequences a rank and step, an hour each and two workers: 16 h."""
    budget = LOADED.model_copy(update={"tokens": (33 + more) * 64 * 1024})
    (told,) = starved(budget, prepare="1 h")
    assert told.startswith("Every step loads its data for 16 h at least, and the whole run (")
    steps = 33 + more
    assert f"({34 if more else 33} steps) for {16 * steps / 24:.3g} d" in told
    assert "times the workers would keep up" in told


def test_check_tells_what_loads_for_years_and_refuses_what_does_for_ever(tmp_path: Path) -> None:
    """`check` says what `run` would: the first is warned of, the second refused."""
    file = tmp_path / "s.yaml"
    file.write_text(STUDY.format(data="{prepare: 10 h}"))
    said = CliRunner().invoke(app, ["check", str(file)])
    assert said.exit_code == 0
    assert "! tune: Every step loads its data for" in said.stdout
    assert " years: " in said.stdout
    file.write_text(STUDY.format(data="{size: 1 PB, storage: 1 MB/s}"))
    said = CliRunner().invoke(app, ["check", str(file)])
    assert said.exit_code == 2
    assert "s.yaml:10:5: jobs.tune: loading the data of one step takes longer than a hundred" in said.stderr


def test_check_says_of_a_recommendation_job_what_run_does() -> None:
    slow = RecommendationJob(
        name="r", model="dlrm-dcnv2", global_batch=65_536, samples=1e9, data=Data(prepare="1 s")
    )
    model = load_recommender(slow.model)
    told = recommendation_warnings(slow, model, machine(SERVERS))
    assert told == simulate_recommendation(slow, model, machine(SERVERS)).warnings
    assert "for its data" in told[-1]


def test_samples_of_recommendation() -> None:
    # MLPerf's multi-hot Criteo: a label, 13 numbers and 214 indices of 4 bytes
    model = Recommender(
        "small", (1000,) * 26, (8,) * 24 + (11,) * 2, 64, 13, (128, 64), (256, 1), interaction="dot"
    )
    asked = RecommendationJob(name="r", model="small", global_batch=32_768, samples=1e9)
    found = simulate_recommendation(asked, model, machine(SERVERS))
    assert found.feed is not None
    assert found.feed.size == 4 * (1 + 13 + 214)
    assert found.feed.read == 32_768 * 912
    assert found.feed.server == 32_768 / SERVERS * 912
    slow = asked.model_copy(update={"data": Data.model_validate({"storage": "1 MB/s"})})
    waited = simulate_recommendation(slow, model, machine(SERVERS))
    assert waited.step_time == pytest.approx(32_768 / SERVERS * 912 / 1e6)


STUDY = """
railwright: 1
name: loaded
cluster:
  servers: 4
  server: dgx-h100
  compute: {{family: rail-optimised, switch: qm9700}}
  storage: {{family: fat-tree, switch: sn3700c, hosts: 1}}
jobs:
  - name: tune
    model: llama-3.1-8b
    sequence: 8192
    global_batch: 128
    tokens: 1e9
    layout: {{tensor: 2}}
    data: {data}
"""


def test_a_study_says_that_loading_is_the_bottleneck() -> None:
    found = run(load_study_text(STUDY.format(data="{size: 1 GB, storage: 2 GB/s}")), what_if=False)
    assert "Loading data is your bottleneck" in " ".join(found.answer)
    assert any("waits" in text and "for its data" in text for text in found.warnings)


def test_a_study_says_that_its_storage_cannot_send_that() -> None:
    found = run(load_study_text(STUDY.format(data="{size: 2 GB}")), what_if=False)
    assert any("the storage network carries" in text for text in found.warnings)
    fine = run(load_study_text(STUDY.format(data="{}")), what_if=False)
    assert not any("storage" in text for text in fine.warnings)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("{storage: 0 B/s}", "storage"),
        ("{storage: 5}", "no unit"),
        ("{workers: -1}", "workers"),
        ("{prepare: 20 MB}", "prepare"),
        ("{sise: 1 MB}", "sise"),
    ],
)
def test_what_makes_no_sense_is_refused(data: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        load_study_text(STUDY.format(data=data))


@pytest.mark.parametrize(
    "data",
    [
        {"size": "1e200 TB", "storage": "1e-200 B/s"},
        {"storage": "1e-300 B/s"},
        {"prepare": "1e300 h", "workers": 0},
    ],
)
def test_a_step_that_loads_for_ever_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(PlanError, match=r"case: loading the data .* longer than a hundred years; give"):
        step(job(), **data)
