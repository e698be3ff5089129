"""What holds a job back: one definition for the verdict, the critical path and the what-ifs."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import railwright as rw
from railwright.report.files.results import results, to_text
from railwright.report.html import page
from railwright.report.terminal import summary
from railwright.spec import load_study_text, template
from railwright.study.bottleneck import Savings, savings, what_holds
from railwright.training.lanes.result import COMMUNICATION
from railwright.training.software.constants import constant
from railwright.training.whatif.changes import (
    FREE_BETWEEN,
    FREE_COMMUNICATION,
    FREE_LAUNCHES,
    FREE_WORK,
    INFINITE_COMPUTE,
)

HEAD = "railwright: 1\nname: h\ncluster: {servers: %d, server: %s, compute: {family: %s, switch: qm9700}}\n"
JOB = "  - {name: sft, model: llama-3.1-8b, tokens: 1e9, "
FSDP = (
    HEAD % (1, "dgx-h100", "single-switch")
    + f"jobs:\n{JOB}sequence: 768, global_batch: 64, software: fsdp-2023, layout: {{zero: 3}}}}\n"
)
"""ZeRO-3 of short sequences: gathers beside compute are longer than it."""
LONG = (
    HEAD % (2, "dgx-h100", "rail-optimised")
    + f"jobs:\n{JOB}sequence: 8192, global_batch: 64, layout: {{zero: 1, tensor: 2}}}}\n"
)
SHORT = (
    HEAD % (2, "dgx-b200", "rail-optimised")
    + f"jobs:\n{JOB}sequence: 2048, global_batch: 64, layout: {{tensor: 4, sequence_parallel: true}}}}\n"
)
"""Little work for every launch: the host needs longer to launch than a B200 to compute."""


@pytest.fixture(scope="module")
def told():
    return {name: rw.run(load_study_text(text)) for name, text in STUDIES.items()}


STUDIES = {"fsdp": FSDP, "long": LONG, "short": SHORT}


def by_thing(result):
    """Share of the critical path that is compute, launches and communication."""
    found = {"compute": 0.0, "launches": 0.0, "communication": 0.0}
    for part in result.variants[0].jobs[0].critical.parts:
        thing = "launches" if part.lane == "host" else part.lane
        found["communication" if part.lane in COMMUNICATION else thing] += part.share
    return found


@pytest.mark.parametrize(
    ("saved", "what"),
    [
        (Savings(communication=0.5, between=0.5, work=0.4), "network"),
        (Savings(communication=0.5, between=0.1, work=0.35), "servers"),
        (Savings(communication=0.5, between=0.25, work=0.4), "communication"),
        (Savings(communication=0.2, between=0.2, work=0.6, compute=0.5), "compute"),
        # launches and kernels beside each other: neither is worth much alone, both together most
        (Savings(communication=0.22, between=0.01, work=0.73, compute=0.14), "compute"),
        (Savings(communication=0.2, work=0.9, compute=0.05, launches=0.7), "host"),
        (Savings(communication=0.2, work=0.3, data=0.4), "data"),
        (Savings(communication=0.2, work=0.3, adam=0.4), "adam"),
        (Savings(communication=0.2, work=0.3, copy=0.4), "copy"),
    ],
)
def test_the_bottleneck_is_what_is_worth_most_when_it_is_free(saved, what):
    assert what_holds(saved) == what


def test_communication_beside_compute_that_sets_the_step_is_the_bottleneck(told):
    """60 % of its instants compute and 40 % wait for gathers, but only faster gathers shorten it."""
    result = told["fsdp"]
    step = result.variants[0].jobs[0].step
    compute = step.exposed("compute")
    assert compute > step.exposed_share * step.step_time
    rows = {row.name: row.effect for row in result.what_ifs}
    assert rows[FREE_COMMUNICATION] > max(rows[INFINITE_COMPUTE], rows[FREE_LAUNCHES], rows[FREE_WORK])
    assert by_thing(result)["communication"] > 0.9
    assert result.bottleneck == "servers"
    assert result.answer[1].startswith("Communication inside your servers is the bottleneck")
    saved = 1 - 1 / (1 + rows[FREE_COMMUNICATION])
    assert f"free communication would take {100 * saved:.0f} % off the step" in result.answer[1]


def test_long_sequences_are_held_back_by_compute_and_the_network_is_not_blamed(told):
    result = told["long"]
    assert result.bottleneck == "compute"
    assert result.answer[1].startswith("The network is not your bottleneck: free compute and launches would")
    assert by_thing(result)["compute"] > 0.7


@pytest.mark.parametrize(
    ("server", "what", "words"),
    [
        ("server-8x-h100-pcie", "servers", "Communication inside your servers is the bottleneck, rather"),
        ("gh200-1", "network", "The network is your bottleneck: free communication would take"),
    ],
)
def test_rings_that_wait_for_pcie_are_not_the_networks(server, what, words):
    """They leave their servers, but NICs twice as fast shorten the step by nothing: a slot's 63 GB/s do not
    fill four NICs of 50.  A GPU alone with its NIC waits for that, up to its own slot."""
    head = HEAD % (8, server, "rail-optimised")
    job = f"jobs:\n{JOB}sequence: 2048, global_batch: 64, layout: {{zero: 3, recompute: full}}}}\n"
    result = rw.run(load_study_text(head + job))
    rows = {row.name: row.effect for row in result.what_ifs}
    assert rows[FREE_BETWEEN] > 1
    assert (rows["Network ×2"] > 0.2) == (what == "network")
    assert result.bottleneck == what
    assert result.answer[1].startswith(words)
    assert ("between servers)" in result.answer[1].partition(";")[0]) == (what == "network")


def test_short_work_is_held_back_by_the_host_which_is_said_and_warned_of(told):
    result = told["short"]
    assert result.bottleneck == "host"
    assert result.answer[1].startswith("The host is your bottleneck, not the network")
    rows = {row.name: row.effect for row in result.what_ifs}
    assert rows[FREE_LAUNCHES] > max(rows[FREE_COMMUNICATION], rows[INFINITE_COMPUTE])
    (warning,) = (text for text in result.warnings if "without launches by the host" in text)
    for name in ("host_module_seconds, an estimate", "host_operation_seconds, measured", "calibration.md"):
        assert name in warning
    assert not any("without launches" in text for text in (*told["fsdp"].warnings, *told["long"].warnings))


def test_a_variant_that_another_beats_is_warned_of_its_launches_too():
    """What launches make it is what it loses by: the study as written, beside a graph of the whole step."""
    graph = "variants: [{name: graph, why: none, set: {jobs.sft.cuda_graphs: [step]}}]\n"
    result = rw.run(load_study_text(SHORT + graph))
    assert result.variants[result.recommended].name == "graph"
    (warning,) = (text for text in result.warnings if "without launches by the host" in text)
    assert warning.startswith("sft, with 'As written': ")


def test_the_warning_names_the_factors_that_make_up_a_launch():
    """A GH200 under Megatron-LM: 4.8 of an era whose steps ran on other GPUs, and Grace's 2.75."""
    alone = HEAD % (1, "gh200-1", "single-switch")
    job = f"jobs:\n{JOB}sequence: 512, global_batch: 16, lora: {{rank: 16}}}}\n"
    (warning,) = (text for text in rw.run(load_study_text(alone + job)).warnings if "rests on" in text)
    factor, cpu = (float(one) for one in re.findall(r"([\d.]+) \((?:no step|host_grace)", warning))
    module = float(re.search(r"a launch takes: (\d+) µs a product", warning)[1])
    assert module == pytest.approx(36 * factor * cpu, rel=0.01)


