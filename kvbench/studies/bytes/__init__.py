"""Compares policies that hold equally many bytes of the cache."""
