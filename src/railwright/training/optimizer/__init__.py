"""Gradients and parameters in buckets, and the update: Adam and Muon, on one GPU's shard."""
