"""What a caller of the library hands in: a model, presses and tasks that are in memory."""
