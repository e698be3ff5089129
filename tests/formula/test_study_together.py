"""Jobs that take the same GPUs are each predicted alone, and a study says so once."""

from __future__ import annotations

import pytest

from railwright.spec import load_study_text
from railwright.spec.serving import ServingJob
from railwright.spec.study import Study
from railwright.study.evaluate import Workshop
from railwright.study.foretold import foretold_warnings
from railwright.study.runner import run
from railwright.study.together import together

CLUSTER = """
railwright: 1
name: several jobs
cluster:
  servers: 4
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700}
jobs:
"""
JOB = (
    "  - {name: NAME, model: llama3-8b, sequence: 8192, global_batch: 64, tokens: 1e9, "
    "layout: {zero: 3}, WHERE}\n"
)


def study(**where: str) -> Study:
    rows = [JOB.replace("NAME", name).replace("WHERE", asked) for name, asked in where.items()]
    return load_study_text(CLUSTER + "".join(rows), "study.yaml")


def told(asked: Study) -> tuple[str, ...]:
    return together(asked, Workshop.of(asked).machine(asked))


def test_jobs_that_share_servers_are_told_with_them_as_the_drawing_names_them() -> None:
    (said,) = told(study(a="gpus: 16", b="servers: [1, 3]"))
    assert said.startswith(
        "each job is predicted alone, on the GPUs it takes, as if the others did not run: "
    )
    assert "a and b share server-02." in said


def test_each_set_of_jobs_is_told_with_the_servers_it_shares() -> None:
    (said,) = told(study(a="servers: [0]", b="servers: [2]", c="servers: [0, 1]", d="servers: [2, 3]"))
    assert "a and c share server-01; b and d share server-03." in said
    (said,) = told(study(a="servers: [0]", b="servers: [1]", c="gpus: 32"))
    assert "a and c share server-01; b and c share server-02." in said, "a and b share nothing"


def test_a_job_is_named_on_no_server_it_does_not_take() -> None:
    """Said of a (01, 03), b (all) and c (01, 02): 'a, b and c share server-01 to server-03'."""
    (said,) = told(study(a="servers: [0, 2]", b="gpus: 32", c="servers: [0, 1], gpus_per_server: 4"))
    assert "a, b and c share server-01; b and c share server-02; a and b share server-03." in said


def test_many_sets_of_jobs_are_counted() -> None:
    where = {"all": "gpus: 64", **{f"j{n}": f"servers: [{n}, {n + 1}]" for n in range(0, 8, 2)}}
    where |= {"odd": "servers: [1, 3]"}
    rows = [JOB.replace("NAME", name).replace("WHERE", asked) for name, asked in where.items()]
    wide = CLUSTER.replace("servers: 4", "servers: 8") + "".join(rows)
    (said,) = told(load_study_text(wide, "study.yaml"))
    assert "all and j0 share server-01; all, j0 and odd share server-02; " in said
    assert "; 2 more sets of jobs share others. Jobs that are to run" in said


@pytest.mark.parametrize(
    "where",
    [
        {"a": "gpus: 32"},
        {"a": "servers: [0, 1]", "b": "servers: [2, 3]"},
        {"a": "gpus: 16", "b": "servers: [2, 3]"},
    ],
)
def test_jobs_apart_and_a_job_alone_are_not_told(where: dict[str, str]) -> None:
    assert not told(study(**where))


def test_a_served_model_counts_as_a_job() -> None:
    served = study(a="gpus: 8")
    assert not told(served)
    chat = {"name": "chat", "model": "llama3-8b", "engine": "vllm-2026", "client": {"concurrency": 64}}
    both = served.model_copy(update={"serving": (ServingJob.model_validate(chat),)})
    assert "a and chat share server-01." in told(both)[0]


def test_a_run_says_it_once() -> None:
    asked = study(a="gpus: 32", b="gpus: 16")
    result = run(asked, what_if=False)
    assert [w for w in result.warnings if "predicted alone" in w] == list(told(asked))


APART = ("servers: [0, 4]", "servers: [1, 5]")
SMALL = """
railwright: 1
name: several jobs
cluster:
  servers: 16
  server: dgx-h100
  compute: {family: fat-tree, switch: qm9700, servers_per_group: 4, ROUTING}
jobs:
"""


