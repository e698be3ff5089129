"""Designs side by side: which fit, what they cost to grow, what dies with a device, why one cannot work."""
