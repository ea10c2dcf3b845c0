"""Studies: the folder of each holds its suite, its tables and its forecast, and a run imports it
only where it names it."""
