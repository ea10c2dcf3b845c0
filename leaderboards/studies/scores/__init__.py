"""Shows what scorers of one's own say."""
