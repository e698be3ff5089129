"""The page beside its predictions: the band of each, what it was made of, and what is between servers."""

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from railwright.report import page
from railwright.report.terminal import summary
from railwright.serving.engine.bands import error_bands
from railwright.spec import load_study_text
from railwright.study import run
from railwright.units import show_time
from report_fixture import example_result, section_text


@pytest.fixture(scope="module")
def html() -> str:
    return page(example_result())


def test_the_band_stands_under_every_key_figure_that_has_one(html):
    """0.88 to 1.22 times a step; a rate goes the other way, 1/1.22 to 1/0.88."""
    step = example_result().variants[0].jobs[0].step
    keys = html[html.index('class="keys"') : html.index("<nav")].replace("\u00a0", " ")
    assert f"80 %: {show_time(0.88 * step.step_time)} to {show_time(1.22 * step.step_time)}" in keys
    rate = step.tokens_per_second
    assert f"80 %: {rate / 1.22:,.0f} to {rate / 0.88:,.0f}" in keys
    assert keys.count("80 %: ") == 6, "step, tokens/s, MFU, time for all tokens, two bus bandwidths"


def test_the_band_of_each_step_stands_beside_it(html):
    table = section_text(html, "variants")
    times = [v.jobs[0].step.step_time for v in example_result().variants]
    for name, factor in (("from", 0.88), ("to", 1.22)):
        assert f"80 % of measurements {name} " + " ".join(show_time(factor * t) for t in times) in table


def test_samples_are_not_called_tokens():
    result = example_result()
    base = result.variants[0]
    job = base.jobs[0]
    ranking = replace(base, jobs=(replace(job, step=replace(job.step, unit="samples")),))
    table = section_text(page(replace(result, variants=(ranking,))), "variants")
    assert "samples/s" in table
    assert "time for all samples" in table
    assert "tokens" not in table


def test_every_band_says_what_it_is_of_and_was_made_of():
    """Sizes tell the bands of one algorithm apart; the note on a band is in its row, not in the list."""
    result = example_result()
    base = result.variants[0]
    curve = base.curves[0]
    points = tuple(
        replace(p, error_low=0.5 if i < 2 else 0.9, error_high=1.5, notes=("error band: 7 published curves",))
        for i, p in enumerate(curve.points)
    )
    job = base.jobs[0]
    told = replace(job, step=replace(job.step, error_source="23 records of 4 families"))
    one = replace(base, curves=(replace(curve, points=points),), jobs=(told,))
    text = section_text(page(replace(result, variants=(one,))), "error")
    assert "0.88 to 1.22 23 records of 4 families" in text
    rows = re.findall(r"all-to-all \(\w+\), ([^)]+?) (0\.\d\d) to 1\.50 7 published curves", text)
    assert len(rows) == len(set(rows)) >= 2
    assert "error band" not in text


def test_exposed_communication_says_how_much_of_it_leaves_the_servers(html):
    text = section_text(html, "step")
    assert "exposed between servers of the step all communication hidden" in text
    assert "network" not in text


def test_a_study_that_only_serves_says_how_far_off_its_latencies_may_be():
    """The bands that `railwright serve` prints, in terminal and page; never that nothing was predicted."""
    study = load_study_text("""
railwright: 1
name: served
cluster: {servers: 1, server: dgx-h100, compute: {family: single-switch, switch: qm9700}}
serving:
  - name: chat
    model: llama-3.1-8b
    engine: vllm-2026
    client: {kind: poisson, rate: 2, requests: 20, input: 200, output: 20}
""")
    result = run(study)
    low, high = error_bands("vllm-2026", moe=False)["TPOT"]
    out = StringIO()
    summary(result, Console(file=out, width=200))
    assert f"Mean time per token of chat: 80 % of measurements are expected at {low:.2f} to {high:.2f}" in (
        out.getvalue()
    )
    assert f"mean time per token of chat {low:.2f} to {high:.2f}" in section_text(page(result), "error")
    assert "Nothing was predicted" not in out.getvalue() + page(result)
