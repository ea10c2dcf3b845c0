"""Asks which instructions of a system prompt a model still obeys."""
