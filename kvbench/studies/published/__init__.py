"""Asks whether small models rank presses as kvpress's public board does."""
