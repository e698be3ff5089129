"""One thing changed, and the step again."""
