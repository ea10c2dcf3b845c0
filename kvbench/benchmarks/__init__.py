"""Benchmarks measure the engine against kvpress's pipeline and against its own matrix products, and over lengths,
branches and ratios. They are no tests: nothing here decides whether a result is right."""
