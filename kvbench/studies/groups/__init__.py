"""Whether heads that share keys and values drift more."""
