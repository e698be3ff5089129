"""Bars and bands of predicted training steps, on rows made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from railwright.measure.bands import band
from railwright.measure.table import Row, Skipped
from railwright.measure.training.bands import EACH, GROWTH, bands, coverage
from railwright.measure.training.bars import at_most, lines, reached


def row(record: str, predicted: float, measured: float = 1.0, left_out: float | None = None) -> Row:
    family = "training dense H100 16-bit"
    return Row(family, record, "", predicted, measured, "s/step", "", left_out=left_out or predicted)


def record(family: str, gpus: int = 8, gbs: int = 8, quality: str = "A") -> dict[str, str]:
    fields = ("model", "gpu", "software", "dtype", "seq", "tp", "pp", "vpp", "cp", "ep", "mbs", "notes")
    return {
        **dict.fromkeys(fields, "x"),
        "family": family,
        "kind": "pretrain",
        "gpus": str(gpus),
        "gbs": str(gbs),
        "quality": quality,
    }


def bar(name: str, rows: list[Row], records: dict[str, dict[str, str]], skipped: tuple[Skipped, ...] = ()):  # type: ignore[no-untyped-def]
    return next(b for b in reached(rows, skipped, records) if b.what.startswith(name))


def test_mean_p90_and_worst_by_hand() -> None:
    # nine rows 5 % long and one 20 %: mean 6.5, p90 between the ninth and tenth: 5 + 0.1 * 15 = 6.5
    rows = [row(f"r{i}", 1.05) for i in range(9)] + [row("r9", 1.2)]
    records = {r.record: record("f") for r in rows}
    found = bar("dense", rows, records)
    assert found.reached == "6.5/6.5/20.0 %"
    assert found.met
    assert not bar("dense", [*rows, row("r10", 1.4)], {**records, "r10": record("f")}).met


def test_growth_of_a_series_in_points() -> None:
    # measured grows by 2 %, predicted by 6 %: 4 points off, and one more series that is met
    rows = [row("a", 1.0, 1.0), row("b", 1.06, 1.02), row("c", 1.0, 1.0), row("d", 1.01, 1.02)]
    records = {
        "a": record("dgxc-x", 8, 64),
        "b": record("dgxc-x", 64, 512),
        "c": record("dgxc-y", 8, 64),
        "d": record("dgxc-y", 64, 512),
    }
    found = bar("weak-scaling", rows, records)
    assert found.reached == "1 of 2, mean 2.5"
    assert not found.met


def test_peaks_of_memory_within_a_share() -> None:
    """Of all records that state one, and of SimuMax's alone; a bar of no record is not met."""
    peaks = [
        Row("memory allocated", "simumax-a", "", 1.01, 1.0, "GiB", ""),
        Row("memory resident", "bigscience-b", "", 0.9, 1.0, "GiB", ""),
    ]
    found = bar("peak memory", peaks, {})
    assert (found.reached, found.met) == ("1 of 2, mean 5.5%", False)
    assert bar("peak memory", peaks[:1], {}).met
    assert bar("SimuMax, B200, memory", peaks, {}).reached == "1 of 1, mean 1.0%"
    assert not bar("peak memory", [], {}).met


def test_two_readings_of_one_job_may_be_too_far_apart_for_any_model() -> None:
    def peak(measured: float, predicted: float = 41.0) -> Row:
        return Row("memory resident", "bigscience-a", "", predicted, measured, "GiB", "")

    assert at_most([peak(44.0), peak(38.0), peak(70.0, 66.0)], 0.07) == 2
    assert at_most([peak(43.7), peak(38.0), peak(44.0)], 0.07) == 2  # 41 is within 7 % of the first two
    assert at_most([peak(43.7), peak(38.0)], 0.07) == 2
    assert bar("peak memory", [peak(44.0), peak(38.0)], {}).asked == "all (1 can be)"


def test_ranking_of_a_sweep() -> None:
    # eight layouts, two neighbours exchanged: 1 - 6 * 2 / (8 * 63)
    predicted = [1, 2, 3, 4, 5, 6, 8, 7]
    rows = [row(f"r{i}", float(p), float(i + 1)) for i, p in enumerate(predicted)]
    records = {r.record: record("vtrain-gpt") for r in rows}
    found = bar("ranking", rows, records)
    assert found.reached.startswith(f"{1 - 12 / 504:.2f} of 1")
    assert found.met


def test_records_left_out_count_against_coverage() -> None:
    records = {name: record("f") for name in "abcd"}
    skipped = (Skipped("training dense H100 16-bit", "d", "why"),)
    found = bar("A records", [row(n, 1.0) for n in "abc"], records, skipped)
    assert (found.reached, found.met) == ("75.0%", False)


