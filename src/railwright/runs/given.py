"""The arguments of a run as they were given, asked for one by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from railwright.errors import RailwrightError
from railwright.runs.shell import MISSING, UNSET

Number = TypeVar("Number", int, float)

FIELDS = {"cuda_graph_modules": "cuda_graph_scope", "use_custom_fsdp": "use_megatron_fsdp"}
"""Names of Megatron-core's configurations, and the older or newer ones that arguments are kept under."""

FORMATS = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16", "uint8": "fp8"}
"""Torch's number formats, and arguments' words for them (arguments.py: map_dtype)."""


@dataclass(frozen=True)
class Value:
    """What stands behind an argument: its words, none for a switch; line 0 where a file has none to name."""

    words: tuple[str, ...]
    line: int = 0
    written: str = ""


@dataclass
class Given:
    """Arguments by the names that the framework keeps them under, and what is known of the launch.

    file          as errors call it
    program       the script that is launched, None where nothing names one
    values        name -> what was given
    gpus          GPUs of the run; None where nothing tells
    gpus_per_node GPUs of one node, so too
    environment   variables that are set for it
    everything    whether every argument is there, with its default where none was given (a log's list)
    adapters      section `lora` of the job, {} for adapters that are not modelled, None without any
    doubts        sentences on what could not be read
    asked         names that a reader has looked for
    """

    file: str
    values: Mapping[str, Value]
    gpus: int | None = None
    gpus_per_node: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    everything: bool = False
    adapters: Mapping[str, Any] | None = None
    doubts: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    program: Value | None = None

    def has(self, *names: str) -> bool:
        """Whether one of them was given."""
        return any(self._value(name) is not None for name in names)

    def text(self, name: str) -> str | None:
        """A text; None where it was not given. Raises RailwrightError where its variable is not set."""
        value = self._value(name)
        if value is None or not value.words:
            return None
        return self._set(name, value, " ".join(value.words))

    def told(self, name: str) -> str:
        """A text that nothing hangs on: '' where it was not given, what is not set left out."""
        value = self._value(name)
        return "" if value is None else MISSING.sub("", " ".join(value.words))

    def words(self, name: str) -> tuple[str, ...]:
        """Several texts, whether they stand apart or between commas."""
        text = self.text(name)
        if text is None:
            return ()
        return tuple(text.replace(",", " ").replace("[", " ").replace("]", " ").replace("'", " ").split())

    def whole(self, *names: str) -> int | None:
        """A whole number under the first of these names that was given."""
        return self._number(names, int, "a whole number")

    def count(self, *names: str) -> int | None:
        """A whole number of something that there is, 1 or more."""
        value = self.whole(*names)
        if value is not None and value < 1:
            name = next(name for name in names if self.text(name) is not None)
            raise self.refuse(name, f"{value} is given, 1 or more is expected")
        return value

    def number(self, *names: str) -> float | None:
        """A number, so too."""
        return self._number(names, float, "a number")

    def yes(self, name: str, default: bool = False) -> bool:
        """Whether a switch is on."""
        value = self._value(name)
        if value is None:
            return default
        said = "".join(value.words)
        if MISSING.fullmatch(said):
            return True
        return said.lower() not in ("false", "0", "no")

    def refuse(self, name: str, message: str) -> RailwrightError:
        """An error about an argument, naming file and line."""
        value = self.values.get(name)
        place = self.file if value is None or not value.line else f"{self.file}:{value.line}"
        shown = value.written if value is not None and value.written else name
        return RailwrightError(f"{place}: {shown}: {message}")

    def _value(self, name: str) -> Value | None:
        self.asked.add(name)
        value = self.values.get(name)
        return None if value is None or value.words == ("None",) else value

    def _number(self, names: tuple[str, ...], make: Callable[[str], Number], expected: str) -> Number | None:
        for name in names:
            text = self.text(name)
            if text is not None:
                try:
                    return make(text.replace("_", ""))
                except ValueError:
                    raise self.refuse(name, f"'{text}' is given, {expected} is expected") from None
        return None

    def _set(self, name: str, value: Value, text: str) -> str:
        """The text, in which every variable has a value."""
        if UNSET not in text:
            return text
        missing = MISSING.findall(text)
        shown = MISSING.sub(lambda found: dollar(found[1]), text)
        named = re.fullmatch(r"\w+", missing[0])
        what = f"--set {missing[0]}=…" if named else "the value in its place"
        raise self.refuse(
            name, f"it is '{shown}', and nothing in the file says what {dollar(missing[0])} is; give {what}"
        )


def number_format(text: str) -> str:
    """Torch's name of a number format as arguments have it; any other text as it is."""
    return FORMATS.get(text.removeprefix("torch."), text)


def texts(read: Any) -> dict[str, str]:
    """A mapping of a file as texts; {} for anything else."""
    return {str(k): str(v) for k, v in read.items()} if isinstance(read, Mapping) else {}


def ranks_of(layout: Mapping[str, Any]) -> int:
    """GPUs of one replica, by the fields of a layout."""
    ranks: int = layout.get("tensor", 1) * layout.get("context", 1) * layout.get("pipeline", 1)
    return ranks


def dollar(name: str) -> str:
    """A variable or expansion as scripts write it."""
    return name if name.startswith(("$", "`")) else f"${name}"
