"""Serving: what one engine step takes, and what requests then see."""
