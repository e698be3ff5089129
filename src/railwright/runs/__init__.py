"""Runs of training frameworks, read from their own files as jobs of a study."""

from railwright.runs.run import Asked, Run, read_run

__all__ = ["Asked", "Run", "read_run"]
