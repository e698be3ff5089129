"""A plan as ports and cables, labelled, split and counted."""
