"""Steps that are not written as traces, or not where they were asked for: one sentence each, and no file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.errors import PlanError
from railwright.spec.training import Overlap
from railwright.traces import FORMATS, export, simai_export, step_trace
from railwright.traces.files import shortened, unsaid
from railwright.training import simulate
from training_cases import DENSE, MOE, job, machine


@pytest.mark.parametrize("format", ["goal", "simai"])
@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("../outside", "-outside"),
        ("a/b", "a-b"),
        ("a\0b\n", "a-b-"),
        ("", "step"),
        ("..", "step"),
        ("Llama (8 GPUs), 训练", "Llama (8 GPUs)- 训练"),
        ("训" * 200, "训" * 60),
    ],
)
def test_a_name_stays_in_the_folder_that_was_asked_for(
    tmp_path: Path, format: str, name: str, stem: str
) -> None:
    wanted = job(gpus=8, batch=8).model_copy(update={"name": name})
    (file,), _ = export(wanted, DENSE, machine(1), format, tmp_path / "out")
    assert file.parent == tmp_path / "out"
    assert file.stem == stem
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_in_use_and_a_format_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(PlanError, match="not overwritten"):
        export(job(gpus=8, batch=8), DENSE, machine(1), "chakra", tmp_path)
    with pytest.raises(PlanError, match=r"no trace format 'chakr'; did you mean|known are"):
        export(job(gpus=8, batch=8), DENSE, machine(1), "chakr", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert set(FORMATS) == {"chakra", "goal", "simai"}


def test_nothing_is_left_of_a_trace_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused when its first lines are written already."""
    whole, _ = export(job(tensor=2), DENSE, machine(1), "goal", tmp_path / "whole")
    monkeypatch.setattr("railwright.traces.goal.MOST_LINES", 100)
    with pytest.raises(PlanError, match="more than 100"):
        export(job(tensor=2), DENSE, machine(1), "goal", tmp_path / "out")
    assert whole
    assert not any((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("format", "most", "says"),
    [
        ("chakra", "chakra.MOST_NODES", "more than 100 nodes, which is what is written at once"),
        ("goal", "files.MOST_NODES", "as GOAL at most 100 are put in order; .* or write Chakra"),
    ],
)
def test_too_many_nodes_are_refused_before_any_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, most: str, says: str
) -> None:
    """A step of 16,384 GPUs was refused after 20 million nodes, some minutes and gigabytes."""
    monkeypatch.setattr(f"railwright.traces.{most}", 100)
    with pytest.raises(PlanError, match=says):
        export(job(tensor=2), DENSE, machine(1), format, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_predicted_steps_nodes_are_counted_beforehand() -> None:
    made, _ = step_trace(job(batch=16, tensor=2, pipeline=2), DENSE, machine(2))
    assert made.num_nodes == sum(len(nodes) for _, nodes in made)


@pytest.mark.parametrize(
    ("moe", "layout", "says"),
    [
        (True, {"expert": 2, "placement": "expert-across"}, "layout.placement to packed"),
        (
            True,
            {"tensor": 2, "expert": 2, "expert_tensor": 1},
            "layout.expert_tensor is 1 and layout.tensor 2",
        ),
        (False, {"shard": 4}, "leave layout.shard out"),
        (False, {"zero": 3}, "gathers parameters in every pass; set zero to 1 or 2"),
    ],
)
def test_simai_has_groups_in_megatrons_order_only(
    moe: bool, layout: dict[str, object], says: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=says):
        export(
            job(batch=32, sequence=512, **layout),
            MOE if moe else DENSE,
            machine(2),
            "simai",
            tmp_path / "out",
        )  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_simai_has_no_context_parallel_groups(tmp_path: Path) -> None:
    one = job(batch=16, sequence=4096, context=2)
    with pytest.raises(PlanError, match=r"^case: SimAI has no context-parallel groups; set layout\.context"):
        export(one, DENSE, machine(2), "simai", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_simai_has_no_rails_of_experts(tmp_path: Path) -> None:
    """What DeepEP sends between servers goes to the GPUs at one place of each."""
    one = job(batch=32, sequence=512, expert=16).model_copy(update={"expert_nodes": 2})
    arch = replace(MOE, experts=16)
    with pytest.raises(PlanError, match=r"no groups for 'ep dispatch' \(2 ranks\).*leave expert_nodes out"):
        export(one, arch, machine(2), "simai", tmp_path / "out")
    export(one.model_copy(update={"expert_nodes": None}), arch, machine(2), "simai", tmp_path / "out")


def test_simai_reads_what_stages_send_as_an_int(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = job(batch=16, sequence=512, pipeline=2)
    monkeypatch.setattr(simai_export, "MOST_BETWEEN", 1000)
    with pytest.raises(PlanError, match=r"^case: SimAI reads what stages send as a 32-bit number"):
        export(one, DENSE, machine(2), "simai", tmp_path / "out")
    monkeypatch.undo()
    export(one, DENSE, machine(2), "simai", tmp_path / "out")


def test_simai_says_the_jobs_gpus_and_the_export_what_it_leaves_out(tmp_path: Path) -> None:
    """8 of 16 GPUs, half of each server: SimAI's ranks count on, and where they are is said in words."""
    one = job(batch=32, sequence=512, tensor=2).model_copy(update={"gpus_per_server": 4})
    export(one, DENSE, machine(2), "simai", tmp_path / "out")
    assert "all_gpus: 8 " in (tmp_path / "out" / "case.txt").read_text()
    assert "gpus_per_server" in unsaid("simai", one, machine(2).network.fabric)
    assert unsaid("chakra", one, machine(2).network.fabric) == ""
    assert unsaid("goal", job(batch=32), machine(2).network.fabric) == ""


@pytest.mark.parametrize(
    "layout",
    [
        {"expert": 4, "overlap": Overlap(ep=True)},
        {"pipeline": 2, "schedule": "dualpipe"},
        {"pipeline": 2, "schedule": "dualpipe-v"},
    ],
)
def test_simai_has_no_passes_that_run_together(tmp_path: Path, layout: dict[str, object]) -> None:
    arch = MOE if "expert" in layout else DENSE
    with pytest.raises(PlanError, match=r"set overlap\.ep to false, or take another layout\.schedule"):
        export(job(batch=32, sequence=512, **layout), arch, machine(2), "simai", tmp_path / "out")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


RECOMMENDS = """
railwright: 1
name: Mixed
cluster:
  servers: 1
  server: dgx-h100
  compute: {family: single-switch, switch: qm9700}
recommendations:
  - {name: ranking, model: dlrm-dcnv2, global_batch: 8192, samples: 4.2e9}
"""
TRAINS = "jobs:\n  - {name: tune, model: llama-3.1-8b, global_batch: 8, sequence: 1024, tokens: 1e9}\n"


@pytest.mark.parametrize(
    ("jobs", "name", "says"),
    [
        (TRAINS, "ranking", "study.yaml:9:5: recommendations.ranking: this is a recommendation job, and a "),
        (TRAINS, "tunes", "has no job 'tunes'; did you mean 'tune'?"),
        (TRAINS, "x", "has no job 'x'; its jobs are tune"),
        (
            "",
            None,
            "a trace is of one that trains a transformer ('jobs:'); `railwright run` predicts its step",
        ),
        ("", "x", "'Mixed' has no training job; a trace is of one"),
    ],
)
def test_a_job_that_has_no_trace(tmp_path: Path, jobs: str, name: str | None, says: str) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(RECOMMENDS + jobs, encoding="utf-8")
    asked = ["trace", "export", str(study), "-o", str(tmp_path / "out"), *(["--job", name] if name else [])]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


def test_demand_of_a_recommendation_job_says_where_it_stands_and_what_there_is(tmp_path: Path) -> None:
    """'Mixed has no training job', of what every page calls a training job, without file or line."""
    study = tmp_path / "study.yaml"
    study.write_text(RECOMMENDS, encoding="utf-8")
    done = CliRunner().invoke(app, ["demand", str(study)])
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert (
        "study.yaml:9:5: recommendations.ranking: this is a recommendation job, and demand of a study "
        in said
    )
    assert "what its samples take in time and GPU hours is in result.json" in said


def test_a_served_model_has_no_trace_but_a_command(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    served = "serving:\n  - {name: chat, model: llama-3.1-8b, client: {concurrency: 4}}\n"
    study.write_text(RECOMMENDS.split("recommendations")[0] + served, encoding="utf-8")
    done = CliRunner().invoke(app, ["trace", "export", str(study), "-o", str(tmp_path / "out")])
    said = " ".join(done.output.split())
    assert "study.yaml:9:5: serving.chat: this is a serving job" in said
    assert said.endswith("`railwright serve` predicts it.")


def test_the_export_says_where_simai_hides_what_the_prediction_exposes() -> None:
    """Reductions after the last pass run beside the optimizer there."""
    exposed, hidden = (
        simulate(job(batch=32, sequence=4096, overlap=Overlap(dp=dp)), DENSE, machine(2))
        for dp in (False, True)
    )
    part = next(s.exposed for s in exposed.shares if s.kind == "dp") / exposed.step_time
    assert part > 0.01
    assert shortened("simai", exposed).endswith(f"its step may be up to {part:.1%} shorter.")
    assert shortened("chakra", exposed) == ""
    least = next(s.exposed for s in hidden.shares if s.kind == "dp") / hidden.step_time
    assert (shortened("simai", hidden) == "") == (least < 0.01)
