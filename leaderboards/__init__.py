"""Boards: what the records of a run add up to, with intervals, as rows, curves, pages and
tables."""
