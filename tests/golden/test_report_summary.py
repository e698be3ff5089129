"""The terminal summary: what it says, and that it fits 80 columns and a pipe."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from railwright.report import summary
from railwright.report.words.figures import letter, show_band
from railwright.study.result import VariantResult
from railwright.units import show_time
from report_fixture import example_result


def printed(result, width: int = 80, folder=None) -> str:
    out = io.StringIO()
    summary(result, Console(file=out, width=width), folder)
    return out.getvalue()


def test_it_fits_80_columns_without_colour_codes():
    text = printed(example_result(), folder="out")
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "…" not in text.replace("+40 % … +61 %", ""), "nothing is cut off"


def test_it_says_what_a_person_wants_to_know():
    result = example_result()
    text = printed(result, folder="out")
    flat = " ".join(text.split())
    assert result.study.question in flat
    for sentence in result.answer:
        assert sentence in flat
    for expected in (
        "switches",
        "cables",
        "tokens/s",
        "network",
        "47.5 GB/s",
        "496",
        "+20.4 %",
        "about +50 %",
    ):
        assert expected in text
    assert "out/report.html" in text
    assert "at 0.88 to 1.22 times the predicted time" in flat
    assert "expert loads are taken as balanced" in text


def test_a_sweep_that_ends_at_its_small_size_has_one_column():
    result = example_result()
    variants = tuple(
        replace(v, curves=tuple(replace(c, points=c.points[:1]) for c in v.curves)) for v in result.variants
    )
    short, full = (
        next(line for line in printed(one).splitlines() if "switches cables" in line)
        for one in (replace(result, variants=variants), result)
    )
    assert len(re.findall("[KMG]iB", short)) == 1
    assert len(re.findall("[KMG]iB", full)) == 2


def test_every_job_is_in_it():
    result = example_result()
    first = result.variants[0].jobs[0]
    assert "Other jobs" not in printed(result)
    slow = replace(first, name="pretrain", step=replace(first.step, step_time=7.77))
    rare = replace(first, name="ranking", step=replace(first.step, step_time=0.123, unit="samples"))
    several = replace(result.variants[0], jobs=(first, slow, rare))
    text = printed(replace(result, variants=(several, *result.variants[1:])))
    assert max(map(len, text.splitlines())) <= 80
    assert "exposed communication: fine-tune." in " ".join(text.split())
    rows = [line.split()[:4] for line in text.splitlines()]
    assert ["A", "pretrain", "7.77", "s"] in rows
    assert ["A", "ranking", "123", "ms"] in rows
    assert "Other jobs, by samples" in text


def test_the_whole_run_is_told_with_its_range_utilisation_and_memory():
    result = example_result()
    text = printed(result)
    step = result.variants[0].jobs[0].step
    cells = (
        show_time(step.time_to_train),
        show_band(step.time_to_train, 0.88, 1.22, show_time),
        f"{step.gpu_hours:.0f}",
        "31.0 %",
        "60.2 GiB",
    )
    assert f"A Rails with PXN {' '.join(cells)}" in " ".join(text.split())
    told = "For 2 billion tokens, nothing failing; memory of the fullest GPU, which has 74.5 GiB."
    assert told in " ".join(text.split())
    assert "Software: megatron-2025, the default (others: railwright catalog list software)." in text


def test_memory_is_held_against_the_gpus_of_its_own_variant():
    """An H100 design beside one of B300 had 'which has 79.6 GiB' under both."""
    result = example_result()
    last = result.variants[-1]
    job = last.jobs[0]
    larger = replace(job.step, memory=replace(job.step.memory, capacity=2.0 * job.step.memory.capacity))
    mixed = (*result.variants[:-1], replace(last, jobs=(replace(job, step=larger),)))
    marks = [letter(i) for i in range(len(mixed))]
    flat = " ".join(printed(replace(result, variants=mixed)).split())
    assert f"which has 74.5 GiB ({', '.join(marks[:-1])}), 149 GiB ({marks[-1]})." in flat


def test_whole_runs_of_several_jobs_say_whose_budget_is_which():
    result = example_result()
    first = result.variants[0].jobs[0]
    slow = replace(first, name="pretrain", step=replace(first.step, time_to_train=8.64e6, tokens_total=1e12))
    rare = replace(first, name="ranking", step=replace(first.step, unit="samples"))
    jobs = (
        *result.study.jobs,
        result.study.jobs[0].model_copy(update={"name": "pretrain", "software": "fsdp-2025"}),
    )
    several = replace(
        result,
        study=result.study.model_copy(update={"jobs": jobs}),
        variants=(replace(result.variants[0], jobs=(first, slow, rare)),),
    )
    text = printed(several)
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    assert "A pretrain 100 d 88 d to 122 d" in flat
    assert (
        "For 2 billion tokens (fine-tune), 1 trillion tokens (pretrain), 2 billion samples (ranking)" in flat
    )
    assert "Software of fine-tune: megatron-2025, the default" in flat
    assert "Software of pretrain: fsdp-2025 (others:" in flat


def test_sensitivity_has_the_largest_effect_first():
    text = printed(example_result())
    places = [text.index(name) for name in ("Overlap the expert", "Expert imbalance", "ECMP", "NIC latency")]
    assert places == sorted(places)


def test_what_cannot_work_is_told_with_its_reason():
    result = example_result()
    impossible = VariantResult(
        "Two tiers", "", None, None, (), (), infeasible="needs 4,096 ports and has 2,048"
    )
    text = printed(replace(result, variants=(result.variants[0], impossible)))
    assert "B cannot work: needs 4,096 ports and has 2,048" in text
    first = result.variants[0]
    unreached = replace(first, curves=(), notes=(*first.notes, "all_to_all: no live path"))
    text = printed(replace(result, variants=(first, unreached)))
    assert "B cannot work: all_to_all: no live path" in text
    assert "A cannot work" not in text


@pytest.mark.parametrize("missing", ["jobs", "curves"])
def test_a_study_without_some_parts_still_prints(missing):
    result = example_result()
    variants = tuple(replace(v, **{missing: ()}) for v in result.variants)
    text = printed(replace(result, variants=variants, sensitivity=(), published=()))
    assert ("tokens/s" in text) == (missing == "curves" or "tokens/s" in " ".join(result.answer))
    assert "Rails with PXN" in text


def test_files_without_anything_in_them_are_called_so():
    result = example_result()
    bare = tuple(replace(v, jobs=(), curves=()) for v in result.variants)
    text = printed(replace(result, variants=bare, sensitivity=(), published=()), folder="out")
    assert "trace.json   no events: no job runs" in text
    assert "sweeps.csv   no points: no sweep runs" in text


def test_of_a_long_step_the_files_say_where_the_trace_has_whole_passes():
    result = example_result()
    job = result.variants[0].jobs[0]
    coarse = replace(job.step.timeline, coarse=(0.25, 1.5))
    first = replace(result.variants[0], jobs=(replace(job, step=replace(job.step, timeline=coarse)),))
    text = printed(replace(result, variants=(first, *result.variants[1:])), folder="out")
    assert "trace.json   one step for ui.perfetto.dev, whole passes 250 ms to 1.5 s" in text
    assert max(map(len, text.splitlines())) <= 80


def test_brackets_in_names_are_text_not_markup():
    result = example_result()
    odd = replace(result.variants[0], name="rails [bold]x[/bold]")
    assert "[bold]x[/bold]" in " ".join(printed(replace(result, variants=(odd,)), width=120).split())


@pytest.mark.parametrize("width", [40, 50, 59])
def test_a_narrow_terminal_gets_a_block_per_variant_with_its_whole_name(width):
    result = example_result()
    text = printed(result, width)
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.split())
    for mark, variant in zip("ABCDE", result.variants, strict=True):
        assert f"{mark} {variant.name} switches {variant.counts.switches:,} cables" in flat


def test_a_wide_enough_terminal_keeps_the_table():
    assert "switches cables" in " ".join(printed(example_result(), 80).split())
    assert "switches cables" not in " ".join(printed(example_result(), 59).split())


def test_jobs_of_different_bands_have_a_line_each():
    """The band is of the job's own family of records, not of the study's first job."""
    result = example_result()
    first = result.variants[0].jobs[0]
    wide = replace(first, name="pretrain", step=replace(first.step, error_low=0.71, error_high=1.3))
    text = printed(replace(result, variants=(replace(result.variants[0], jobs=(first, wide)),)))
    flat = " ".join(text.split())
    assert "Step times of fine-tune: 80 % of measurements are expected at 0.88 to 1.22 times" in flat
    assert "Step times of pretrain: 80 % of measurements are expected at 0.71 to 1.30 times" in flat
