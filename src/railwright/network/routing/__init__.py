"""Which links a demand crosses: shortest paths, how a routing picks among them, their latency."""
