"""Chunks through FIFO links: order, incast and full buffers."""
