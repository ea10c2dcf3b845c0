"""What small errors of every value break."""
