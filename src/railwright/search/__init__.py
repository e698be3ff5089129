"""Search: the best layouts of a model on a cluster, with the proof that none was missed."""

from __future__ import annotations

from railwright.search.blocks import Refusal
from railwright.search.result import Candidate, Effort, SearchResult
from railwright.search.space import Space
from railwright.search.training_search import search

__all__ = ["Candidate", "Effort", "Refusal", "SearchResult", "Space", "search"]
