"""Published training steps replayed: records as jobs, bars, bands, and why single ones are missed."""
