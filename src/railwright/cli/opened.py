"""The study that this command was asked about, so that what refuses it can be told at its line."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from railwright.spec import Study


@dataclass(frozen=True)
class Opened:
    """A study of this command.

    name     the file or template, as the user named it
    study    as written
    variant  name of the variant that the command is about; '' for the study as written
    """

    name: str
    study: Study
    variant: str = ""


_opened: ContextVar[Opened | None] = ContextVar("opened", default=None)


def forget() -> None:
    """Begin a command."""
    _opened.set(None)


def remember(name: str, study: Study, variant: str | None = None) -> None:
    """The command goes on with this study, or with one of its variants."""
    _opened.set(Opened(name, study, variant or ""))


def opened() -> Opened | None:
    """The study that this command opened last; None where it has none."""
    return _opened.get()
