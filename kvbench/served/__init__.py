"""Asks a model that runs elsewhere, behind the address of a server: its answers are seen, and its
cache is not."""
