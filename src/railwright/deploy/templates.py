"""Scripts that lie beside the code as they are installed, with their few figures put in."""

from __future__ import annotations

from importlib.resources import files


def template(name: str, **values: str) -> str:
    """The script of data/`name` with every @KEY@ replaced."""
    text = files("railwright.deploy").joinpath("data", name).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text