def test_a_band_never_sees_the_family_it_is_asked_for() -> None:
    # nine families at 1.00, one at 2.00: its own band is made of the others and does not contain it
    rows = [row(f"r{i}", 1.0) for i in range(9)] + [row("odd", 1.0, 2.0)]
    families = {r.record: r.record for r in rows}
    assert coverage(rows, families, dict.fromkeys(families, "one")) == (9, 10)


def test_a_framework_widens_the_band_of_its_jobs_alone() -> None:
    """Twenty families at 1.00 and four of another framework at 1.25 to 1.40, in one slice."""
    rows = [row(f"r{i}", 1.0) for i in range(20)] + [row(f"s{i}", 1.0, 1.25 + i / 20) for i in range(4)]
    families = {r.record: r.record for r in rows}
    frameworks = {name: "other" if name.startswith("s") else "one" for name in families}
    # of the four each is seen with three others': the highest lies above the highest of those, the lowest
    # is between 1.00, where the slice's band ends below, and their highest
    assert coverage(rows, families, frameworks) == (23, 24)
    made = yaml.safe_load(bands(rows, families, frameworks))
    assert (made["frameworks"]["dense one"]["high"], made["frameworks"]["dense other"]["low"]) == (1.0, 1.25)
    assert made["families"]["dense H100 16-bit"]["high"] == 1.3


def test_steps_that_wait_for_launches_have_a_band_of_their_own_besides() -> None:
    """Twenty families at 1.00, and four at 0.70 to 1.30 whose GPUs wait for launches in half of the step."""
    rows = [row(f"r{i}", 1.0) for i in range(20)]
    late = [row(f"s{i}", 1.0, 0.7 + i / 5) for i in range(4)]
    families = {r.record: r.record for r in (*rows, *late)}
    frameworks = dict.fromkeys(families, "one")
    plain = [*rows, *late]
    waiting = [*rows, *(replace(r, launches=0.5) for r in late)]
    # the two in the middle lie between those at the ends, which no other one reaches
    assert coverage(plain, families, frameworks) == (20, 24)
    assert coverage(waiting, families, frameworks) == (22, 24)
    assert "launches" not in yaml.safe_load(bands(plain, families, frameworks))
    made = yaml.safe_load(bands(waiting, families, frameworks))["launches"]["all"]
    assert (made["low"], made["high"]) == (0.7, 1.3)


def test_a_series_of_n_records_weighs_the_root_of_n() -> None:
    # a hundred records at 1.0 weigh as ten of the nine others, 1.1 to 1.9: 9 % of 19 lie above 1.8
    ratios = [1.0] * 100 + [1.0 + i / 10 for i in range(1, 10)]
    groups = ["series"] * 100 + [f"r{i}" for i in range(1, 10)]
    assert band(ratios, groups, GROWTH) == (1.0, 1.8)
    assert band(ratios, groups) == (1.0, 1.9)  # as one record: 9 % of 10
    rows = [row(f"r{i}", 1.0, ratio) for i, ratio in enumerate(ratios)]
    text = bands(
        rows, {r.record: g for r, g in zip(rows, groups, strict=True)}, {r.record: "one" for r in rows}
    )
    # each of two bands holds 76 %: 11 % of 19 lie above 1.7
    assert band(ratios, groups, GROWTH, EACH) == (1.0, 1.7)
    assert "high: 1.70" in text


def test_every_bar_is_one_line_of_80_columns() -> None:
    rows = [row(f"r{i}", 1.05) for i in range(9)]
    text = lines(reached(rows, (), {r.record: record("f") for r in rows}))
    assert len(text) > 10
    assert all(len(line) <= 80 for line in text)


@pytest.mark.parametrize("text", ["met", "NOT"])
def test_bars_say_whether_they_are_met(text: str) -> None:
    rows = [row(f"r{i}", 1.05) for i in range(9)]
    assert any(
        line.endswith(text) for line in lines(reached(rows, (), {r.record: record("f") for r in rows}))
    )


def test_a_records_memory_is_no_step() -> None:
    # `railwright validate` knows a record's memory too: neither it nor its refusal counts among the steps
    rows = [row("a", 1.0), row("b", 1.0)]
    memory = Row("memory resident", "a", "", 0.5, 1.0, "byte", "")
    records = {name: record("simumax") for name in "abc"}
    refused = (Skipped("memory resident", "c", "reserved bytes"),)
    for name in ("SimuMax", "A records"):
        assert bar(name, [*rows, memory], records, refused) == bar(name, rows, records)


def test_both_ends_of_a_band_are_the_same_quantile() -> None:
    """Mirrored ratios have the mirrored band, also where a share of the weight is reached exactly: what sums
    round off took 0.9 for one end and -0.79 for the same end mirrored."""
    groups = ["a", "b", "a", "b", "c", "b", "b", "b"]
    ratios = [1.15, 1.072, 1.089, 0.914, 1.031, 0.9, 1.082, 0.79]
    low, high = band(ratios, groups)
    assert band([-ratio for ratio in ratios], groups) == (-high, -low)
