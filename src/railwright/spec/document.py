"""YAML and JSON text as plain values, with the place of every key and value for mistakes to point at."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from railwright.errors import Mistake, SpecError, nearest

Path_ = tuple[str | int, ...]
Place = tuple[int, int]

_MAX_BYTES = 4 * 2**20
_MAX_VALUES = 100_000
_MAX_INTEGER = 2**63 - 1
"""Products of a few such numbers still fit a float; nothing that a study counts is as many."""
_MAX_DIGITS = 100
"""More than such a number has in any base; Python refuses to read thousands."""
_WIDE = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""Byte order marks of text in wider units; UTF-32's begins as UTF-16's does."""
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Document:
    """What a YAML file holds.

    plain     dicts, tuples (for lists), text, numbers, booleans and None
    keys      (line, column) of the key that names a value, by path
    values    (line, column) of the value itself, by path
    mistakes  what is wrong whatever the fields mean: keys written twice, keys that are no text
    """

    name: str
    plain: Any
    keys: Mapping[Path_, Place]
    values: Mapping[Path_, Place]
    mistakes: tuple[Mistake, ...]

    def mistake(self, path: Path_, message: str, at_key: bool = False) -> Mistake:
        """A mistake at a path: at its key or its value, or at the nearest parent that was written."""
        known = path
        places = (self.keys, self.values) if at_key else (self.values, self.keys)
        place = None
        while place is None:
            place = places[0].get(known, places[1].get(known))
            if not known:
                break
            if place is None:
                # Something that is not there is missing from its parent, which is best found by its name.
                known, places = known[:-1], (self.keys, self.values)
        line, column = place or (1, 1)
        return Mistake(self.name, line, column, dotted(path), message)


def dotted(path: Path_) -> str:
    """('jobs', 0, 'layout') as 'jobs.0.layout'."""
    return ".".join(str(step) for step in path)


def read_text(path: Path) -> str:
    """The text of a file the user named.

    Raises SpecError when it is missing (with the nearest name beside it), a folder, unreadable, too large,
    or not UTF-8 text.
    """

    def refuse(message: str, line: int = 0) -> SpecError:
        return SpecError([Mistake(str(path), line, 0, "", message)])

    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise refuse(f"no such file{_neighbours(path)}") from None
    except IsADirectoryError:
        raise refuse("this is a folder; name the study file in it") from None
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror or error}") from None
    if len(content) > _MAX_BYTES:
        raise refuse(f"larger than {_MAX_BYTES // 2**20} MiB; a study file has some kilobytes")
    wide = next((name for mark, name in _WIDE.items() if content.startswith(mark)), None)
    if wide is not None:
        raise refuse(f"this is {wide} text; save the file as UTF-8")
    if b"\0" in content:
        raise refuse("this is a binary file; a study is YAML text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise refuse(
            f"not UTF-8 text (byte 0x{content[error.start]:02x}); save the file as UTF-8", line
        ) from None


def read_yaml(text: str, name: str) -> Document:
    """The document in `text`; `name` is how mistakes call the file.

    Raises SpecError when the text is not YAML, is empty, or holds several documents.
    """
    try:
        root = YAML(typ="safe", pure=True).compose(text)
        if root is None:
            raise SpecError(
                [Mistake(name, 0, 0, "", "the file is empty; `railwright init` writes one to start from")]
            )
        walk = _Walk(name)
        plain = walk.value(root, ())
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        character = error.character if isinstance(error.character, int) else ord(str(error.character)[0])
        message = f"the character U+{character:04X} is not allowed in YAML; delete it"
        raise SpecError([Mistake(name, line, column, "", message)]) from None
    except YAMLError as error:
        raise SpecError([_syntax(error, text, name)]) from None
    except RecursionError:
        raise SpecError([Mistake(name, 0, 0, "", "nested too deeply to be a study")]) from None
    return Document(name, plain, walk.keys, walk.values, tuple(walk.mistakes))


def read_json(text: str, name: str, kind: str) -> Any:
    """What JSON text of somebody else's holds; `name` is how mistakes call the file.

    kind  what is expected, e.g. 'Hugging Face config.json'
    Raises SpecError where the text is not JSON, cannot be read, or an object has a key twice, of which
    Python's reader would take the last.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except _Doubled:
        # JSON is YAML but for tabs, which no JSON string holds.
        raise SpecError(read_yaml(text.replace("\t", " "), name).mistakes) from None
    except json.JSONDecodeError as error:
        message = f"not valid JSON ({error.msg}); a whole {kind} is expected, perhaps this one is cut off."
        raise SpecError([Mistake(name, error.lineno, error.colno, "", message)]) from None
    except (RecursionError, ValueError):
        # Python stops at some thousand digits of one number, and at some thousand brackets.
        message = f"a number is too long or the nesting too deep to be a {kind}."
        raise SpecError([Mistake(name, 0, 0, "", message)]) from None


class _Doubled(ValueError):
    """An object of a JSON text has a key twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Doubled
    return found


