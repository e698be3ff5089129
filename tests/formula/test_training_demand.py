"""What a token budget takes: arithmetic by hand, and the two ways of asking are one question."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import log
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from typer.testing import CliRunner

from railwright.catalog import load_catalog
from railwright.catalog.parts import Gpu, Server
from railwright.cli.main import app
from railwright.compute.time import peak_rate
from railwright.errors import PlanError
from railwright.fabric import count
from railwright.model import flops_per_token, load_model
from railwright.ranges import Range
from railwright.shipped import read_data
from railwright.spec import load_study
from railwright.study.evaluate import Workshop
from railwright.study.rooms import money
from railwright.training import simulate
from railwright.training.borrowed import kernel_share, kernels_over
from railwright.training.constants import width_of
from railwright.training.demand import Equipment, TokenBudget, demand, usual_server
from railwright.training.mixtures import LEAST_MODELS, NEXT, kept
from railwright.training.throughput import (
    Throughput,
    above_published,
    predicted_pace,
    published_pace,
)
from training_cases import DENSE, changed, job, machine

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


def test_a_step_faster_than_nine_of_ten_published_ones_says_so_where_none_is_of_its_software() -> None:
    """Megatron of 2025 has no record on A100, of 2022 it has; H100's are of both."""
    a100, _ = parts("a100-sxm-80")
    most = published_pace(DENSE, a100, "bf16").flops.high / peak_rate(a100, "bf16")
    assert above_published(DENSE, a100, "bf16", most) == ""
    told = above_published(DENSE, a100, "bf16", most * 1.1)
    assert "A100 in 16-bit" in told
    assert f"{most:.0%}" in told
    # too few series of its own
    assert above_published(DENSE, parts("b200-sxm")[0], "bf16", 0.99) == ""

    wide = replace(DENSE, layers=16, hidden=5120, heads=40, kv_heads=40, head_dim=128, ffn=13824)
    plan = job(sequence=4096, batch=128, micro_batch=2, zero=1)

    def warned(software: str, server: str) -> bool:
        one = plan.model_copy(update={"software": software})
        step = simulate(one, wide, machine(2, server=server), must_fit=False)
        return any("published series" in warning for warning in step.warnings)

    assert warned("megatron-2025", "dgx-a100")
    assert not warned("megatron-2022", "dgx-a100")
    assert not warned("megatron-2025", "dgx-h100")


def test_a_gpu_without_series_of_its_own_gets_all_of_its_kind() -> None:
    gpu, _ = parts("b200-sxm")
    assert "dense 16-bit" in published_pace(DENSE, gpu, "bf16").source
    assert "dense H100 16-bit" in published_pace(DENSE, parts("h100-sxm")[0], "bf16").source


def test_a_mixture_follows_its_own_kernels() -> None:
    """Of one GPU, two mixtures keep as much of what their kernels reach, and narrow experts reach less."""
    gpu, _ = parts("h100-sxm")
    wide, narrow = (load_model(name) for name in ("grok-1", "qwen3-30b-a3b"))
    keeps = kept("h100-sxm", "bf16")
    assert keeps is not None
    for arch in (wide, narrow):
        reach = kernel_share(arch, 4096, gpu, "bf16") * peak_rate(gpu, "bf16")
        assert published_pace(arch, gpu, "bf16").flops.middle == pytest.approx(keeps.middle * reach)
    assert kernel_share(narrow, 4096, gpu, "bf16") < 0.8 * kernel_share(wide, 4096, gpu, "bf16")


def test_a_model_has_one_vote_on_a_gpu() -> None:
    """However many series of it are published: Grok-1 has nine on H100, and does not decide for all."""
    keeps = kept("h100-sxm", "bf16")
    assert keeps is not None
    assert not keeps.own
    assert len(keeps.models) >= LEAST_MODELS
    assert {"H100", "GB200"} < set(keeps.gpus)
    own = kept("gb200", "fp8")
    assert own is not None
    assert own.gpus == ("GB200",)
    assert kept("h100-sxm", "nvfp4") is None
    assert keeps.low < keeps.middle < keeps.high


