"""Hugging Face config.json files read: families, their keys, what they say and what is not understood."""
