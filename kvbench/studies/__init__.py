"""Holds the studies: the folder of each has its suite, its tables and its forecast, and a run
imports them only where it names the study."""
