"""The files beside the page: results as JSON, tables as CSV, a trace, the bill."""
