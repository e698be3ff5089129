"""What if, sensitivity and the critical path where the first training job is a recommendation model."""

from __future__ import annotations

from functools import cache

import pytest

from dlrm_cases import MODEL, SMALL, STUDY, asked, machine
from railwright.spec.load import load_study_text
from railwright.study.runner import run
from railwright.training.lanes.critical import critical_path
from railwright.training.lanes.result import StepResult
from railwright.training.recommendation.dlrm import simulate_recommendation
from railwright.training.whatif.recommendation import recommendation_what_ifs


@cache
def rows(servers: int = 8, overlap: bool = True) -> dict[str, StepResult]:
    found = recommendation_what_ifs(asked(overlap=overlap), MODEL, machine(servers))
    return {row.name: row.step for row in found if row.step is not None}


def step(servers: int = 8, **fields: object) -> StepResult:
    return simulate_recommendation(asked(**fields), MODEL, machine(servers))


def test_every_row_is_a_step_of_the_changed_machine() -> None:
    found, own = rows(), step().step_time
    assert found["Network ×2"].step_time < own < found["Network ÷2"].step_time
    free, between = found["Free communication"].step_time, found["Free network between servers"].step_time
    # where the network between servers is free, tables lie on one GPU each and nothing is sent inside servers
    assert free <= between < own
    assert found["HBM bandwidth ×2"].step_time < own < found["One GPU 10 % slower"].step_time
    assert found["Infinite compute"].step_time < own
    # without any communication the kernels follow one another, so the step is all compute
    compute = next(s for s in found["Free communication"].shares if s.kind == "compute")
    assert compute.exposed == pytest.approx(free)
    # ten per cent at most, of products only
    assert found["One GPU 10 % slower"].step_time < 1.1 * own


def test_rows_that_change_nothing_are_not_there() -> None:
    assert "Exchanges overlapped" not in rows()
    assert rows(overlap=False)["Exchanges overlapped"].step_time == step().step_time
    alone = rows(1)
    assert not {"Network ×2", "No PXN", "Free network between servers"} & set(alone)
    assert {"Free communication", "One GPU 10 % slower"} <= set(alone)


def test_of_one_gpu_without_kernels_nothing_would_be_left() -> None:
    found = recommendation_what_ifs(asked(gpus=1), SMALL, machine(1))
    assert [row.name for row in found] == ["HBM bandwidth ×2"]


def test_a_study_of_one_gets_what_ifs_and_sensitivity() -> None:
    result = run(load_study_text(STUDY))
    assert {row.name for row in result.what_ifs} == set(rows())
    network = next(row for row in result.what_ifs if row.name == "Network ÷2")
    own = result.variants[0].jobs[0].step
    assert own is not None
    assert network.effect is not None
    assert network.step_time is not None
    assert network.effect == pytest.approx(own.step_time / network.step_time - 1)
    assert sum(seconds for _, seconds in network.changes) == pytest.approx(network.step_time - own.step_time)
    (half,) = result.sensitivity
    assert half.step_time == pytest.approx(step(global_batch=67584).step_time)
    assert half.effect is not None
    assert half.effect < 0, "half the samples do not take half the time"
    assert half.pxn_gain is not None


@pytest.mark.parametrize("servers", [1, 8, 16])
@pytest.mark.parametrize("overlap", [True, False])
def test_what_runs_beside_the_path_adds_up_to_its_parts_and_to_the_shares(
    servers: int, overlap: bool
) -> None:
    found = step(servers, overlap=overlap)
    path = critical_path(found.timeline)
    assert path is not None
    parts = {p.what: p.seconds for p in path.parts}
    for what, seconds in parts.items():
        assert sum(b.seconds for b in path.beside if b.what == what) == pytest.approx(seconds)
    for share in found.shares:
        counted = sum(b.seconds for b in path.beside if b.kind == share.kind)
        assert counted == pytest.approx(share.exposed, rel=1e-6, abs=1e-9 * found.step_time)


def test_a_path_of_gradients_says_what_the_gpu_does_beside_them() -> None:
    # 128 GPUs: three reductions one after the other are the path, and the shares count what hides them
    found = step(16)
    path = critical_path(found.timeline)
    assert path is not None
    assert path.parts[0].lane == "dp"
    # the sentence of docs/training/dlrm.md
    mlperf = step(16, replicate_below="12.8 MiB")
    (reduced,) = (share.exposed for share in mlperf.shares if share.kind == "dp")
    long = critical_path(mlperf.timeline)
    assert long is not None
    assert long.parts[0].share == pytest.approx(0.57, abs=0.01)
    assert reduced / mlperf.step_time == pytest.approx(0.11, abs=0.01)
    said = " ".join(path.sentences())
    assert "Beside gradient and parameter exchange the GPU" in said
    assert "computes for" in said
    assert "exchanges embeddings for" in said
    assert "Beside" not in " ".join(critical_path(step(16, overlap=False).timeline).sentences())  # type: ignore[union-attr]


def test_a_path_that_waits_for_data_has_nothing_beside() -> None:
    waits = critical_path(step(1, data={"storage": "1 GB/s"}).timeline)
    assert waits is not None
    said = waits.sentences()
    assert said[0].startswith("The critical path of the step is 93 % waiting for data")
    assert not [one for one in said if one.startswith("Beside")], "the GPU data for 71 % of the step"