@dataclass
class _Walk:
    """One pass over the composed nodes that collects values, places and mistakes."""

    name: str
    keys: dict[Path_, Place] = field(default_factory=dict)
    values: dict[Path_, Place] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    seen: int = 0

    def value(self, node: Node, path: Path_) -> Any:
        if node.start_mark.index < node.end_mark.index:
            # What is empty stands nowhere (its mark is the next line's); its key stands for it.
            self.values[path] = _place(node)
        self.seen += 1
        if self.seen > _MAX_VALUES:
            # Aliases can make a small file expand without end.
            raise SpecError([Mistake(self.name, 0, 0, "", f"expands to more than {_MAX_VALUES:,} values")])
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return tuple(self.value(item, (*path, index)) for index, item in enumerate(node.value))
        assert isinstance(node, ScalarNode)
        return self._scalar(node, path)

    def _mapping(self, node: MappingNode, path: Path_) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            line, column = _place(key)
            if not isinstance(key, ScalarNode):
                self.mistakes.append(
                    Mistake(self.name, line, column, dotted(path), "a field name must be one word")
                )
                continue
            here = (*path, str(key.value))
            if key.value in found:
                first = self.keys[here][0]
                message = f"written twice; the first is in line {first}, delete one"
                self.mistakes.append(Mistake(self.name, line, column, dotted(here), message))
                continue
            self.keys[here] = (line, column)
            found[str(key.value)] = self.value(value, here)
        return found

    def _scalar(self, node: ScalarNode, path: Path_) -> Any:
        text = str(node.value)
        tag = str(node.tag).removeprefix(_TAG)
        if tag in ("str", "timestamp", "merge", "value"):
            return text
        if tag == "null":
            return None
        if tag == "bool":
            return text.lower() == "true"
        try:
            if tag == "int":
                return self._integer(node, path, text)
            if tag == "float":
                return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan").lower())
        except ValueError:
            pass
        what = "cannot be read as a number" if tag in ("int", "float") else ""
        return self._wrong(node, path, f"'{_short(text)}' {what}" if what else f"unknown YAML tag '{tag}'")

    def _integer(self, node: ScalarNode, path: Path_, text: str) -> Any:
        digits = text.replace("_", "")
        # YAML 1.2 (10.2.1.3, 10.3.2): 012 is twelve; 0o and 0x are octal and hexadecimal.
        base = 0 if digits.lstrip("+-")[:2].lower() in ("0o", "0x", "0b") else 10
        if len(digits) <= _MAX_DIGITS and abs(value := int(digits, base)) <= _MAX_INTEGER:
            return value
        return self._wrong(node, path, f"{_short(text)} is too large for a whole number")

    def _wrong(self, node: ScalarNode, path: Path_, message: str) -> str:
        """Keep a mistake; the shortened text of a value that stands for nothing."""
        line, column = _place(node)
        self.mistakes.append(Mistake(self.name, line, column, dotted(path), message))
        return _short(str(node.value))


def _short(text: str) -> str:
    """Text as a sentence can quote it."""
    return text if len(text) <= 40 else f"{text[:40]}…"


def _place(node: Node) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _syntax(error: YAMLError, text: str, name: str) -> Mistake:
    """What the YAML parser stumbled over, in our words where the cause is a common one."""
    if not isinstance(error, MarkedYAMLError):
        return Mistake(name, 0, 0, "", f"not YAML: {error}")
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    problem = error.problem or error.context or "cannot be read"
    lines = text.splitlines()
    here = lines[line - 1] if 0 < line <= len(lines) else ""
    indent = here[: len(here) - len(here.lstrip())]
    if "\t" in indent:
        return Mistake(
            name, line, indent.index("\t") + 1, "", "not YAML: a tab indents this line; use spaces"
        )
    if "mapping values are not allowed" in problem:
        problem += "; indent this line like its neighbours, or put text that holds ': ' in quotes"
    if "another document" in problem:
        problem = "a study file holds one document; remove the '---' line"
    return Mistake(name, line, column, "", f"not YAML: {problem}")


def _neighbours(path: Path) -> str:
    try:
        names = sorted(p.name for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml"))
    except OSError:
        return f"; the folder '{path.parent}' does not exist either"
    return nearest(path.name, names)
