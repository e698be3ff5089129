"""What lies in a GPU's and a host's memory: states, activations, what PyTorch's allocator holds beyond."""
