"""The library: what ``import kvbench`` offers. The commands of the same names call it."""
