"""The reference model that ships with kvbench, and how it was made."""
