"""What one GPU runs for a layer or a model's ends: kernels by kind, fused or eager, and how they are cut."""
