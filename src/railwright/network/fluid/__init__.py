"""Flows that share links max-min fairly over time, and when the last has finished."""
