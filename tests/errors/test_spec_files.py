"""What is no study at all is refused in one sentence: no file, no text, no YAML, no fields."""

import os

import pytest

from railwright.errors import SpecError
from railwright.spec import load_study, load_study_text


def refusal(path):
    with pytest.raises(SpecError) as error:
        load_study(path)
    return str(error.value)


def test_a_missing_file_names_its_neighbour(tmp_path):
    (tmp_path / "study.yaml").write_text("a: 1\n")
    path = tmp_path / "stduy.yaml"
    assert refusal(path) == f"{path}: no such file; did you mean 'study.yaml'?"


def test_a_missing_folder(tmp_path):
    assert "does not exist either" in refusal(tmp_path / "nowhere" / "study.yaml")


def test_a_folder(tmp_path):
    assert "this is a folder" in refusal(tmp_path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser can read every file")
def test_an_unreadable_file(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("a: 1\n")
    path.chmod(0)
    assert "cannot be read: Permission denied" in refusal(path)


def test_an_unreadable_file_for_the_superuser_too(tmp_path, monkeypatch):
    def refuse(self, mode="r"):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    assert "cannot be read: Permission denied" in refusal(tmp_path / "study.yaml")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF\x00\x01", "this is a binary file"),
        ("name: a\n".encode("utf-16"), "s.yaml: this is UTF-16 text; save the file as UTF-8"),
        (b"\xfe\xff" + "name: a\n".encode("utf-16-be"), "this is UTF-16 text"),
        ("name: a\n".encode("utf-32"), "this is UTF-32 text"),
        (b"name: a\nquestion: caf\xe9\n", "s.yaml:2: not UTF-8 text (byte 0xe9)"),
        (b"", "the file is empty; `railwright init` writes one"),
        (b"# only a comment\n", "the file is empty"),
        (b"cluster:\n\tservers: 4\n", "s.yaml:2:1: not YAML: a tab indents this line; use spaces"),
        (b"cluster:\n  servers: 4\n \tserver: a\n", "a tab indents this line"),
        (b"a: b: c\n", "s.yaml:1:5: not YAML: mapping values are not allowed here"),
        (b"a: [1, 2\n", "not YAML: expected ',' or ']'"),
        (b'a: "b\n', "not YAML: found unexpected end of stream"),
        (b"a: *b\n", "s.yaml:1:4: not YAML: found undefined alias 'b'"),
        (b"a: 1\n---\na: 2\n", "a study file holds one document"),
        (b"a: \x01\n", "s.yaml:1:4: the character U+0001 is not allowed"),
        (b"- a\n", "s.yaml:1:1: a study is a set of fields"),
        (b"just text\n", "s.yaml:1:1: a study is a set of fields"),
        (b"? [a]\n: 1\n", "s.yaml:1:3: a field name must be one word"),
        (b"[" * 1000, "nested too deeply"),
        (b"a: &a [*a]\n", "nested too deeply"),
    ],
)
def test_what_is_no_study(tmp_path, monkeypatch, content, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_bytes(content)
    assert said in refusal("s.yaml")


def test_a_small_file_that_expands_without_end_is_refused():
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(SpecError, match="expands to more than 100,000 values"):
        load_study_text("\n".join(lines))


def test_a_byte_order_mark_and_windows_lines_are_read(tmp_path):
    path = tmp_path / "study.yaml"
    text = "railwright: 1\nname: a\ncluster:\n  servers: 1\n  server: s\n"
    text += "  compute: {family: fat-tree, switch: q}\n"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert load_study(path) == load_study_text(text)


def test_anchors_and_aliases_are_yaml_and_work():
    text = (
        "railwright: 1\nname: &n a\nquestion: *n\ncluster:\n  servers: 012\n  server: s\n"
        "  compute: {family: fat-tree, switch: q}\n"
    )
    study = load_study_text(text)
    assert study.question == "a"
    assert study.cluster.servers == 12  # YAML 1.2: a leading zero is no octal


def test_files_named_in_a_study_are_relative_to_it(tmp_path):
    text = (
        "railwright: 1\nname: a\ncatalog: parts.yaml\ncluster:\n  servers: 1\n  server: s\n"
        "  compute: {family: fat-tree, switch: q}\n"
        "jobs:\n  - {name: j, model: m/config.json, sequence: 1, global_batch: 1, tokens: 1}\n"
        "variants:\n  - {name: v, set: {jobs.j.model: n/config.json, catalog: other.yaml}}\n"
    )
    (tmp_path / "study.yaml").write_text(text)
    study = load_study(tmp_path / "study.yaml")
    assert study.catalog == str(tmp_path / "parts.yaml")
    assert study.jobs[0].model == str(tmp_path / "m" / "config.json")
    assert study.variants[0].set == {
        "jobs.j.model": str(tmp_path / "n" / "config.json"),
        "catalog": str(tmp_path / "other.yaml"),
    }
