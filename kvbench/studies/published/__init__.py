"""Whether the order of a public board carries over."""
