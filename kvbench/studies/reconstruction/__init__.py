"""The table of reconstruction: how far the rows that a format stores are from the exact ones."""
