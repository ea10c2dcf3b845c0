"""What the engine takes: against kvpress's pipeline, against the matrix products that it cannot do without, and over
lengths, branches and ratios. Benchmarks and no tests: nothing here decides whether something is right."""
