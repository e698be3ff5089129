"""Results of load generators for LLM servers, read as they are written."""

from railwright.measure.loadgen.reading import is_result, read_results
from railwright.measure.loadgen.result import BenchResult, Requests, Summary

__all__ = ["BenchResult", "Requests", "Summary", "is_result", "read_results"]
