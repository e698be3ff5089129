"""A changed study is a study: every field by its dotted name, wrong names and values refused with the nearest."""
# ruff: noqa: E501 - one row per change: what is written, what is said

import pytest

from railwright.errors import SpecError
from railwright.spec import load_study_text, override

STUDY = load_study_text(
    """\
railwright: 1
name: a study
cluster:
  servers: 4
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700}
jobs:
  - {name: train, model: llama-3-8b, sequence: 4096, global_batch: 32, tokens: 2e9}
  - {name: train.large, model: llama-2-70b, sequence: 4096, global_batch: 32, tokens: 2e9}
"""
)


def refusal(changes, **name):
    with pytest.raises(SpecError) as error:
        override(STUDY, changes, **name)
    return str(error.value)


def test_fields_are_named_by_dots():
    changed = override(
        STUDY, {"cluster.compute.family": "fat-tree", "nccl.pxn": False, "jobs.0.micro_batch": 2}
    )
    assert changed.cluster.compute.family == "fat-tree"
    assert changed.nccl.pxn is False
    assert changed.jobs[0].micro_batch == 2
    assert changed.jobs[1] == STUDY.jobs[1]
    assert STUDY.nccl.pxn is True


def test_jobs_go_by_name_even_with_dots_in_it():
    changed = override(STUDY, {"jobs.train.layout.tensor": 2, "jobs.train.large.layout.tensor": 8})
    assert [job.layout.tensor for job in changed.jobs] == [2, 8]


def test_quantities_are_text_with_a_unit():
    changed = override(STUDY, {"cluster.compute.lengths.node_leaf": "3 m"})
    assert changed.cluster.compute.lengths.node_leaf == 3.0
    assert changed.cluster.compute.lengths.leaf_spine == 30.0
    assert "3 has no unit" in refusal({"cluster.compute.lengths.node_leaf": 3})


def test_lists_are_replaced_whole():
    changed = override(
        STUDY, {"cluster.faults": [{"element": "leaf-01", "state": "slow", "rate": "100 Gb/s"}]}
    )
    assert changed.cluster.faults[0].rate == 12.5e9


def test_a_later_change_sees_an_earlier_one():
    faults = [{"element": "leaf-01"}]
    changed = override(STUDY, {"cluster.faults": faults, "cluster.faults.0.state": "slow"})
    assert changed.cluster.faults[0].state == "slow"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nccl.pxm": True}, "override: nccl.pxm: 'pxm' is not a field; did you mean 'pxn'?"),
        ({"ncl.pxn": True}, "override: ncl.pxn: 'ncl' is not a field; did you mean 'nccl'?"),
        ({"nccl.pxn": "on"}, "override: nccl.pxn: 'on' is not allowed; write true or false (true)"),
        ({"jobs.trian.micro_batch": 2}, "'trian' names no entry: the list has 2 entries, counted from 0; did you mean 'train'"),
        ({"jobs.2.micro_batch": 2}, "'2' names no entry"),
        ({"jobs.0.layout.tensor.x": 2}, "'jobs.0.layout.tensor' is one value and has no fields"),
        ({"": 2}, "empty name"),
        ({"railwright": 2}, "'railwright' is the same for all variants"),
        ({"jobs.1.name": "train"}, "'train' is already the name of jobs.0"),
        ({"nccl": {"pxn": False}}, "a section is changed field by field; write 'nccl.pxn' as the name"),
    ],
)  # fmt: skip
def test_what_cannot_be_changed(changes, said):
    assert said in refusal(changes)


def test_all_mistakes_of_a_change_come_at_once():
    message = refusal({"nccl.pxm": True, "cluster.servers": 0, "jobs.0.tokens": "many"})
    assert message.count("\n") == 2


def test_the_mistake_says_where_the_change_came_from():
    assert refusal({"nccl.pxm": True}, name="--compare pxm=on").startswith("--compare pxm=on: nccl.pxm: ")
