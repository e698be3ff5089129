"""One pass of one chunk as tasks: blocks, collectives between them, launches, copies to the host."""
