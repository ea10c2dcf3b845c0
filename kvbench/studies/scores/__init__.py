"""Asks what scorers of one's own say of the answers."""
