"""Files of evidence, each read into rates along paths or events."""