GRACE = HEAD % (4, "gb200-nvl72", "fat-tree") + (
    "jobs:\n- {name: moe, model: qwen3-30b-a3b, gpus: 64, gpus_per_server: 64, tokens: 1e9, sequence: 4096, "
    "global_batch: 512, layout: {expert: 8, recompute: %s}%s}\n"
)


def told_of_launches(study: str) -> tuple[str, float]:
    result = rw.run(load_study_text(study), what_if=False)
    (warning,) = (text for text in result.warnings if "without launches by the host" in text)
    step = result.variants[0].jobs[0].step
    assert step is not None
    return warning, step.step_time


ALONE = HEAD % (1, "dgx-h100", "single-switch") + (
    "jobs:\n- {name: sft, model: qwen2.5-7b, gpus: 1, tokens: 1e9, sequence: 2048, global_batch: 8, %s}\n"
)
RANKS = HEAD % (1, "dgx-h100", "single-switch") + (
    "recommendations:\n- {name: r, kind: recommendation, model: %s, gpus: 1, global_batch: 4096, "
    "samples: 1e9}\n"
)


def test_of_one_gpu_nothing_is_left_without_kernels_and_launches():
    """They hide each other on it: launches alone were worth 10 %, and were told for both."""
    result = rw.run(load_study_text(ALONE % "lora: {rank: 16}, layout: {recompute: full}"))
    rows = {row.name: row.effect for row in result.what_ifs}
    assert rows[FREE_LAUNCHES] > 0.05
    assert rows[INFINITE_COMPUTE] < 0.01
    assert FREE_WORK not in rows
    assert "free compute and launches would take 100 % off the step" in result.answer[1]


