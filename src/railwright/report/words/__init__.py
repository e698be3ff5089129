"""What the page, the terminal and the files all say about a result, in the same words."""
