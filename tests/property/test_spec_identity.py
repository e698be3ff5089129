"""What a study means does not depend on how it is written, dumped or changed back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.spec import (
    Study,
    canonical_json,
    load_study_text,
    override,
    spec_hash,
    template,
    template_names,
)

BASE = load_study_text(template("rail-240"))
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "nccl.pxn": st.booleans(),
        "cluster.servers": st.integers(1, 4096),
        "cluster.compute.family": st.sampled_from(["fat-tree", "rail-only"]),
        "cluster.compute.oversubscription": st.floats(1, 16) | st.integers(1, 16),
        "cluster.compute.lengths.node_leaf": st.floats(0, 1e4).map(lambda m: f"{m!r} m"),
        "jobs.finetune.layout.tensor": st.integers(1, 8),
        "jobs.finetune.tokens": st.floats(1, 1e15),
    },
)


@pytest.mark.parametrize("name", template_names())
def test_a_dumped_study_validates_to_itself(name):
    study = load_study_text(template(name))
    assert Study.model_validate(study.model_dump()) == study
    assert override(study, {}) == study


@given(CHANGES)
def test_changes_survive_a_dump_and_keep_the_rest(changes):
    changed = override(BASE, changes)
    assert Study.model_validate(changed.model_dump()) == changed
    dumped, before = json.loads(canonical_json(changed)), json.loads(canonical_json(BASE))
    for key in changes:
        for tree in (dumped, before):
            *parents, last = ["0" if step == "finetune" else step for step in key.split(".")]
            for step in parents:
                tree = tree[int(step)] if step.isdigit() else tree[step]
            del tree[last]
    assert dumped == before


@given(CHANGES)
def test_the_order_of_changes_does_not_matter(changes):
    forward = override(BASE, changes)
    backward = override(BASE, dict(reversed(changes.items())))
    assert forward == backward
    assert spec_hash(forward) == spec_hash(backward)


@given(CHANGES)
def test_changing_at_once_is_changing_one_by_one(changes):
    one_by_one = BASE
    for key, value in changes.items():
        one_by_one = override(one_by_one, {key: value})
    assert one_by_one == override(BASE, changes)


def test_the_hash_is_of_the_meaning_not_of_the_text():
    plain = "railwright: 1\nname: a\ncluster:\n  servers: 1\n  server: s\n"
    one = load_study_text(plain + "  compute: {family: fat-tree, switch: q, lengths: {node_leaf: 10 m}}\n")
    other = load_study_text("# a comment\n" + plain + "  compute:\n    switch: q\n    family: 'fat-tree'\n")
    assert spec_hash(one) == spec_hash(other)
    assert spec_hash(one) != spec_hash(override(one, {"cluster.servers": 2}))
