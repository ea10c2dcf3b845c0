"""kvbench measures what a KV-cache treatment breaks, at which budget, and why."""

__version__ = "0.1.0"
