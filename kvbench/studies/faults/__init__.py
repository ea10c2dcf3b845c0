"""What a damaged cache breaks."""
