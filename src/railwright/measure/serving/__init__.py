"""Published serving measurements replayed: records as jobs and clients, bars, bands, reasons."""
