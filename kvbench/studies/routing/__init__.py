"""Whether evidence can be reached, and what its rows cause."""
