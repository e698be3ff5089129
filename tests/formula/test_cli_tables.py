"""Tables of the command line on narrow and wide terminals."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from railwright.cli.tables import print_table

HEADER = ("", "step", "GiB", "held", "net GB", "tp", "cp", "pp x v", "ep", "mb", "recompute", "other")
ROW = (
    "own",
    "1.38 s",
    "72.8",
    "76.8",
    "15.0",
    "1",
    "1",
    "2 x 16",
    "8",
    "1",
    "none",
    "zero 1, zb-h1, overlap dp pp",
)


def printed(capsys: pytest.CaptureFixture[str], width: int, *table: object) -> list[str]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", str(width))
        print_table(*table)  # type: ignore[arg-type]
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_word_of_a_search_breaks(capsys: pytest.CaptureFixture[str], width: int) -> None:
    """At 60 columns 'recompute' stood in four lines and 'zb-h1' in two."""
    lines = printed(capsys, width, HEADER, [ROW, ROW])
    assert all(len(line) <= width for line in lines)
    for word in " ".join((*HEADER, *ROW)).split():
        assert any(word in line for line in lines), word


def test_the_last_columns_stand_below_their_row_where_they_do_not_fit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = printed(capsys, 60, HEADER, [ROW])
    assert lines[0].split()[-1] == "mb"
    assert lines[3] == "     recompute none; other zero 1, zb-h1, overlap dp pp"


WORDS = st.text(alphabet="ab\u00d7 ", max_size=14).map(lambda text: " ".join(text.split()))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    width=st.integers(60, 120),
    table=st.integers(1, 6).flatmap(lambda n: st.lists(st.tuples(*[WORDS] * n), min_size=1, max_size=4)),
)
def test_nothing_is_lost_of_any_table(
    capsys: pytest.CaptureFixture[str], width: int, table: list[tuple[str, ...]]
) -> None:
    lines = printed(capsys, width, table[0], table[1:])
    text = "".join("".join(lines).split())
    for row in table:
        for letter in "ab\u00d7":
            assert text.count(letter) >= "".join(row).count(letter)
