"""The terminal: one small file per group of commands, each importing what it needs when it runs."""
