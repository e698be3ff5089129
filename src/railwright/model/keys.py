"""Typed access to the keys of one config.json; every complaint names the file and the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.errors import Mistake, SpecError
from railwright.model.architecture import Transformer


class Keys:
    """The keys of one config.json.

    Mistakes are collected, so that a file with three missing keys says so at once: `whole` returns 1 for a
    key it has complained about, and `check` raises.
    """

    def __init__(self, config: Mapping[str, Any], file: str) -> None:
        self._config = config
        self._file = file
        self._mistakes: list[Mistake] = []

    def whole(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """An integer of at least `least`; missing or null takes `default`, or is a mistake without one."""
        value = self._config.get(key)
        if value is None:
            if default is not None:
                return default
            self._complain(key, f"missing; a whole number of at least {least} is expected.")
        elif isinstance(value, bool) or not isinstance(value, int) or value < least:
            self._complain(key, f"{value!r} is not a whole number of at least {least}.")
        else:
            return value
        return 1

    def flag(self, key: str, default: bool) -> bool:
        """True or false; missing or null takes `default`."""
        value = self._config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._complain(key, f"{value!r} is not true or false.")
            return default
        return value

    def raw(self, key: str) -> Any:
        """Whatever stands there, None where nothing does."""
        return self._config.get(key)

    def source(self) -> str:
        """Where the figures come from: the bundled file's own source, else the file."""
        found = self._config.get("_source")
        return found if isinstance(found, str) else self._file

    def need(self, holds: bool, key: str, message: str) -> None:
        """Complain about `key` unless `holds`."""
        if not holds:
            self._complain(key, message)

    def refuse(self, key: str, message: str) -> SpecError:
        """The error of one mistake that makes reading on pointless."""
        return SpecError([Mistake(self._file, 0, 0, key, message)])

    def check(self, arch: Transformer) -> None:
        """Raise all mistakes found, also those between keys."""
        if not self._mistakes:
            self._check_between(arch)
        if self._mistakes:
            raise SpecError(self._mistakes)

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
            arch.dense_layers <= arch.layers,
            "first_k_dense_replace",
            f"{arch.dense_layers} dense layers are more than the {arch.layers} layers there are.",
        )

    def _complain(self, key: str, message: str) -> None:
        self._mistakes.append(Mistake(self._file, 0, 0, key, message))
