"""The bill: rooms add up to the purchase, the workbook says what the tables say, nothing is overwritten."""

from __future__ import annotations

from functools import cache

import pytest

from railwright.asbuilt.read.dump import Dump
from railwright.asbuilt.read.workbook import sheets
from railwright.cost.options import middle, purchase
from railwright.errors import PlanError
from railwright.report.files.bill import whole_bill, write_bill
from railwright.spec import load_study_text, template
from railwright.study.evaluate import Workshop
from railwright.study.rooms import money, site


@cache
def made():
    study = load_study_text(template("rail-240"))
    workshop = Workshop.of(study)
    priced = money(study, workshop)
    return priced, whole_bill(priced, site(study, workshop))


def test_rooms_add_up_to_the_purchase():
    priced, bill = made()
    lines = priced.comparison.case.cluster.lines
    assert bill.total == pytest.approx(float(purchase(lines, middle(priced.comparison.book))))
    _, rows = bill.tables["summary"]
    assert rows[-1][2] == pytest.approx(sum(row[2] for row in rows[:-1]))
    for low, mid, high in (row[1:] for row in rows):
        assert low < mid < high
    _, priced_rows = bill.tables["priced"]
    assert sum(row[4] for row in priced_rows) == pytest.approx(bill.total)


def test_the_room_is_on_the_bill():
    _, rows = made()[1].tables["room"]
    assert {"rack", "pdu", "cord"} <= {str(row[0]).split()[0] for row in rows}


def test_the_workbook_says_what_the_tables_say(tmp_path):
    """Written by XlsxWriter, read back by our own reader of cable sheets."""
    bill = made()[1]
    (path,) = write_bill(bill, tmp_path / "bill.xlsx")
    read = dict(sheets(Dump(str(path), path.read_bytes(), "", ())))
    assert list(read) == list(bill.tables)
    for name, (heads, rows) in bill.tables.items():
        cells = [row for _, row in read[name]]
        assert cells[0] == list(heads)
        for ours, theirs in zip(rows, cells[1:], strict=True):
            for value, text in zip(ours, theirs, strict=False):
                assert (text == value) if isinstance(value, str) else float(text) == pytest.approx(value)
    with pytest.raises(PlanError, match="not overwritten"):
        write_bill(bill, tmp_path / "bill.xlsx")


def test_a_folder_of_csv_files(tmp_path):
    paths = write_bill(made()[1], tmp_path / "bill")
    assert [p.name for p in paths] == ["summary.csv", "priced.csv", "room.csv", "prices.csv"]
    assert (tmp_path / "bill" / "summary.csv").read_text().startswith("room,low USD,middle USD,high USD\n")


@pytest.mark.parametrize("name", ["bill.pdf", "bill.csv"])
def test_the_name_of_another_file_makes_no_folder(name, tmp_path):
    with pytest.raises(PlanError, match=rf"'{name}': a bill is a workbook"):
        write_bill(made()[1], tmp_path / name)
    assert not list(tmp_path.iterdir())
