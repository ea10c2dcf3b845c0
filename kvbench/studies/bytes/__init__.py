"""What is kept at equal bytes."""
