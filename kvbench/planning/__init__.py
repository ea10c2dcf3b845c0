"""What a run would cost: from the shape of a model, what is asked, and constants that were measured or are stated."""
