"""What a token budget takes: arithmetic by hand, and the two ways of asking are one question."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.catalog import load_catalog
from railwright.catalog.parts import Gpu, Server
from railwright.cli.main import app
from railwright.errors import PlanError
from railwright.fabric import count
from railwright.model import flops_per_token, load_model
from railwright.ranges import Range
from railwright.spec import load_study
from railwright.study.evaluate import Workshop
from railwright.study.rooms import money
from railwright.training import simulate
from railwright.training.demand.budget import Equipment, TokenBudget, demand, usual_server
from railwright.training.demand.throughput import (
    Throughput,
    predicted_pace,
)
from training_cases import DENSE, job, machine

EXAMPLE = Path(__file__).parents[2] / "examples" / "mixtral-240-h100.yaml"
PAGE = Path(__file__).parents[2] / "docs" / "training" / "demand.md"
PACE = Throughput(Range(100e12, 125e12, 200e12), "a test")
BUDGET = TokenBudget(DENSE, 1e12, 4096, "bf16")


def parts(name: str = "a100-sxm-80") -> tuple[Gpu, Server]:
    catalog = load_catalog()
    gpu = catalog.gpus[name]
    return gpu, usual_server(catalog, gpu)


def test_gpu_hours_are_flops_over_pace() -> None:
    """1e12 tokens at F FLOPs each on GPUs of 125 TFLOP/s: 1e12 F / 125e12 / 3600 hours."""
    gpu, server = parts()
    found = demand(BUDGET, Equipment(gpu, server), pace=PACE)
    flops = flops_per_token(DENSE, 4096).total * 1e12
    assert found.flops == pytest.approx(flops)
    assert found.gpu_hours.middle == pytest.approx(flops / 125e12 / 3600)
    # The fastest pace needs the fewest hours.
    assert found.gpu_hours.low == pytest.approx(flops / 200e12 / 3600)
    assert found.gpu_hours.high == pytest.approx(flops / 100e12 / 3600)


def test_a_deadline_and_its_fleet_are_the_same_question() -> None:
    gpu, server = parts()
    asked = demand(BUDGET, Equipment(gpu, server), days=1, pace=PACE)
    fleet = int(asked.gpus.middle)
    back = demand(BUDGET, Equipment(gpu, server), gpus=fleet, pace=PACE)
    assert fleet % server.gpus == 0
    assert back.days.middle <= 1.0 < back.days.middle * fleet / (fleet - server.gpus)
    assert asked.sustained.middle == pytest.approx(asked.flops / 86400)


def test_energy_is_server_power_times_hours_times_pue() -> None:
    """A DGX A100 draws at most 6.5 kW for 8 GPUs: 812.5 W each, with 40 W of switches, at a PUE of 1.2."""
    gpu, server = parts()
    found = demand(BUDGET, Equipment(gpu, server, network_power=40), gpus=80, pace=PACE, pue=1.2)
    watts = (6500 / 8 + 40) * 1.2
    assert found.power.middle == pytest.approx(80 * watts)
    assert found.energy.middle == pytest.approx(found.gpu_hours.middle * 3600 * watts)


def test_idle_gpus_of_the_servers_draw_their_share() -> None:
    """20 GPUs on three DGX A100: 4 of 24 idle at 30 % of 812.5 W. On 4 of each server: 20 used, 20 idle."""
    gpu, server = parts()
    part = 6500 / 8
    for per_server, idle in ((None, 4), (4, 20)):
        on = Equipment(gpu, server, per_server=per_server, idle_share=0.3)
        found = demand(BUDGET, on, gpus=20, pace=PACE)
        assert found.idle.middle == idle
        assert found.power.middle == pytest.approx((20 + 0.3 * idle) * part)
        assert found.energy.middle == pytest.approx(found.gpu_hours.middle * 3600 * found.power.middle / 20)
    fleet = demand(BUDGET, Equipment(gpu, server, per_server=5, idle_share=0.3), days=1, pace=PACE)
    assert fleet.gpus.middle % 5 == 0
    assert fleet.idle.middle == fleet.gpus.middle / 5 * 3


def test_half_the_time_at_work_takes_twice_as_long() -> None:
    gpu, server = parts()
    whole = demand(BUDGET, Equipment(gpu, server), gpus=80, pace=PACE)
    half = demand(BUDGET, Equipment(gpu, server), gpus=80, pace=PACE, availability=0.5)
    assert half.days.middle == pytest.approx(2 * whole.days.middle)
    assert half.gpu_hours.high == pytest.approx(2 * whole.gpu_hours.high)


def test_a_predicted_step_gives_its_own_gpu_hours() -> None:
    """Where the band holds the prediction, the middle is what the step result says itself."""
    plan, cluster = job(tensor=2), machine()
    step = simulate(plan, DENSE, cluster)
    gpu, server = parts("h100-sxm")
    used = cluster.network.fabric.num_gpus
    budget = TokenBudget(DENSE, plan.tokens, plan.sequence, "bf16")
    found = demand(budget, Equipment(gpu, server), gpus=used, pace=predicted_pace(step, used))
    if step.error_low <= 1 <= step.error_high:
        assert found.gpu_hours.middle == pytest.approx(step.gpu_hours)
    assert found.gpu_hours.low == pytest.approx(step.gpu_hours * step.error_low)
    assert found.gpu_hours.high == pytest.approx(step.gpu_hours * step.error_high)
    assert found.gpu_hours.low <= found.gpu_hours.middle <= found.gpu_hours.high


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        (
            "mi250x",
            "Pace of mi250x: no published step of its own (dense, 16-bit); the share of its dense peak",
        ),
        ("h100-pcie", "Pace of h100-pcie: no published step of its own (dense, 16-bit)"),
        ("b300-sxm", "Pace of b300-sxm: too few published steps of its own (dense, 16-bit)"),
        ("h100-sxm", "Pace of h100-sxm: published steps, "),
    ],
)
def test_a_pace_of_other_gpus_is_told(gpu: str, says: str) -> None:
    """docs/training/demand.md: an MI300X is told that it gets what NVIDIA's GPUs reach."""
    asked = ["demand", "--model", "llama-3.1-8b", "--tokens", "1e12", "--gpu", gpu, "--gpus", "64"]
    text = " ".join(CliRunner().invoke(app, asked).output.split())
    assert says in text
    assert ("what other GPUs (A100 to MI355X) reached" in text) is (gpu != "h100-sxm")
    assert ("Whole runs on" in text) is (gpu in ("h100-sxm", "b300-sxm")), "who trained on them?"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"days": 3, "gpus": 8}, "both given"),
        ({"pue": 0.9}, "PUE is 0.9"),
        ({"pue": 1e308}, r"PUE is 1e\+308.*give 1 to 3"),
        ({"availability": 0.0}, "availability is 0"),
        ({"availability": 1e-300}, "availability is 1e-300.*from 0.001 to 1"),
        ({"availability": 1.5}, "availability is 1.5"),
        ({"gpus": -8}, "gpus must be above 0"),
        ({"gpus": 10**12}, "gpus must be between 1 and 1e"),
        ({"days": 1e-300}, "days must be between 0.001 and 36500"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, float], words: str) -> None:
    gpu, server = parts()
    with pytest.raises(PlanError, match=words):
        demand(BUDGET, Equipment(gpu, server), **change)  # type: ignore[arg-type]


