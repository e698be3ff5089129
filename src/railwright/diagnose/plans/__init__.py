"""What to run on a new cluster, and what it would show: acceptance plans, rounds of tests, made-up data."""
