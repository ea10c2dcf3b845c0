"""Whether a cached answer is the answer without the cache."""
