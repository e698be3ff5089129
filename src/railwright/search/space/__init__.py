"""The space of layouts as data, differences of layouts in words, and what one puts on the network."""
