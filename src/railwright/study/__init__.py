"""A study, run: the room that puts all others in order."""

from __future__ import annotations

from railwright.study.curves import perf
from railwright.study.evaluate import build_fabric
from railwright.study.runner import run

__all__ = ["build_fabric", "perf", "run"]