def test_one_gpu_that_launches_nothing_has_no_step_without_kernels(tmp_path: Path):
    """Both were divisions by a step of no time."""
    graph = rw.run(load_study_text(ALONE % "lora: {rank: 16}, cuda_graphs: [step]"))
    assert graph.answer[1].startswith("The network is not your bottleneck: infinite compute would take 100 %")
    tables = "{rows: [1000, 20000], lookups: 1, width: 64, dense_features: 13, bottom: [64], top: [64, 1]}"
    with_file = tmp_path / "small.yaml"
    with_file.write_text(f"{tables[:-1]}, kind: recommendation, interaction: dot, source: none}}")
    ranking = rw.run(load_study_text(RANKS % with_file))
    assert ranking.answer[1].startswith("The network is not your bottleneck: infinite compute would take 100")


def test_of_one_gpu_what_lies_on_the_host_is_left():
    """Both free: Adam on the host and its copies are the rest of the step."""
    offloaded = "software: deepspeed-2024, layout: {offload: [optimizer], recompute: full}"
    result = rw.run(load_study_text(ALONE % offloaded))
    step = result.variants[0].jobs[0].step
    (left,) = (row.step_time for row in result.what_ifs if row.name == FREE_WORK)
    assert left == pytest.approx(step.exposed("adam") + step.exposed("copy"), rel=0.01)


def test_a_verdict_of_the_host_tells_its_wait_and_what_beats_communication():
    """Free communication 18 % and free launches 18 %: only with kernels are launches worth more, 55 %."""
    over_two = HEAD % (2, "dgx-h100", "rail-optimised") + (
        "jobs:\n- {name: tp, model: llama-3-70b, tokens: 1e9, sequence: 4096, global_batch: 8, "
        "layout: {tensor: 16, sequence_parallel: true, recompute: full}}\n"
    )
    result = rw.run(load_study_text(over_two), what_if=False)
    assert result.bottleneck == "host"
    worth, _, spent = result.answer[1].partition(";")
    rest = "free kernel launches 18 % and infinite compute 2 %"
    both = "free compute and launches would take 55 % off the step"
    assert worth.endswith(f"{both}, free communication 18 % (18 % between servers), {rest}")
    assert "waiting for launches 18 %" in spent


def test_the_warning_names_the_field_and_what_it_would_save():
    """On a Grace host: as much as the step with it is shorter."""
    warning, eager = told_of_launches(GRACE % ("none", ""))
    _, graphed = told_of_launches(GRACE % ("none", ", cuda_graphs: [attention, router]"))
    saved = re.search(r"With `cuda_graphs: \[attention, router\]`.* would be (\d+) % shorter\.$", warning)
    assert saved is not None
    assert int(saved[1]) == round(100 * (1 - graphed / eager))
    assert saved[1] != "0"


