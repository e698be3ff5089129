"""Published effects stand beside a study that holds what they are about, and beside no other."""

from __future__ import annotations

import pytest

from railwright.spec import load_study_text
from railwright.study.evaluate import Workshop
from railwright.study.published import PREDICTORS, published_effects

RAILS = "compute: {family: rail-optimised, switch: qm9700}"
ALONE = f"cluster: {{servers: 1, server: dgx-h100, {RAILS}}}"
FOUR = f"cluster: {{servers: 4, server: dgx-h100, {RAILS}}}"
ONE_GPU = f"cluster: {{servers: 1, server: workstation-1x-rtx-4090, {RAILS}}}"
TREE = "cluster: {servers: 4, server: dgx-h100, compute: {family: fat-tree, switch: qm9700}}"
JOB = "jobs: [{name: j, model: %s, sequence: 4096, global_batch: 64, tokens: 1e9, layout: {%s}}]"
DENSE = JOB % ("llama-3.1-8b", "zero: 1")
EXPERTS = JOB % ("qwen3-30b-a3b", "zero: 1, expert: 8")
MIXTRAL = JOB % ("mixtral-8x7b", "zero: 1, expert: 8, tensor: 2")
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
        ((ALONE, EXPERTS), set()),
        ((ALONE, DENSE, SWEEP), set()),
        ((FOUR, RANKING), set()),
        ((FOUR, RANKING, GATHER), set()),
        ((FOUR, DENSE), {"network-share"}),
        ((FOUR, RANKING, SWEEP), {"pxn-small", "pxn-large"}),
        ((FOUR, EXPERTS), {"pxn-small", "pxn-large", "network-share"}),
        ((FOUR, MIXTRAL), {"pxn-small", "pxn-large", "pxn-mixtral", "network-share"}),
    ],
)
def test_an_effect_applies_to_what_it_is_about(lines: tuple[str, ...], names: set[str]) -> None:
    assert applying(*lines) == names


def test_nothing_is_said_where_none_applies() -> None:
    for cluster, work in ((ONE_GPU, JOB % ("gpt2", "zero: 1")), (FOUR, RANKING), (TREE, EXPERTS)):
        study = load_study_text(f"railwright: 1\nname: s\n{cluster}\n{work}\n")
        assert published_effects(study, Workshop.of(study)) == ()
