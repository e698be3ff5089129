"""What the report refuses: a folder that is there, a place it cannot write to; it never leaves a half."""

import pytest

from railwright.errors import RailwrightError
from railwright.report import folder as report_folder
from railwright.report import refuse_existing, write
from report_fixture import example_result


def test_an_existing_folder_is_refused_and_left_as_it_is(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("precious")
    with pytest.raises(RailwrightError, match=r"'.*out' exists and results are never.*--out .*out-2"):
        write(example_result(), out)
    assert [p.name for p in out.iterdir()] == ["mine.txt"]
    assert (out / "mine.txt").read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_empty_folder_a_file_and_a_dangling_link_are_refused_too(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("empty", "file", "link"):
        with pytest.raises(RailwrightError, match=name):
            refuse_existing(tmp_path / name)


def test_a_parent_that_is_a_file_is_one_clear_sentence(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RailwrightError, match=r"cannot write to '.*file'.*choose another folder"):
        write(example_result(), tmp_path / "file" / "out")


def test_a_crash_while_writing_leaves_nothing(tmp_path, monkeypatch):
    def crash(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report_folder.Path, "write_bytes", crash)
    with pytest.raises(RailwrightError, match="No space left on device"):
        write(example_result(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_appears_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    out = tmp_path / "out"
    honest = report_folder.Path.write_bytes

    def meanwhile(path, data):
        out.mkdir(exist_ok=True)
        return honest(path, data)

    monkeypatch.setattr(report_folder.Path, "write_bytes", meanwhile)
    with pytest.raises(RailwrightError, match="never overwritten"):
        write(example_result(), out)
    assert list(out.iterdir()) == []
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
