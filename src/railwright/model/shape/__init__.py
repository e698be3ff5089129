"""The decoder transformer as a value, what its layers are made of, and the FLOPs of one token."""
