"""Every sharding of a recommendation job's tables, simulated."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dlrm_cases import MODEL, STUDY, asked, machine
from railwright.cli.main import app
from railwright.errors import PlanError, SpecError
from railwright.search.recommendation import search_recommendation, space_of
from railwright.training.recommendation.dlrm import simulate_recommendation


def test_the_first_is_the_fastest_of_all_by_their_own_steps() -> None:
    found = search_recommendation(asked(), MODEL, machine())
    speeds = [one.step.tokens_per_second for one in found.best]
    assert speeds == sorted(speeds, reverse=True)
    assert found.tried == 5 * 4 - 4 + 4 * 4, "four kinds and column-wise in four, by four sizes"
    for one in found.best[:5]:
        again = simulate_recommendation(one.job, MODEL, machine())
        assert again.step_time == one.step.step_time
        assert one.job == asked().model_copy(update=dict(one.changed))
    assert found.own is not None
    assert found.best[0].step.step_time < found.own.step.step_time


def test_what_the_job_says_of_columns_is_tried_too() -> None:
    own = asked(sharding="column-wise", column_shards=32)
    found = search_recommendation(own, MODEL, machine(), {"sharding": ("column-wise",)})
    assert found.own is not None
    assert not found.own.changed
    assert any(not one.changed for one in found.best)


def test_the_leanest_comes_first_where_memory_is_asked_for() -> None:
    found = search_recommendation(asked(), MODEL, machine(), objective="memory")
    sizes = [one.step.memory.total for one in found.best]
    assert sizes == sorted(sizes)


def test_shardings_that_are_the_same_on_every_gpu_count_once() -> None:
    # one server: its GPUs share a table by rows as all GPUs do
    space = {"sharding": ("row-wise", "table-row-wise"), "replicate_below": ("0 B",)}
    found = search_recommendation(asked(global_batch=55296), MODEL, machine(1), space)
    assert (found.tried, len(found.best)) == (2, 1)


def test_what_cannot_work_is_counted_with_why() -> None:
    space = {"sharding": ("auto",), "replicate_below": ("0 B",), "global_batch": (135168, 135169)}
    found = search_recommendation(asked(), MODEL, machine(), space)
    assert len(found.best) == 1
    ((why, count),) = found.refused.items()
    assert count == 1
    assert "not a multiple of the 64 GPUs" in why
    with pytest.raises(PlanError, match="no layout of the space can work"):
        search_recommendation(asked(), MODEL, machine(), {"global_batch": (135169,)})
    with pytest.raises(PlanError, match="more than the"):
        search_recommendation(asked(), MODEL, machine(), {"global_batch": tuple(range(64, 64 * 2000, 64))})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"shardings": ["auto"]}, "did you mean 'sharding'"),
        ({"sharding": ["rowwise"]}, "did you mean 'row-wise'"),
        ({"column_shards": 4}, "must be a list"),
        ({"replicate_below": [16]}, "no unit"),
        ([], "must map axes to lists"),
    ],
)
def test_a_space_that_is_none_is_refused(given: object, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        space_of(given)


def test_the_command_lists_them_and_has_nothing_to_export(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "ranking.yaml"
    file.write_text(STUDY)
    shown = CliRunner().invoke(app, ["search", str(file), "--json", "--top", "3"])
    assert shown.exit_code == 0, shown.output
    best = json.loads(shown.output)["best"]
    assert len(best) == 3
    assert best[0]["samples_per_s"] >= best[1]["samples_per_s"]
    table = CliRunner().invoke(app, ["search", str(file)]).output
    assert "As written:" in table
    unknown = CliRunner().invoke(app, ["search", str(file), "--job", "rankin"])
    assert "'ranking' has no job 'rankin'; did you mean 'ranking'?" in " ".join(unknown.output.split())
    refused = CliRunner().invoke(app, ["search", str(file), "--export", "megatron"])
    assert refused.exit_code != 0
