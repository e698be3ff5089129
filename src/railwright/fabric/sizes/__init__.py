"""How many switches and tiers: the arithmetic of a folded Clos."""
