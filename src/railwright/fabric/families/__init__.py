"""The families of fabrics: each from an order to a plan."""