def test_a_dtype_the_gpu_lacks_is_refused() -> None:
    gpu, server = parts()
    with pytest.raises(PlanError, match="no fp8 tensor cores"):
        demand(replace(BUDGET, dtype="fp8"), Equipment(gpu, server))


def test_the_command_prints_ranges_and_json() -> None:
    asked = ["demand", "--model", "llama-2-70b", "--tokens", "2e12", "--gpu", "a100", "--gpus", "2000"]
    text = CliRunner().invoke(app, asked)
    assert text.exit_code == 0, text.output
    assert "GPU-hours" in text.output
    assert "availability 1: nothing fails" in text.output
    said = json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)[0]
    assert said["flops"] == pytest.approx(flops_per_token(load_model("llama-2-70b"), 4096).total * 2e12)


def test_the_command_takes_the_step_of_a_study() -> None:
    said = CliRunner().invoke(app, ["demand", str(EXAMPLE), "--json"])
    assert said.exit_code == 0, said.output
    found = json.loads(said.output)[0]
    assert found["gpus"]["middle"] == 240
    assert "our predicted step" in found["pace"]["source"]


STUDY = """\
railwright: 1
name: four servers
cluster: {{servers: 4, server: dgx-h100, compute: {{family: rail-optimised, switch: qm9700}}}}
jobs:
  - name: half
    model: llama-3.1-8b
    sequence: 8192
    global_batch: 128
    tokens: 1e9
    layout: {{tensor: 2, zero: 1}}
    {part}
"""


