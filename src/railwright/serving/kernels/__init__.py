"""Times of an engine's kernels on one GPU, from measured rows: products, attention, routed experts."""
