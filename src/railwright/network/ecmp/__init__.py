"""Hashed paths, sampled over seeds: what collisions cost against adaptive routing."""