@pytest.mark.parametrize("part", ["servers: [0, 1]", "gpus_per_server: 4"])
def test_a_job_on_part_of_the_cluster_pays_for_its_own_gpus(part: str, tmp_path: Path) -> None:
    """16 of 32 GPUs, by servers or by places: GPU-hours are what the step result itself says."""
    file = tmp_path / "study.yaml"
    file.write_text(STUDY.format(part=part))
    told = CliRunner().invoke(app, ["demand", str(file), "--json"])
    assert told.exit_code == 0, told.output
    (found,) = json.loads(told.output)
    study = load_study(file)
    step = simulate(study.jobs[0], load_model("llama-3.1-8b"), Workshop.of(study).machine(study))
    assert found["gpus"]["middle"] == 16
    assert found["gpu_hours"]["low"] == pytest.approx(step.gpu_hours * step.error_low)
    assert "on 16 GPUs" in found["pace"]["source"]
    assert found["idle"]["middle"] == (0 if part.startswith("servers") else 16)
    workshop = Workshop.of(study)
    switches = count(workshop.machine(study).network.fabric, workshop.catalog).switch_power / 32
    watts = 10200 / 8 * (16 + 0.3 * found["idle"]["middle"]) + 16 * switches
    assert found["power"]["middle"] == pytest.approx(watts)
    words = CliRunner().invoke(app, ["demand", str(file)]).output
    assert ("leaves 16 GPUs of its servers idle, at 30 %" in words) == part.startswith("gpus")


def test_money_counts_the_gpus_of_a_job_on_part_of_each_server(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY.format(part="gpus_per_server: 4") + "money: {}\n")
    study = load_study(file)
    workshop = Workshop.of(study)
    step = simulate(study.jobs[0], load_model("llama-3.1-8b"), workshop.machine(study))
    (run,) = money(study, workshop).runs
    assert run.gpu_hours == pytest.approx(step.gpu_hours)


def test_one_server_draws_its_own_power_alone(tmp_path: Path) -> None:
    """Its switch carries nothing; a small run is told to three digits, with what the step warns of."""
    file = tmp_path / "study.yaml"
    one = STUDY.format(part="expert_imbalance: 1.5").replace("servers: 4", "servers: 1")
    file.write_text(one.replace("tokens: 1e9", "tokens: 1e8"))
    (found,) = json.loads(CliRunner().invoke(app, ["demand", str(file), "--json"]).output)
    assert found["power"]["middle"] == pytest.approx(10200)
    assert any("expert_imbalance does nothing" in one for one in found["warnings"])
    told = " ".join(CliRunner().invoke(app, ["demand", str(file)]).output.split())
    assert "expert_imbalance does nothing" in told
    assert f"GPU-hours {found['gpu_hours']['middle']:.3g} (" in told


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--model", "llama-2-70b"], "give a study, or both --model and --tokens"),
        ([str(EXAMPLE), "--model", "llama-2-70b"], "leave --model, --gpu, --server, --dtype and"),
        ([str(EXAMPLE), "--dtype", "fp8"], "a study says its own model, GPU, server, type and sequence"),
        ([str(EXAMPLE), "--sequence", "2048"], "a study says its own model, GPU, server, type and sequence"),
        ([str(EXAMPLE), "--job", "nobody"], "its jobs are finetune"),
        (["--model", "llama-2-70b", "--tokens", "1e12", "--server", "dgx-a100"], "holds a100-sxm-80"),
        (
            ["--model", "llama-2-70b", "--tokens", "1e12", "--dtype", "fp9"],
            "--dtype: there is no 'fp9'; did you mean 'fp8'? known are bf16, fp16, fp8, fp8_rowwise",
        ),
    ],
)
def test_the_command_says_what_is_missing(asked: list[str], words: str) -> None:
    told = CliRunner().invoke(app, ["demand", *asked])
    assert told.exit_code == 2
    assert words in " ".join(told.output.split())


def test_switches_without_a_known_power_are_told_where_power_is(tmp_path: Path) -> None:
    """8 leaves of 1,720 W under spines that neither catalogue nor room gives a power of: in no sum, and
    never 0 W unsaid."""
    file = tmp_path / "study.yaml"
    (tmp_path / "parts.yaml").write_text("switches:\n  ours: {like: sn5400, technology: infiniband}\n")
    spine = "switch: qm9700, spine_switch: ours"
    study = STUDY.format(part="expert_imbalance: 1.0").replace("switch: qm9700", spine)
    file.write_text(study.replace("railwright: 1\n", "railwright: 1\ncatalog: parts.yaml\n"))
    said = {
        command: CliRunner().invoke(app, [*command.split(), str(file)]).output
        for command in ("fabric count", "demand", "cost")
    }
    assert "above 13.8 kW" in said["fabric count"]
    assert "Power and energy are without 1 of 9 switches" in said["demand"]
    assert "Energy, space and carbon are without 1 switch whose power" in said["cost"]
