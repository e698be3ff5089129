"""Our data files, read fast, are what the reader of users' files makes of them, to the type of each value."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

import railwright
from railwright.shipped import parse, read_data

SOURCE = Path(railwright.__file__).parent
SHIPPED = sorted(SOURCE.rglob("data/**/*.yaml"))
SCALARS = """
words: [on, off, yes, no, y, n, On, NO, e3, 1:30, 12:30:45, 0.1.2, 1-2, 2024-1, v1.0, 1e, .e3, 1.e, _1]
quoted: ["1", '2', "on", '1e9']
truth: [true, True, TRUE, false, False, FALSE]
whole: [0, -1, +7, 10, 010, 08, 1_000, 123456789012345678901234567890]
real: [1e9, 1E9, 1e-9, 1.5e+3, 0.5, .5, -.5, 1., 1_000.5, .inf, -.inf, -1.0e-7, 400e9, 00.5]
dates: [2026-11-22]
nothing: [~, null, Null, NULL, ]
base: &base {a: 1, b: [2, 3]}
merged: {<<: *base, a: 2}
block: >-
  two lines
  in one
2: a number is a key
"""


def typed(tree):
    """The tree with the type of each leaf beside it, for 1 == 1.0 == True; the order of keys is kept."""
    if isinstance(tree, dict):
        return [(typed(key), typed(value)) for key, value in tree.items()]
    if isinstance(tree, list):
        return ["list", *map(typed, tree)]
    return type(tree).__name__, tree


def slowly(text):
    return YAML(typ="safe", pure=True).load(text)


def test_there_are_data_files():
    assert len(SHIPPED) > 40


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_shipped_file_says_the_same_to_both_readers(path):
    text = path.read_text(encoding="utf-8")
    assert typed(parse(text)) == typed(slowly(text))


def test_plain_scalars_are_those_of_yaml_1_2():
    assert typed(parse(SCALARS)) == typed(slowly(SCALARS))
    assert parse(SCALARS)["real"][0] == 1e9
    assert parse(SCALARS)["words"][:3] == ["on", "off", "yes"]


def test_reading_by_python_alone_says_the_same(monkeypatch):
    import yaml

    from railwright import shipped

    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    shipped._loader.cache_clear()
    try:
        assert typed(parse(SCALARS)) == typed(slowly(SCALARS))
        assert issubclass(shipped._loader(), yaml.SafeLoader)
    finally:
        monkeypatch.undo()
        shipped._loader.cache_clear()


def test_a_tree_is_the_callers_own():
    read_data("cost", "carbon.yaml").clear()
    assert read_data("cost", "carbon.yaml")