@pytest.mark.parametrize(("dtype", "error", "of_peak"), [("bf16", 0.24, 0.45), ("fp8", 0.23, 0.31)])
def test_published_mixtures_left_out_in_turn(dtype: str, error: float, of_peak: float) -> None:
    """The figures of training/mixtures.py: what kernels reach says more of a mixture than others' shares."""
    rows = read_data("training", "mfu.yaml")[f"moe {width_of(dtype)}"]
    gpus = load_catalog().gpus
    of_kernels = [
        (gpu, model, mfu, mfu / kernel_share(load_model(model), sequence, gpus[gpu], own))
        for gpu, model, sequence, own, mfu in rows
    ]

    def near(gpu: str, model: str, column: int) -> list[float]:
        others = [row for row in of_kernels if row[1] != model]
        same = [row for row in others if row[0] == gpu]
        return [float(row[column]) for row in (same if len(same) >= LEAST_MODELS - 1 else others)]

    def off(column: int) -> float:
        errors = [
            abs(log(median(near(gpu, model, column)) / shares[column - 2]))
            for gpu, model, *shares in of_kernels
        ]
        return sum(errors) / len(errors)

    ranges = [(np.percentile(near(row[0], row[1], 3), (10, 90), method=NEXT), row[3]) for row in of_kernels]
    assert sum(low <= share <= high for (low, high), share in ranges) > 0.65 * len(ranges)

    assert off(3) < error
    assert off(3) < 0.8 * off(2)
    assert off(2) > 0.8 * of_peak


def test_a_fast_mixture_is_held_against_its_kernels() -> None:
    gpu, _ = parts("h100-sxm")
    arch = load_model("qwen3-30b-a3b")
    most = published_pace(arch, gpu, "bf16").flops.high / peak_rate(gpu, "bf16")
    assert above_published(arch, gpu, "bf16", 0.99 * most) == ""
    told = above_published(arch, gpu, "bf16", 1.1 * most)
    assert "mixtures of experts on any GPU in 16-bit keep of the pace of their kernels" in told
    assert f"which here is {most:.0%}" in told


def test_kernels_of_a_gpu_over_its_own_are_one() -> None:
    gpu, _ = parts("h100-sxm")
    assert kernels_over(DENSE, 4096, gpu, "bf16", {"H100": 3}) == pytest.approx(1.0)
    # nobody to compare with: V100 has no bf16
    assert kernels_over(DENSE, 4096, gpu, "bf16", {"V100": 3}) == 1.0
    # two count by their series, geometrically
    alone = [kernels_over(DENSE, 4096, gpu, "bf16", {name: 1}) for name in ("A100", "B200")]
    both = kernels_over(DENSE, 4096, gpu, "bf16", {"A100": 1, "B200": 3})
    assert both == pytest.approx(alone[0] ** 0.25 * alone[1] ** 0.75)


def test_a_pace_that_is_borrowed_follows_the_gpu_s_kernels() -> None:
    """None is faster than its own kernels, and what these reach says how fast a step of a GPU is."""
    arch = load_model("llama-3-70b")
    for name in ("mi300x", "mi325x", "l40s", "b300-sxm", "h20"):
        gpu, _ = parts(name)
        most = kernel_share(arch, 4096, gpu, "bf16") * peak_rate(gpu, "bf16")
        pace = published_pace(arch, gpu, "bf16").flops
        assert 0 < pace.low < pace.middle <= pace.high <= most * (1 + 1e-12)
    # GB200 has six series: with what kernels say of it, those of all GPUs come nearer to its own
    gpu, _ = parts("gb200")
    own = published_pace(arch, gpu, "bf16").flops.middle / peak_rate(gpu, "bf16")
    everyone = read_data("training", "mfu.yaml")["dense 16-bit"]
    scaled = everyone["middle"] * kernels_over(arch, 4096, gpu, "bf16", everyone["series"])
    assert abs(scaled - own) < 0.6 * abs(everyone["middle"] - own)


@pytest.mark.parametrize(
    ("software", "layout"),
    [
        ("megatron-2025", {"tensor": 8, "sequence_parallel": True}),
        ("fsdp-2025", {"zero": 3}),
    ],
)
def test_a_study_on_a_gpu_without_records_lies_in_the_range_without_one(
    software: str, layout: dict[str, object]
) -> None:
    """MI300X; docs/training/demand.md has these figures."""
    arch, cluster = load_model("llama-3-70b"), machine(8, server="mi300x-8")
    asked = changed(job(sequence=4096, batch=128, **layout), software=software)
    step = simulate(asked, arch, cluster)
    predicted = predicted_pace(step, 64).flops.middle
    pace = published_pace(arch, cluster.gpu, "bf16").flops
    assert pace.low < predicted < pace.high
    told = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if " on MI300X: " in line)
    named = [f"{flops / 1e12:.0f}" for flops in (pace.middle, pace.low, pace.high, predicted)]
    everyone = read_data("training", "mfu.yaml")["dense 16-bit"]["middle"] * peak_rate(cluster.gpu, "bf16")
    assert {*named, f"{everyone / 1e12:.0f}"} <= set(re.findall(r"\d+", told))


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
    assert ("Whole runs on" in text) is (gpu == "h100-sxm"), "no maker trained on the others"


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
    ],
)
def test_the_command_says_what_is_missing(asked: list[str], words: str) -> None:
    told = CliRunner().invoke(app, ["demand", *asked])
    assert told.exit_code == 2
    assert words in " ".join(told.output.split())
