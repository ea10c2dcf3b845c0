"""Estimates what a run would cost, from its counts, the shape of a model, and constants that are
measured or stated."""
