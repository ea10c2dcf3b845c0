"""Changes every value of the cache a little and asks which answers break."""
