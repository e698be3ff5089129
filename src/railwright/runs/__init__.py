"""Runs of training frameworks, read from their own files as jobs of a study."""

from railwright.runs.opened import text_of
from railwright.runs.run import Asked, Run, read_run

__all__ = ["Asked", "Run", "read_run", "text_of"]
