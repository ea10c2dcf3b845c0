"""What of a system prompt is obeyed."""
