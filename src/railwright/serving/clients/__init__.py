"""Who sends requests of which lengths, and when: load generators' ways, and traces as published."""
