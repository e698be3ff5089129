"""Files are written all or none, and never over one that is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.errors import PlanError
from railwright.export.files import write_new


def test_what_was_begun_is_taken_back(tmp_path: Path) -> None:
    """The second file cannot be written: its folder is a file."""
    (tmp_path / "taken").write_text("mine")
    files = {tmp_path / "new" / "one.txt": "1", tmp_path / "taken" / "two.txt": "2"}
    with pytest.raises(PlanError, match=r"^cannot write '.*taken.*': .*; name another place$"):
        write_new(files)
    assert not (tmp_path / "new" / "one.txt").exists()
    assert (tmp_path / "taken").read_text() == "mine"


def test_what_cannot_be_encoded_leaves_nothing(tmp_path: Path) -> None:
    """Half of a surrogate pair has no UTF-8."""
    with pytest.raises(UnicodeEncodeError):
        write_new({tmp_path / "one.txt": "1", tmp_path / "two.txt": "2" * 100_000 + "\ud800"})
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_where_one_is_there(tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("mine")
    with pytest.raises(PlanError, match=r"two\.txt' exists already and is not overwritten"):
        write_new({tmp_path / "one.txt": "1", tmp_path / "two.txt": "2"})
    assert [file.name for file in tmp_path.iterdir()] == ["two.txt"]
    assert write_new({tmp_path / "three.txt": "3"}) == [tmp_path / "three.txt"]
