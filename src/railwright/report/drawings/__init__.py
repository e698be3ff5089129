"""Fabrics, rooms, money and timelines drawn as SVG."""
