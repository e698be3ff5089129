"""A study with some fields changed: what variants, sensitivity rows and `--compare` are made of."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from railwright.errors import Mistake, SpecError, nearest
from railwright.spec.check import Flaw, Steps, section_at, unknown_field, validate
from railwright.spec.study import Study

_NOT_CHANGED = ("railwright", "variants", "sensitivity")


def override(study: Study, changes: Mapping[str, Any], name: str = "override") -> Study:
    """The study with dotted fields set to new values, as the YAML file would have them.

    changes  {'cluster.compute.family': 'fat-tree', 'jobs.finetune.layout.tensor': 1};
             an entry of a list is named by its number from 0 or by its name; quantities are text with a unit
    name     what mistakes are said to be in

    Raises SpecError naming every field that does not exist (with the nearest one) or does not take its value.
    """
    changed, flaws = change(study.model_dump(), changes)
    if changed is None:
        raise SpecError(Mistake(name, 0, 0, key, flaw.message) for key, flaw in flaws)
    return changed


def change(
    plain: Mapping[str, Any], changes: Mapping[str, Any]
) -> tuple[Study | None, list[tuple[str, Flaw]]]:
    """Validate plain values with changes applied; flaws are given with the change that they belong to.

    Flaws of the plain values themselves, outside of what was changed, are left out.
    """
    flaws: list[tuple[str, Flaw]] = []
    changed = dict(plain)
    where: dict[str, Steps] = {}
    for key, value in changes.items():
        found = _resolve(changed, key)
        if isinstance(found, Flaw):
            flaws.append((key, found))
            continue
        if section_at(found) is not None and isinstance(value, Mapping):
            message = (
                f"a section is changed field by field; write '{key}.{next(iter(value), '…')}' as the name"
            )
            flaws.append((key, Flaw(found, message)))
            continue
        where[key] = found
        changed = _with(changed, found, _tuples(value))
    study, wrong = validate(changed)
    for flaw in wrong:
        for key, steps in where.items():
            if flaw.path[: len(steps)] == steps:
                rest = ".".join(str(step) for step in flaw.path[len(steps) :])
                message = f"in '{rest}': {flaw.message}" if rest else flaw.message
                flaws.append((key, Flaw(flaw.path, message)))
                break
    return (None if flaws else study), flaws


def canonical_json(study: Study) -> str:
    """The study as JSON with every field written out, keys sorted, quantities as exact text with units."""
    return json.dumps(
        study.model_dump(mode="json"), sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )


def spec_hash(study: Study) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal: equal for files that mean the same."""
    return hashlib.sha256(canonical_json(study).encode()).hexdigest()


def _resolve(plain: Mapping[str, Any], key: str) -> Steps | Flaw:
    """The steps a dotted name stands for, or why it stands for nothing."""
    steps: Steps = ()
    rest = key
    here: Any = plain
    while rest:
        section = section_at(steps)
        if section is None:
            return Flaw(steps, f"not a field: '{_spell(steps)}' is one value and has no fields", at_key=True)
        if isinstance(here, tuple | list):
            index, rest = _entry(here, rest)
            if isinstance(index, Flaw):
                return index
            step: str | int = index
        else:
            name, _, rest = rest.partition(".")
            if name not in section.model_fields:
                return Flaw(steps, f"'{name}' is {unknown_field(name, section)}", at_key=True)
            if not steps and name in _NOT_CHANGED:
                return Flaw(steps, f"'{name}' is the same for all variants", at_key=True)
            step = name
        steps = (*steps, step)
        here = _inside(here, step)
    return steps if steps else Flaw((), "empty name; write a dotted field like 'nccl.pxn'", at_key=True)


def _entry(entries: tuple[Any, ...] | list[Any], rest: str) -> tuple[int | Flaw, str]:
    """Which entry of a list the first part of `rest` names, and what is left of `rest`."""
    if match := re.match(r"([0-9]+)(?:\.|$)", rest):
        index = int(match.group(1))
        if index < len(entries):
            return index, rest[match.end() :]
    names = {str(e["name"]): i for i, e in enumerate(entries) if isinstance(e, Mapping) and "name" in e}
    # Names may hold dots themselves, so the longest that fits is meant.
    for name in sorted(names, key=lambda n: (-len(n), n)):
        if rest == name or rest.startswith(name + "."):
            return names[name], rest[len(name) + 1 :]
    wanted = rest.partition(".")[0]
    known = nearest(wanted, names) or (f"; known are {', '.join(repr(n) for n in names)}" if names else "")
    count = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
    return Flaw(
        (), f"'{wanted}' names no entry: the list has {count}, counted from 0{known}", at_key=True
    ), ""


def _inside(here: Any, step: str | int) -> Any:
    """What stands at a step of plain values; {} for a section that was left to its defaults."""
    if isinstance(here, Mapping):
        return here.get(str(step), {})
    if isinstance(here, tuple | list) and isinstance(step, int):
        return here[step]
    return {}


def _with(here: Any, steps: Steps, value: Any) -> Any:
    """A copy of plain values with one of them replaced; everything beside the path is shared."""
    if not steps:
        return value
    step = steps[0]
    if isinstance(here, tuple | list) and isinstance(step, int):
        return (*here[:step], _with(here[step], steps[1:], value), *here[step + 1 :])
    fields = dict(here) if isinstance(here, Mapping) else {}
    fields[str(step)] = _with(fields.get(str(step), {}), steps[1:], value)
    return fields


def _tuples(value: Any) -> Any:
    """Lists as tuples, at every depth: the study's types are strict and frozen."""
    if isinstance(value, list | tuple):
        return tuple(_tuples(v) for v in value)
    if isinstance(value, Mapping):
        return {str(k): _tuples(v) for k, v in value.items()}
    return value


def _spell(steps: Steps) -> str:
    return ".".join(str(step) for step in steps)
