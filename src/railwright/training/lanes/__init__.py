"""Tasks on lanes, placed in time; what a step is as a value: its timeline, its shares, its result."""
