"""The validation table's arithmetic, by hand."""

from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.measure.table import Bar, Row, Skipped, ValidationTable, quantile


def table(bar: float = 0.1) -> ValidationTable:
    rows = [
        Row("steps", "a", "", 1.1, 1.0, "s", ""),
        Row("steps", "b", "", 0.8, 1.0, "s", ""),
        Row("steps", "c", "", 1.0, 1.0, "s", ""),
        Row("counts", "d", "", 0.0, 0.0, "", ""),
    ]
    return ValidationTable(tuple(rows), (Skipped("steps", "e", "too new"),), {"steps": Bar(bar, "test")})


def test_error_is_signed_and_relative_to_the_measurement():
    assert [round(r.error, 9) for r in table().rows] == [0.1, -0.2, 0.0, 0.0]


def test_a_published_zero_is_met_or_infinitely_missed():
    assert Row("f", "r", "", 0.0, 0.0, "", "").error == 0
    assert Row("f", "r", "", 3.0, 0.0, "", "").error == float("inf")


def test_summary_of_a_family_by_hand():
    steps = table().families()[0]
    assert (steps.records, steps.skipped) == (3, 1)
    assert round(steps.median_abs, 9) == 0.1  # of 0, 0.1, 0.2
    assert round(steps.mean_abs, 9) == 0.1
    assert round(steps.bias, 9) == round(-0.1 / 3, 9)
    assert round(steps.worst, 9) == -0.2


def test_a_bar_can_fail():
    assert table(0.1).passed
    assert not table(0.09).passed
    assert any("MISS" in line for line in table(0.09).lines())


def test_band_is_of_measured_over_predicted():
    low, high = table().band("steps", level=1.0)
    assert round(low, 9) == round(1 / 1.1, 9)
    assert round(high, 9) == 1.25


def test_quantile_interpolates():
    assert quantile([0.0, 10.0], 0.9) == 9.0
    assert quantile([5.0], 0.9) == 5.0


def test_detail_names_records_and_reasons():
    text = "\n".join(table().lines(detail=True))
    assert "too new" in text
    assert text.index(" b:") < text.index(" a:")  # worst first


def test_columns_stay_apart_where_errors_are_of_thousands_of_per_cent():
    """2605.0% fills a column of seven, and ran into the one before."""
    rows = tuple(Row("far", name, "", 27.05, 1.0, "s", "") for name in "ab")
    line = next(s for s in ValidationTable(rows, (), {}).lines() if s.startswith("far"))
    assert line.split() == ["far", "2", "0", *3 * ["2605%"], *2 * ["+2605%"]]
    rows = (Row("far", "a", "", 4.929, 1.0, "s", ""),)
    assert "392.9% 392.9% 392.9%  +393% +392.9%" in ValidationTable(rows, (), {}).lines()[1]


def test_what_is_not_predicted_is_skipped_and_left_out_is_said_of_the_fit_alone():
    lines = table().lines(detail=True)
    assert lines[0].split()[:3] == ["family", "points", "skip"]
    assert "  skipped (1): too new" in lines
    unseen = Row("steps", "a", "", 1.1, 1.0, "s", "", left_out=1.2)
    found = ValidationTable((unseen,), (), {}).lines(detail=True)
    assert "  median where the fit has not seen the record: 20.0%" in found


def test_the_command_says_what_its_columns_mean_and_what_was_fitted():
    printed = " ".join(CliRunner().invoke(app, ["validate", "designs"]).stdout.split())
    assert "Errors are predicted / measured - 1" in printed
    assert "skip: records this version does not model" in printed
    assert "fitted to the records of these rows" in printed
