"""Groups of commands, alike in their looks and quick in their help."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup


class QuickGroup(TyperGroup):
    """A group whose own --help is a plain False where it is not asked for.

    Typer 0.29 takes a flag without a default for a value to be checked, and loads pydantic to check it: 0.1 s
    for `railwright run --help`, spent on the --help of `railwright`, which nobody gave.
    """

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None and option.default is None:
            option.default = False
        return option


def group(about: str) -> typer.Typer:
    """An empty group of commands with a one-line help."""
    return typer.Typer(cls=QuickGroup, help=about, no_args_is_help=True, rich_markup_mode=None)
