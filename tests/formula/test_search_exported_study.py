"""`search --export study`: the user's study with one job on the layout found, and nothing else changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.cli.exported_study import in_study
from railwright.spec import load_study_text

EXAMPLES = Path(__file__).parents[2] / "examples"

HEAD = """\
railwright: 1
name: two
cluster: {servers: 4, server: dgx-h100, compute: {family: rail-optimised, switch: qm9700}}
jobs:
"""

SECOND = """\
  - name: second
    model: llama-3-8b
    sequence: 8192   # long
    global_batch: 64
    tokens: 15e9
    layout:
      tensor: 8
"""

STUDY = f"""\
# our cluster
{HEAD}  - name: first   # of this quarter
    model: llama-3-8b
    sequence: 4096
    global_batch: 128
    tokens: 2e9
    layout: {{tensor: 2, sequence_parallel: true}}
    overlap: {{tp: true}}
{SECOND}variants:
  - name: slow
    set: {{cluster.compute.oversubscription: 2}}
"""

FOUND = """\
# railwright; written by railwright search
# predicted: 1 s a step
jobs:
  - name: {name}
    model: somewhere/else.json
    sequence: 4096
    global_batch: 128
    micro_batch: 4
    tokens: 2e+09
    dtype: bf16
    software: fsdp-2025
    layout:
      tensor: 4
      zero: 2
"""


@pytest.mark.parametrize("name", ["first", "second"])
def test_the_job_has_what_was_found_and_all_else_stays(name: str) -> None:
    before = load_study_text(STUDY)
    text = in_study(STUDY, "jobs", name, FOUND.replace("{name}", name))
    after = load_study_text(text)
    at = ["first", "second"].index(name)
    job = after.jobs[at]
    assert (job.layout.tensor, job.layout.zero, job.layout.sequence_parallel) == (4, 2, False)
    assert (job.micro_batch, job.software) == (4, "fsdp-2025")
    assert job.overlap.tp is False
    assert after.jobs[1 - at] == before.jobs[1 - at]
    kept = {"layout", "overlap", "micro_batch", "software"}
    assert job.model_dump(exclude=kept) == before.jobs[at].model_dump(exclude=kept)
    assert after.model_dump(exclude={"jobs"}) == before.model_dump(exclude={"jobs"})
    assert text.startswith(
        "# railwright; written by railwright search\n# predicted: 1 s a step\n# our cluster\n"
    )
    assert "# of this quarter" in text
    assert "sequence: 8192   # long" in text


def test_an_anchor_that_jobs_share_is_theirs_alone_afterwards() -> None:
    shared = STUDY.replace("layout: {tensor: 2, sequence_parallel: true}", "layout: &both {tensor: 2}")
    shared = shared.replace("    layout:\n      tensor: 8\n", "    layout: *both\n")
    assert load_study_text(shared).jobs[1].layout.tensor == 2
    after = load_study_text(in_study(shared, "jobs", "first", FOUND.replace("{name}", "first")))
    assert [job.layout.tensor for job in after.jobs] == [4, 2]


def test_a_rate_asked_for_is_written() -> None:
    text = (EXAMPLES / "serving-llama-70b-users.yaml").read_text()
    study = load_study_text(text)
    name = study.serving[0].name
    found = (
        f"# said\nserving:\n  - name: {name}\n    model: x\n    layout:\n      tensor: 4\n    replicas: 3\n"
    )
    after = load_study_text(in_study(text, "serving", name, found, rate=7.0)).serving[0]
    assert (after.layout.tensor, after.replicas, after.client.rate) == (4, 3, 7.0)
    assert after.slo == study.serving[0].slo
    assert (after.client.kind, after.client.concurrency) == ("poisson", None)


COMMENTED = f"""\
{HEAD}  # the first
  - name: first
    model: llama-3-8b
    sequence: 4096
    # above the batch
    global_batch: 128
    tokens: 2e9
    # above the layout
    layout:
      tensor: 2 # inside
      # inside too
      sequence_parallel: true
    # above the overlap
    overlap:
      tp: true

  # the second
{SECOND}
# what may come
variants:
  # slower
  - name: slow
    set: {{cluster.compute.oversubscription: 2}}
"""


@pytest.mark.parametrize("name", ["first", "second"])
def test_comments_above_what_stays_stay_above_it(name: str) -> None:
    text = in_study(COMMENTED, "jobs", name, FOUND.replace("{name}", name))
    load_study_text(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]

    def above(comment: str) -> str:
        return lines[lines.index(comment) + 1]

    assert above("# the first") == "- name: first"
    assert above("# above the batch") == "global_batch: 128"
    assert above("# above the layout") == "layout:"
    assert above("# the second") == "- name: second"
    assert above("# what may come") == "variants:"
    assert above("# slower") == "- name: slow"
    if name == "second":
        assert above("# above the overlap") == "overlap:"
        assert "# inside too" in lines


def test_variants_that_change_the_job_are_named() -> None:
    more = "  - name: wide\n    set: {jobs.first.layout.tensor: 8}\n"
    for name, told in (("first", True), ("second", False)):
        text = in_study(STUDY + more, "jobs", name, FOUND.replace("{name}", name))
        assert ("# written for the layout before, and kept: 'wide'\n" in text) == told
        assert len(load_study_text(text).variants) == 2


def test_an_export_of_an_export_has_one_head() -> None:
    once = in_study(STUDY, "jobs", "first", FOUND.replace("{name}", "first"))
    assert in_study(once, "jobs", "first", FOUND.replace("{name}", "first")) == once
