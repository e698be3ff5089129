"""What operators make, read and keep: tensors of a layer in order, and activation memory."""
