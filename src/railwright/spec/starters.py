"""The commented starter studies that `railwright init` writes."""

from __future__ import annotations

from importlib import resources

from railwright.errors import RailwrightError, nearest

_SIZES = ("workstation", "server", "single-rack", "rail-240", "superpod-h100", "clos-32k")


def template_names() -> tuple[str, ...]:
    """Names of all starter studies, smallest cluster first."""
    return _SIZES


def template(name: str) -> str:
    """The YAML text of a starter study. Raises RailwrightError for an unknown name."""
    if name not in _SIZES:
        hint = nearest(name, _SIZES) or f"; known are {', '.join(_SIZES)}"
        raise RailwrightError(f"there is no template '{name}'{hint}")
    return (
        resources.files("railwright.spec").joinpath("templates", f"{name}.yaml").read_text(encoding="utf-8")
    )
