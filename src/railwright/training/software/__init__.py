"""What training frameworks run: eras and their paces, constants, number formats, adapters, refusals."""
