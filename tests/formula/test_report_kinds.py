"""Every kind of time of a step is drawn, named and coloured, so that its parts add up for a reader.

Kinds are the lanes of a step (`training.lanes.tasks.LANES`), the bubble, the update on the host, and waiting
for data.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model import count_parameters
from railwright.report.drawings.timeline import look_of
from railwright.report.files.trace import step_events
from railwright.report.parts.style import DRAWINGS
from railwright.report.sections.step import LOOK_NAMES, step_section
from railwright.report.words.figures import KIND_NAMES, KINDS
from railwright.search.training.explain import NAMES
from railwright.study.bottleneck import bottleneck
from railwright.training import simulate
from railwright.training.lanes.critical import LANE_WORDS, critical_path
from railwright.training.lanes.result import ADAM, StepResult
from railwright.training.lanes.tasks import LANES
from railwright.training.passes.offload import host_update
from railwright.units import show_share
from report_fixture import example_result
from training_cases import DENSE, job, machine

EVERY = (*LANES, "bubble", ADAM, "data")


@pytest.mark.parametrize("kind", EVERY)
def test_each_kind_has_a_place_a_name_and_a_colour(kind: str) -> None:
    assert kind in KINDS
    assert kind in KIND_NAMES
    assert f"k-{kind}" in LOOK_NAMES
    assert f".k-{kind}{{" in DRAWINGS


@pytest.mark.parametrize("lane", [lane for lane in LANES if lane != "compute"])
def test_each_lane_of_a_critical_path_has_words(lane: str) -> None:
    assert lane in LANE_WORDS


def test_a_search_tells_every_share_of_its_jobs() -> None:
    """It compares transformers as if their data were always there: no embeddings to exchange, no data."""
    assert set(EVERY) - {"emb", "data"} <= set(NAMES)


def test_parts_of_a_bar_add_up_with_activations_on_the_host() -> None:
    step = simulate(job(tensor=2, sequence=8192, offload=("activations",)), DENSE, machine())
    assert step.exposed("copy") > 0
    assert sum(step.exposed(kind) for kind in KINDS) == pytest.approx(step.step_time)
    path = critical_path(step.timeline)
    assert path is not None
    assert any("copies to and from host memory" in sentence for sentence in path.sentences())


def test_an_update_on_the_host_is_no_compute() -> None:
    """Breakdown, timeline, critical path, trace and answer call it CPU Adam, and what it moves copies."""
    on_gpu, on_host = (
        simulate(job(gpus=8, zero=1, offload=offload), DENSE, machine(1)) for offload in ((), ("optimizer",))
    )
    parameters = count_parameters(DENSE).total / 8
    # Megatron-LM copies fp32 both ways
    update = host_update(parameters, 4.0, 8, machine(1), 4.0)
    assert on_host.exposed(ADAM) == pytest.approx(update.adam)
    assert on_host.exposed("copy") == pytest.approx(update.down + update.up)
    assert on_host.exposed("compute") < on_gpu.exposed("compute")
    assert sum(on_host.exposed(kind) for kind in KINDS) == pytest.approx(on_host.step_time)
    (adam,) = (e for e in on_host.timeline.events if e.kind == ADAM)
    assert (adam.lane, look_of(adam), adam.end - adam.start) == ("host", "k-adam", pytest.approx(update.adam))
    path = critical_path(on_host.timeline)
    assert path is not None
    assert "CPU Adam" in path.sentences()[0]
    assert "CPU Adam" in {one.get("name") for one in step_events(on_host)}
    result = example_result()
    first = result.variants[0]
    slow = replace(first, jobs=(replace(first.jobs[0], step=on_host), *first.jobs[1:]))
    assert "CPU Adam (the optimizer on the host)" in bottleneck(slow, ())
    assert "CPU Adam" in str(step_section(replace(result, variants=(slow,))))


def test_a_breakdown_says_which_pipeline_stage_it_is_of() -> None:
    """The critical path tells waits of its own main stage, which may be another."""
    result = example_result()
    step = simulate(job(pipeline=2), DENSE, machine())
    alone = simulate(job(tensor=2), DENSE, machine())

    def told(step: StepResult) -> str:
        first = result.variants[0]
        jobs = (replace(first.jobs[0], step=step), *first.jobs[1:])
        return str(step_section(replace(result, variants=(replace(first, jobs=jobs),))))

    assert f"on stage {step.stage}, which waits least for the others" in told(step)
    assert "waits least" not in told(alone)


@pytest.mark.parametrize("kernel", [1e-6, 3e-6, 7e-6, 1.1e-5])
def test_one_gpu_communicates_for_no_time_and_not_for_less(kernel: float) -> None:
    """A share of -1e-17 reads '-0.0 %'."""
    step = simulate(job(gpus=1), DENSE, machine(), kernel=lambda _: kernel)
    assert step.exposed("dp") == 0.0
    assert show_share(step.exposed_share) == "0.0 %"
