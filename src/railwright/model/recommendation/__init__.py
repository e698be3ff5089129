"""Recommendation models (DLRM): the model as a value, and what one GPU runs for it."""
