"""The passport of a model's cache: what of its keys and values tells which formats hold."""
