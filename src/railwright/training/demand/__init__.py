"""What a token budget takes before there is a layout: model FLOPs, and what GPUs make of their peak."""
