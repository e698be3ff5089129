"""One replica: what an engine runs in a step, how it is told, and what lies in its memory."""
