"""Asks whether a model answers the same with its cache as without it."""
