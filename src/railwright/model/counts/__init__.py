"""Parameters and weight matrices: how many there are, and how many lie on one GPU."""
