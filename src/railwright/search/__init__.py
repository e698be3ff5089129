"""Search: the best layouts of a model on a cluster, with the proof that none was missed."""

from __future__ import annotations

from railwright.search.bounds.blocks import Refusal
from railwright.search.space.axes import Space
from railwright.search.training.result import Candidate, Effort, SearchResult
from railwright.search.training.searching import search

__all__ = ["Candidate", "Effort", "Refusal", "SearchResult", "Space", "search"]
