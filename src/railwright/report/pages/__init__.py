"""Pages of their own: measured against predicted, what is wired wrongly, who is at fault."""
