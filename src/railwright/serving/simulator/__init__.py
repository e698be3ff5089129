"""Requests through a fleet of replicas, event by event, and what users see of it."""
