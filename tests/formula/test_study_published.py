"""Published effects stand beside a study that holds what they are about, and beside no other."""

from __future__ import annotations

import pytest

import railwright as rw
from railwright.report.files.results import results
from railwright.spec import load_study_text, override
from railwright.study.bottleneck import exposed_between
from railwright.study.evaluate import Workshop
from railwright.study.published import OVERLAPS, PREDICTORS, published_effects
from railwright.study.sensitivity import first_job

RAILS = "compute: {family: rail-optimised, switch: qm9700}"
ALONE = f"cluster: {{servers: 1, server: dgx-h100, {RAILS}}}"
FOUR = f"cluster: {{servers: 4, server: dgx-h100, {RAILS}}}"
ONE_GPU = f"cluster: {{servers: 1, server: workstation-1x-rtx-4090, {RAILS}}}"
TREE = "cluster: {servers: 4, server: dgx-h100, compute: {family: fat-tree, switch: qm9700}}"
JOB = "jobs: [{name: j, model: %s, sequence: 4096, global_batch: 64, tokens: 1e9, layout: {%s}}]"
DENSE = JOB % ("llama-3.1-8b", "zero: 1")
INSIDE = JOB % ("qwen3-30b-a3b", "zero: 1, expert: 8")
EXPERTS = JOB % ("qwen3-30b-a3b", "zero: 1, expert: 16")
MIXTRAL = JOB % ("mixtral-8x7b", "zero: 1, expert: 8, tensor: 2")
BY_DEEPEP = EXPERTS.replace("tokens: 1e9", "tokens: 1e9, expert_nodes: 2")
RANKING = "recommendations: [{name: r, model: dlrm-dcnv2, global_batch: 65536, samples: 4.2e9}]"
SWEEP = "sweeps: [{op: all_to_all, begin: 1 MiB, end: 1 MiB}]"
GATHER = "sweeps: [{op: all_gather, begin: 1 MiB, end: 1 MiB}]"


def applying(*lines: str) -> set[str]:
    study = load_study_text("\n".join(("railwright: 1", "name: s", *lines)))
    workshop = Workshop.of(study)
    return {name for name, one in PREDICTORS.items() if one.applies(study, workshop)}


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ((ONE_GPU, JOB % ("gpt2", "zero: 1")), set()),
        ((ALONE, INSIDE), set()),
        ((ALONE, DENSE, SWEEP), set()),
        ((FOUR, RANKING), set()),
        ((FOUR, RANKING, GATHER), set()),
        ((FOUR, DENSE), {"network-share"}),
        ((FOUR, RANKING, SWEEP), {"pxn-small", "pxn-large"}),
        ((FOUR, EXPERTS), {"pxn-small", "pxn-large", "network-share"}),
        ((FOUR, BY_DEEPEP), {"network-share"}),
        # experts of one server each: PXN was said to gain 0 % of the published 14
        ((FOUR, INSIDE), {"network-share"}),
        ((FOUR, MIXTRAL.replace("tensor: 2", "tensor: 1")), {"network-share"}),
        ((FOUR, MIXTRAL), {"pxn-small", "pxn-large", "pxn-mixtral", "network-share"}),
    ],
)
def test_an_effect_applies_to_what_it_is_about(lines: tuple[str, ...], names: set[str]) -> None:
    assert applying(*lines) == names


def test_nothing_is_said_where_none_applies() -> None:
    for cluster, work in ((ONE_GPU, JOB % ("gpt2", "zero: 1")), (FOUR, RANKING), (TREE, EXPERTS)):
        study = load_study_text(f"railwright: 1\nname: s\n{cluster}\n{work}\n")
        assert published_effects(study, Workshop.of(study)) == ()


def test_the_share_in_the_network_is_what_leaves_a_server_with_nothing_overlapped() -> None:
    """Tensor parallelism fills NVLink, which is no network: it was counted beside a figure of the network."""
    job = JOB % ("llama-3.1-8b", "zero: 1, tensor: 8, sequence_parallel: true")
    study = load_study_text(f"railwright: 1\nname: s\n{FOUR}\n{job}\n")
    workshop = Workshop.of(study)
    (share,) = PREDICTORS["network-share"].values(study, workshop)
    off = override(study, {f"jobs.0.overlap.{kind}": False for kind in OVERLAPS})
    step = first_job(off, workshop).step
    assert step is not None
    assert share == exposed_between(workshop.machine(off).network.fabric, step) / step.step_time
    assert 0.02 < share < step.exposed_share / 2


def test_nothing_overlapped_means_no_kind_of_communication() -> None:
    assert {"dp", "gather", "aligned", "tp", "ep", "pp", "cp", "shared", "offload"} == set(OVERLAPS)


def test_results_name_all_exposed_communication_and_that_between_servers_apart() -> None:
    study = load_study_text(f"railwright: 1\nname: s\n{FOUR}\n{INSIDE}\n")
    result = rw.run(study, what_if=False)
    step = results(result)["variants"][0]["jobs"][0]["step"]
    exposed = sum(
        s["exposed_s"] for s in step["shares"] if s["kind"] in ("tp", "cp", "ep", "emb", "pp", "dp")
    )
    assert step["exposed_share"] == pytest.approx(exposed / step["step_time_s"])
    assert 0 < step["exposed_between_servers_share"] < step["exposed_share"]


def test_an_exchange_too_large_to_be_solved_is_left_out() -> None:
    """Hashed, that of 4,608 GPUs has more messages than are solved; 'impossible' stood beside the gain."""
    rails = RAILS.replace("}", ", routing: ecmp}")
    study = load_study_text(
        f"railwright: 1\nname: s\ncluster: {{servers: 576, server: dgx-h100, {rails}}}\n"
        f"{EXPERTS.replace('global_batch: 64', 'gpus: 32, global_batch: 64')}\n"
    )
    assert [e.name for e in published_effects(study, Workshop.of(study))] == [
        "Share of a step in the network, nothing overlapped"
    ]
