"""Inner loops compiled by numba, each the twin of a definition in plain Python or NumPy."""
