"""The passport of a model's cache: its keys and values tell which formats it stands."""
