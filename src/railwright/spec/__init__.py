"""What the user wrote, as strict typed values in base units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "load_study": "railwright.spec.load",
    "load_study_text": "railwright.spec.load",
    "override": "railwright.spec.changes",
    "parse_value": "railwright.spec.load",
    "canonical_json": "railwright.spec.changes",
    "spec_hash": "railwright.spec.changes",
    "study_schema": "railwright.spec.schema",
    "template": "railwright.spec.starters",
    "template_names": "railwright.spec.starters",
    "Study": "railwright.spec.study",
}

__all__ = [
    "Study",
    "canonical_json",
    "load_study",
    "load_study_text",
    "override",
    "parse_value",
    "spec_hash",
    "study_schema",
    "template",
    "template_names",
]

if TYPE_CHECKING:
    from railwright.spec.changes import canonical_json as canonical_json
    from railwright.spec.changes import override as override
    from railwright.spec.changes import spec_hash as spec_hash
    from railwright.spec.load import load_study as load_study
    from railwright.spec.load import load_study_text as load_study_text
    from railwright.spec.load import parse_value as parse_value
    from railwright.spec.schema import study_schema as study_schema
    from railwright.spec.starters import template as template
    from railwright.spec.starters import template_names as template_names
    from railwright.spec.study import Study as Study


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `railwright init` needs no pydantic."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'railwright.spec' has no attribute '{name}'")
