"""Tells the models that ship with kvbench from others: what is measured on them says nothing of other models."""

TEACHING = "reference"  # how the names of the shipped models begin
CARRIES_OVER = "a teaching model, whose rankings do not carry over to others"


def is_teaching(model: str) -> bool:
    """Tells whether a model, by its name or path, is one that ships with kvbench."""
    return model.split("/")[-1].startswith(TEACHING)
