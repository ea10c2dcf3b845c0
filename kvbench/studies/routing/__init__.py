"""Asks whether evidence can be reached in the cache, and what its rows cause."""
