"""What failures cost: single ones, sets of them, spares."""
