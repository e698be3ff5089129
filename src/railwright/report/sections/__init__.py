"""The sections of a study's page, one file each."""
