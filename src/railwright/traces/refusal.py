"""How a file that is no trace, or a damaged one, is refused: one sentence with the file and the place."""

from __future__ import annotations

from pathlib import Path

from railwright.errors import Mistake, PlanError, SpecError

EXECUTION_TRACE = (
    "this is PyTorch's own execution trace, which has no times; make a Chakra trace of it and of the profile "
    "of the same step with chakra_trace_link and chakra_converter, for `railwright trace replay`."
)

PROFILE = (
    "this is a profile of PyTorch, which does not say what waits for what; `railwright trace compare` reads "
    "it, and a replay wants a Chakra trace of every rank (chakra_trace_link and chakra_converter make one of "
    "it and of PyTorch's execution trace)."
)


def wrong(file: str | Path, place: str, message: str) -> SpecError:
    """The error to raise; `place` is 'byte 12', 'line 3', or '' for the whole file.

    What a file says of itself may be anything: what cannot be printed becomes '?'.
    """
    shown = "".join(letter if letter.isprintable() else "?" for letter in message)
    return SpecError([Mistake(str(file), 0, 0, place, shown)])


def too_large(name: str, ranks: int, need: int, most: int) -> PlanError:
    """The error of a trace of more GPUs than the cluster has."""
    return PlanError(
        f"{name} has {ranks:,} ranks and needs {need:,} GPUs, but the cluster has {most:,}; replay it on a "
        f"study of at least {need:,} GPUs."
    )
