"""Places methods on one board: as many ideas as there are, each in its best-known form."""
