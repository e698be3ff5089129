"""Numbers that an option takes in full, and what is said of others."""

from __future__ import annotations

from typing import Any

import typer


def tokens_option(told: str) -> Any:
    """The option `--tokens`; `told` is its help."""
    return typer.Option("--tokens", "-t", parser=token_count, metavar="<float>", help=told)


def token_count(text: str) -> float:
    """A number of tokens, '2e12'. Raises BadParameter with the value and the forms that work."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"'{text}' is no number of tokens; write it out, as 2e12 or 2000000000000 for two trillion."
        ) from None