@pytest.mark.parametrize(
    ("routing", "where", "said"),
    [
        ("routing: ecmp", ("servers: [0, 4]", "servers: [1, 5]"), "under routing 'ecmp';"),
        (
            "oversubscription: 3",
            ("servers: [0, 4]", "servers: [1, 8]"),
            "under oversubscription 3;",
        ),
        ("routing: adaptive", ("servers: [0, 4]", "servers: [1, 5]"), ""),  # nothing is scarce
        ("routing: ecmp", ("servers: [0, 1]", "servers: [2, 3, 4]"), ""),  # one stays below its leaf
        ("routing: ecmp", ("servers: [0, 4]", "servers: [8, 12]"), ""),  # leaves of their own
        (
            "routing: ecmp, core_oversubscription: 7",
            ("servers: [0, 4]", "servers: [1, 5]"),
            "under routing 'ecmp';",
        ),
    ],
)
def test_jobs_that_meet_on_scarce_uplinks_are_told(routing: str, where: tuple[str, ...], said: str) -> None:
    """Each was predicted as if its neighbours sent nothing, without a word."""
    rows = [
        JOB.replace("NAME", name).replace("WHERE", asked) for name, asked in zip("ab", where, strict=True)
    ]
    words = told(load_study_text(SMALL.replace("ROUTING", routing) + "".join(rows), "study.yaml"))
    if not said:
        assert words == ()
        return
    (only,) = words
    assert only.startswith("a and b are predicted without each other's traffic")
    assert said in only


def test_jobs_on_the_same_gpus_do_not_meet_on_uplinks() -> None:
    rows = [JOB.replace("NAME", name).replace("WHERE", "servers: [0, 4]") for name in "ab"]
    (only,) = told(load_study_text(SMALL.replace("ROUTING", "routing: ecmp") + "".join(rows), "study.yaml"))
    assert "share server-01, server-05" in only


PODS = """
railwright: 1
name: pods
cluster:
  servers: 16
  server: dgx-h100
  compute: {family: fat-tree, switch: qm9700, servers_per_group: 2, tiers: 3, groups_per_pod: 4, SCARCE}
jobs:
"""


@pytest.mark.parametrize(
    ("scarce", "where", "said"),
    [
        # both climb from the first pod to the second, from leaves of their own
        (
            "core_oversubscription: 7",
            ("servers: [0, 8]", "servers: [2, 10]"),
            "under core_oversubscription 7;",
        ),
        ("oversubscription: 2", ("servers: [0, 8]", "servers: [2, 10]"), ""),
        # one stays in its pod
        ("core_oversubscription: 7", ("servers: [0, 8]", "servers: [2, 4]"), ""),
    ],
)
def test_jobs_meet_on_the_tier_that_both_climb(scarce: str, where: tuple[str, ...], said: str) -> None:
    """Any two jobs over several leaves were said to share uplinks, whichever leaves these were."""
    rows = [JOB.replace("NAME", name).replace("WHERE", at) for name, at in zip("ab", where, strict=True)]
    words = told(load_study_text(PODS.replace("SCARCE", scarce) + "".join(rows), "study.yaml"))
    assert len(words) == bool(said)
    assert all(said in one for one in words)


def test_what_variants_share_is_told_with_their_names() -> None:
    """Only of the variant that is recommended was it told, beside figures of all."""
    rows = [JOB.replace("NAME", n).replace("WHERE", at) for n, at in zip("ab", APART, strict=True)]
    text = SMALL.replace("ROUTING", "routing: ecmp") + "".join(rows)
    text += "variants:\n- {name: in place, set: {jobs.a.servers: [0, 1], jobs.b.servers: [4, 5]}}\n"
    asked = load_study_text(text, "study.yaml")
    result = run(asked, what_if=False)
    assert result.variants[result.recommended].name == "in place"
    (said,) = (one for one in result.warnings if "each other's traffic" in one)
    assert said.startswith("with 'As written', a and b are predicted without")
    assert said in foretold_warnings(asked, Workshop.of(asked))
