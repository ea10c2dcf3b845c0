"""Which models ship with the package, and where their files are."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

REFERENCE_MODELS: Mapping[str, str] = {
    "reference": "Llama architecture with grouped-query attention, ships with kvbench",
}
# The commands that made each, in their order.
HOW_MADE: Mapping[str, str] = {
    "reference": "python -m kvbench.reference.train --model reference",
}


def folder_of(name: str) -> Path:
    """Weights, tokenizer, learning curve and scores of a reference model."""
    return Path(str(files("kvbench.reference").joinpath("models", name)))
