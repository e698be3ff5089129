"""What every page is made of: markup that escapes, style, tables, charts."""
