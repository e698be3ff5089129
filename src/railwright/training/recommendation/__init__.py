"""A recommendation model's step: tables over GPUs, lookups, their all-to-alls."""
