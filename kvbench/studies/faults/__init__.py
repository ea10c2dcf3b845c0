"""Damages rows of the cache and asks which answers break."""
