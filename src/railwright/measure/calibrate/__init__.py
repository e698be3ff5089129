"""A cluster's own logs as constants of its collectives, and an engine's as those of its profile."""
