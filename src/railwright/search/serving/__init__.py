"""The search of a serving job: the fewest GPUs that keep its SLO, and the plan as engines' arguments."""
