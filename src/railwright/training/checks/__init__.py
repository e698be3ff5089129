"""Whether a job can run, what is doubtful of it, and neighbours that would fit."""
