"""Typed access to the keys of one config.json; every complaint names the file and the key."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from railwright.errors import Mistake, SpecError
from railwright.model.shape.architecture import Transformer

MOST = 10**12
"""The largest number that is read, more than a model has of anything; the rest soon leaves the floats."""

MOST_LAYERS = 10_000
"""Layers of the deepest model that is read, some thirty times as many as the deepest published."""

SPELT_ALIKE = 0.9
"""Likeness (difflib) from which one key is taken for another misspelt: a letter or two of ten. [1]"""


def shown(value: Any) -> str:
    """A value as it stands in a complaint, cut where it would fill lines."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


LONGEST = 60
"""Letters of a value that are repeated to the user."""


class Keys:
    """The keys of one config.json.

    Mistakes are collected, so that a file with three missing keys says so at once: `whole` returns 1 for a
    key it has complained about, and `check` raises.
    """

    def __init__(self, config: Mapping[str, Any], file: str) -> None:
        self._config = config
        self._file = file
        self._above = ""
        self._source = config.get("_source")
        self._written: Mapping[str, str] = {}
        self._given = frozenset(config)
        self._asked: set[str] = set()
        self._mistakes: list[Mistake] = []
        self._doubts: list[Mistake] = []

    def inside(self, key: str) -> Keys:
        """The keys of the object under `key`; complaints are shared.

        Anything but an object is a mistake, and has no keys.
        """
        value = self.raw(key)
        self.need(isinstance(value, dict), key, "an object is expected here.")
        return self._part(value if isinstance(value, dict) else {}, f"{key}.")

    def whole(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """An integer of at least `least`; missing or null takes `default`, or is a mistake without one."""
        value = self.raw(key)
        if value is None:
            if default is not None:
                return default
            told = f"missing; a whole number of at least {least} is expected"
            self._complain(key, f"{told}{self._meant(key) or '.'}")
        elif isinstance(value, bool) or not isinstance(value, int) or value < least:
            self._complain(key, f"{shown(value)} is not a whole number of at least {least}.")
        elif value > MOST:
            self._complain(
                key, f"a number of {len(str(value))} digits is more than the {MOST:,} that is read."
            )
        else:
            return value
        return 1

    def depth(self, key: str) -> int:
        """How many layers there are: a whole number that a transformer can have."""
        layers = self.whole(key)
        self.need(
            layers <= MOST_LAYERS, key, f"{layers} layers are more than the {MOST_LAYERS} that are read."
        )
        return min(layers, MOST_LAYERS)

    def flag(self, key: str, default: bool) -> bool:
        """True or false; missing or null takes `default`."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._complain(key, f"{shown(value)} is not true or false.")
            return default
        return value

    def alike(self, key: str, default: int | None = None) -> int:
        """As `whole`, or a list that says it once per layer (Hunyuan); unequal ones are a mistake."""
        value = self.raw(key)
        if not isinstance(value, list) or not value:
            return self.whole(key, default)
        self.need(value == value[:1] * len(value), key, "layers that differ in it are not supported.")
        return self._part({key: value[0]}, "").whole(key)

    def filled(self, defaults: Mapping[str, Any]) -> Keys:
        """These keys with `defaults` for those that are not there; a null is there."""
        return self._part({**defaults, **self._config}, "")

    def replaced(self, values: Mapping[str, Any]) -> Keys:
        """These keys with other values."""
        return self._part({**self._config, **values}, "")

    def renamed(self, names: Mapping[str, str]) -> Keys:
        """These keys, with what stands under another name of a key found under the key itself.

        names  other name -> key; where both are there they must agree.  Complaints name what the file has.
        """
        for other, key in names.items():
            one, two = self._config.get(other), self._config.get(key)
            differ = isinstance(one, int) and isinstance(two, int) and one != two
            # A context may be given for the tokenizer and for the positions; of shapes there is one.
            if differ and key != "max_position_embeddings":
                told = f"{one!r} contradicts {key}: {two!r}, another name of the same; take one of them out."
                self.doubt(other, told)
            if one is not None and two is not None:
                self._asked.add(other)
        written = {
            key: other
            for other, key in names.items()
            if self._config.get(other) is not None and self._config.get(key) is None
        }
        found = self._part({**self._config, **{key: self._config[o] for key, o in written.items()}}, "")
        found._written = written
        return found

    def raw(self, key: str) -> Any:
        """Whatever stands there, None where nothing does."""
        self._asked.add(key)
        return self._config.get(key)

    def unread(self) -> dict[str, Any]:
        """Keys of the file that nobody has asked for yet, but for comments (`_source`, `_name_or_path`)."""
        return {
            key: self._config[key]
            for key in sorted(self._given - self._asked - set(self._written.values()))
            if not key.startswith("_")
        }

    def lacking(self) -> tuple[str, ...]:
        """Keys that were asked for and that the file does not have, under any name."""
        return tuple(sorted(self._asked - self._given - set(self._written)))

    def source(self) -> str:
        """Where the figures come from: the bundled file's own source, else the file."""
        return self._source if isinstance(self._source, str) else self._file

    def need(self, holds: bool, key: str, message: str) -> None:
        """Complain about `key` unless `holds`."""
        if not holds:
            self._complain(key, message)

    def doubt(self, key: str, message: str) -> None:
        """Complain about `key` where nothing else is wrong: a file that is not what it says it is has many
        keys that fit nothing, and one reason."""
        self._doubts.append(Mistake(self._file, 0, 0, self._above + key, message))

    def refuse(self, key: str, message: str) -> SpecError:
        """The error of one mistake that makes reading on pointless."""
        return SpecError([Mistake(self._file, 0, 0, self._above + key, message)])

    def check(self, arch: Transformer) -> None:
        """Raise all mistakes found, also those between keys."""
        if not self._mistakes:
            self._check_between(arch)
        if found := self._mistakes or self._doubts:
            raise SpecError(found)

    def _check_between(self, arch: Transformer) -> None:
        self.need(
            arch.kv_heads <= arch.heads and arch.heads % arch.kv_heads == 0,
            "num_key_value_heads",
            f"{arch.kv_heads} does not divide the {arch.heads} attention heads.",
        )
        self.need(
            arch.experts_per_token <= arch.experts,
            "num_experts_per_tok",
            f"{arch.experts_per_token} is more than the {arch.experts} experts there are.",
        )
        self.need(
            arch.experts % arch.expert_groups == 0,
            "n_group",
            f"{arch.expert_groups} groups do not divide the {arch.experts} experts.",
        )

    def _part(self, config: Mapping[str, Any], below: str) -> Keys:
        part = Keys(config, self._file)
        part._above, part._source = self._above + below, self._source
        part._mistakes, part._doubts = self._mistakes, self._doubts
        if not below:
            part._written, part._given, part._asked = self._written, self._given, self._asked
        return part

    def _meant(self, key: str) -> str:
        """'; this file has 'hiden_size', is that it?' for a key that is not there, or ''."""
        close = get_close_matches(key, self._given - self._asked, n=1, cutoff=SPELT_ALIKE)
        if not close:
            return ""
        # It is told here; what is not read at the end is told there.
        self._asked.add(close[0])
        return f"; the file has '{close[0]}', rename it if that is meant."

    def _complain(self, key: str, message: str) -> None:
        field = self._above + self._written.get(key, key)
        # A key may be read for several ends, each with limits of its own: one mistake of it is enough.
        if all(known.field != field for known in self._mistakes):
            self._mistakes.append(Mistake(self._file, 0, 0, field, message))
