"""Asks whether heads that share keys and values drift further than others."""