def test_the_warning_says_what_refuses_graphs_and_names_none_where_there_are_none_to_set():
    refused, _ = told_of_launches(GRACE % ("full", ""))
    assert "refuse graphs of parts of a layer beside recomputation of whole layers." in refused
    short = GRACE.replace("sequence: 4096", "sequence: 1024")
    for more in (", cuda_graphs: [attention, router]", ", software: fsdp-2023"):
        warning, _ = told_of_launches(short % ("none", more))
        assert "cuda_graphs" not in warning


def test_no_thing_is_worth_more_than_its_part_of_the_critical_path(told):
    """A chain keeps its length without the rest: what frees a thing takes its part off the path at most, and
    communication what it slowed compute by and what launched it."""
    slowed = constant("compute_slowdown_in_overlap") - 1
    for name, result in told.items():
        saved = savings(result.variants[0].jobs[0].step, result.what_ifs)
        path = by_thing(result)
        beside = slowed * path["compute"] + path["launches"]
        assert saved.communication <= path["communication"] + beside + 0.01, name
        assert saved.launches <= path["launches"] + 0.01, name
        assert saved.compute <= path["compute"] + 0.01, name


def test_the_path_promises_no_more_than_the_what_if_of_its_largest_part():
    """Gathers 95 % of the path, worth 2 % in all: a tenth of them is worth 2 % at most, not 9.5 %."""
    result = rw.run(load_study_text(FSDP))
    path = result.variants[0].jobs[0].critical
    assert "takes at most 9.5 % off" in path.sentences()[-1]
    assert "takes at most 2.0 % off" in path.sentences({"communication": 0.02})[-1]
    assert path.sentences({"compute": 0.02}) == path.sentences()


def test_of_several_jobs_the_verdict_names_its_own_and_the_exposed_ones():
    """It said "The network is not your bottleneck" where the second job waited for it most of its step."""
    waiting = (
        JOB.replace("sft", "second")
        + "sequence: 512, global_batch: 16, layout: {zero: 2}, overlap: {dp: false}}\n"
    )
    result = rw.run(load_study_text(LONG + waiting + waiting.replace("second", "third")))
    first, second, _ = (job.step for job in result.variants[0].jobs)
    assert result.answer[1].startswith("In job 'sft', the network is not your bottleneck")
    assert second.exposed_share > 0.15 > first.exposed_share
    told = f"{100 * second.exposed_share:.0f} % of the step of job"
    assert f"Exposed communication is {told} 'second' and {told} 'third'; what-ifs are" in result.answer[1]


def test_every_first_screen_speaks_of_the_recommended_variant():
    """The workstation's third variant is twice as fast: the verdict was of the first, held back by PCIe."""
    result = rw.run(load_study_text(template("workstation")))
    assert result.recommended == 2
    assert result.answer[0].startswith("Choose 'A pipeline instead'")
    assert result.answer[1].startswith("With 'A pipeline instead', the network is not your bottleneck")
    text = StringIO()
    summary(result, Console(file=text, width=80))
    printed = " ".join(text.getvalue().split())
    assert "What sets the step of continue-pretraining, with C" in printed
    assert "What if, with C" in printed
    html = page(result)
    assert "Of C, A pipeline instead, which the answer recommends." in html.replace("\u00a0", " ")
    assert "continue-pretraining on C A pipeline instead: the chain of tasks" in html
    assert "simulated again, against &#x27;A pipeline instead&#x27;" in html
    loaded = json.loads(to_text(results(result)))
    assert (loaded["recommended"], loaded["bottleneck"]) == ("C", "compute")
    assert loaded["variants"][2]["jobs"][0]["step"]["timeline"]["file"] == "trace.json"
    assert loaded["answer"][1] == result.answer[1]


def test_without_what_ifs_the_verdict_is_the_same():
    study = load_study_text(FSDP)
    quick = rw.run(study, what_if=False)
    assert quick.what_ifs == ()
    assert quick.answer == rw.run(study).answer
