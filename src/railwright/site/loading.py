"""Reading the parts of rooms: the shipped YAML files, and a user's own merged over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

from railwright.errors import Mistake, RailwrightError, SpecError, nearest
from railwright.shipped import read_data
from railwright.site.parts import (
    Bank,
    Busway,
    CableKind,
    Intake,
    Medium,
    Outlet,
    Pdu,
    Plug,
    RackKind,
    SiteParts,
    Split,
    Status,
    StorageKind,
)
from railwright.units import Dimension, parse

P = TypeVar("P", Plug, Outlet, Pdu, RackKind, Busway, Intake, CableKind, StorageKind)
Part = Plug | Outlet | Pdu | RackKind | Busway | Intake | CableKind | StorageKind

_KINDS: dict[str, type[Part]] = {
    "plugs": Plug,
    "outlets": Outlet,
    "pdus": Pdu,
    "racks": RackKind,
    "busways": Busway,
    "machines": Intake,
    "media": CableKind,
    "storage": StorageKind,
}
_LENGTHS, _POWERS = ("width", "depth", "height", "base", "reach"), ("rated", "watts", "watts_single", "power")
_RATES = ("rate", "nic", "drive_read", "drive_write", "client")
_DIMENSIONS: dict[str, Dimension] = {
    **dict.fromkeys(_LENGTHS, "length"),
    **dict.fromkeys(_POWERS, "power"),
    **dict.fromkeys(_RATES, "bandwidth"),
    "drive": "size",
}
_LEAST: dict[str, float] = {
    **dict.fromkeys(
        ("supplies", "ports_per_cage", "nics", "drives", "data", "least_servers", "most_servers"), 1
    ),
    **dict.fromkeys(("peak", "amps", "volts", "amps_nec", "amps_iec", "breaker"), 1),
    "software": 0.01,
}
"""Fields below which a part is none."""
_SHARES = ("liquid", "software")
_ABOVE_ZERO = ("width", "depth", "height", "reach", *_RATES, "drive")
_CHOICES: dict[str, tuple[str, ...]] = {
    "status": get_args(Status),
    "kind": get_args(Medium),
    "split": get_args(Split),
}


def load_site_parts(user_file: str | Path | None = None) -> SiteParts:
    """The shipped parts; a user's YAML file (kind -> name -> fields) adds to them and changes them.

    A record whose name exists changes only the fields it gives; a new one gives all, or says which it is
    `like`.  Raises SpecError with every mistake of the file.
    """
    if user_file is None:
        return _shipped()
    shipped = {kind: dict(getattr(_shipped(), kind)) for kind in _KINDS}
    merged, mistakes = _merged(_read(Path(user_file)), shipped, str(user_file))
    if mistakes:
        raise SpecError(mistakes)
    return merged


def find_part(parts: Mapping[str, P], name: str, what: str) -> P:
    """The part of this name; raises RailwrightError with the nearest names and all there are."""
    wanted = name.strip().lower().replace("_", "-").replace(" ", "-")
    if wanted in parts:
        return parts[wanted]
    hint = nearest(wanted, parts)
    raise RailwrightError(
        f"no {what} '{name}' is known{hint}{'' if hint.endswith('?') else ';'} known are {', '.join(parts)}; "
        "`site.parts` adds your own"
    )


@cache
def constant(name: str) -> float:
    """A figure of constants.yaml, in the unit written there."""
    return float(read_data("site", "constants.yaml")[name]["value"])


@cache
def constants() -> Mapping[str, Mapping[str, Any]]:
    """All of constants.yaml, with units, sources and status."""
    return dict(read_data("site", "constants.yaml"))


@cache
def _shipped() -> SiteParts:
    tree = {kind: read_data("site", f"{kind}.yaml") for kind in _KINDS}
    parts, mistakes = _merged(tree, {kind: {} for kind in _KINDS}, "the shipped parts")
    assert not mistakes, "\n".join(str(mistake) for mistake in mistakes)
    return parts


def _merged(
    tree: Mapping[Any, Any], known: dict[str, dict[str, Any]], file: str
) -> tuple[SiteParts, list[Mistake]]:
    mistakes: list[Mistake] = []
    for kind, records in tree.items():
        if kind not in _KINDS or not isinstance(records, Mapping):
            allowed = f"allowed kinds are {', '.join(_KINDS)}{nearest(str(kind), _KINDS)}"
            mistakes.append(Mistake(file, 0, 0, str(kind), f"must map names of parts to fields; {allowed}"))
            continue
        for key, written in records.items():
            name, dotted = str(key).lower().replace("_", "-"), f"{kind}.{key}"
            try:
                known[kind][name] = _record(_KINDS[kind], name, written, known[kind])
            except RailwrightError as error:
                mistakes.append(Mistake(file, 0, 0, dotted, str(error)))
    parts = SiteParts(**known)
    if not mistakes:
        mistakes = [Mistake(file, 0, 0, dotted, text) for dotted, text in _contradictions(parts)]
    return parts, mistakes


def _contradictions(parts: SiteParts) -> Iterable[tuple[str, str]]:
    """Names that stand for nothing, and banks on legs their plug does not have."""
    for pdu in parts.pdus.values():
        plug = parts.plugs.get(pdu.plug)
        if plug is None:
            yield f"pdus.{pdu.name}.plug", f"no plug '{pdu.plug}'{nearest(pdu.plug, parts.plugs)}"
            continue
        legs: tuple[str, ...] = ("AB",) if plug.phases == 1 else ("A", "B", "C") if plug.neutral else ()
        legs += ("AB", "BC", "CA") if plug.phases == 3 else ()
        for bank in pdu.banks:
            if bank.legs not in legs:
                wanted = f"with plug '{plug.name}' a bank stands on one of {', '.join(legs)}"
                yield f"pdus.{pdu.name}.banks", f"legs '{bank.legs}': {wanted}"
    inlets = ("c14", "c20", *parts.plugs)
    for machine in parts.machines.values():
        if machine.inlet not in inlets:
            yield f"machines.{machine.name}.inlet", f"'{machine.inlet}' is not one of {', '.join(inlets)}"


def _record(cls: type[Part], name: str, written: Any, known: Mapping[str, Any]) -> Any:
    if not isinstance(written, Mapping):
        raise RailwrightError("must map fields to values")
    own = dict(written)
    like = own.pop("like", None)
    base = known.get(name)
    if like is not None:
        base = known.get(str(like).lower())
        if base is None:
            raise RailwrightError(f"is like '{like}', which is not known{nearest(str(like), known)}")
    by_name = {f.name: f for f in fields(cls) if f.name != "name"}
    for key in own:
        if key not in by_name:
            hint = nearest(str(key), by_name) or f"; allowed are {', '.join(by_name)}, like"
            raise RailwrightError(f"'{key}' is not a field{hint}")
    values = {key: _value(key, value, str(by_name[key].type)) for key, value in own.items()}
    if base is not None:
        if like is not None and "source" not in values:
            values["source"] = f"as {base.name}: {base.source}"
        return replace(base, name=name, **values)
    missing = [
        f.name
        for f in by_name.values()
        if f.default is MISSING and f.default_factory is MISSING and f.name not in values
    ]
    if missing:
        raise RailwrightError(f"also needs {', '.join(missing)}, or `like:` with the part it resembles")
    return cls(name=name, **values)


def _value(key: str, value: Any, type_name: str) -> Any:
    if key == "banks":
        return _banks(value)
    if key == "lengths":
        if not isinstance(value, list) or not all(isinstance(v, int | float) and v > 0 for v in value):
            raise RailwrightError("lengths must be a list of metres, like [0.5, 1, 2]")
        return tuple(sorted(float(v) for v in value))
    if key == "sources":
        if not isinstance(value, Mapping):
            raise RailwrightError("sources must map fields to sentences")
        return {str(k): str(v) for k, v in value.items()}
    if key in _DIMENSIONS:
        if not isinstance(value, str):
            raise RailwrightError(f"{key}: {value!r} has no unit; write a {_DIMENSIONS[key]} with its unit")
        amount = parse(value, _DIMENSIONS[key])
        if key in _ABOVE_ZERO and not amount > 0:
            raise RailwrightError(f"{key}: '{value}' must be above zero")
        return amount
    if key in _CHOICES and value not in _CHOICES[key]:
        raise RailwrightError(f"{key}: '{value}' is not one of {', '.join(_CHOICES[key])}")
    if type_name == "bool":
        if not isinstance(value, bool):
            raise RailwrightError(f"{key}: '{value}' is neither true nor false")
        return value
    if type_name in ("int", "float"):
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise RailwrightError(f"{key}: '{value}' is not a number of zero or more")
        if type_name == "int" and not isinstance(value, int):
            raise RailwrightError(f"{key}: '{value}' is not a whole number")
        if value < _LEAST.get(key, 0):
            raise RailwrightError(f"{key}: '{value}' is less than {_LEAST[key]:g}")
        if key in _SHARES and value > 1:
            raise RailwrightError(f"{key}: '{value}' is a share, from 0 to 1")
        if key == "phases" and value not in (1, 3):
            raise RailwrightError(f"phases: '{value}' is neither 1 nor 3")
        return value if type_name == "int" else float(value)
    if not isinstance(value, str):
        raise RailwrightError(f"{key}: '{value}' is not text")
    return value


def _banks(value: Any) -> tuple[Bank, ...]:
    if not isinstance(value, list) or not value:
        raise RailwrightError("banks must be a list of {legs, breaker, c13, c19, count}")
    banks: list[Bank] = []
    for entry in value:
        if not isinstance(entry, Mapping) or not {"legs", "breaker"} <= set(entry):
            raise RailwrightError("every bank needs legs (like AB) and breaker (amperes)")
        own = dict(entry)
        count = own.pop("count", 1)
        if unknown := set(own) - {"legs", "breaker", "c13", "c19"}:
            raise RailwrightError(f"'{min(unknown)}' is not a field of a bank")
        bank = Bank(str(own.pop("legs")), **{k: _value(k, v, "int") for k, v in own.items()})
        banks += [bank] * _value("count", count, "int")
    return tuple(banks)


def _read(file: Path) -> Mapping[Any, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        tree = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file in UTF-8"
        raise SpecError([Mistake(str(file), 0, 0, "", f"cannot read this file of parts: {reason}")]) from None
    except YAMLError as error:
        raise SpecError([Mistake(str(file), 0, 0, "", f"not YAML: {error}")]) from None
    if not isinstance(tree, Mapping):
        raise SpecError([Mistake(str(file), 1, 1, "", f"must map kinds of parts ({', '.join(_KINDS)})")])
    return tree
