"""These models ship with the package: small ones that know its tasks alone, and adapters of natural ones."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

REFERENCE_MODELS: Mapping[str, str] = {
    "reference": "Llama architecture, reads by many routes; the default",
    "reference-narrow": "Qwen 3 architecture, reads its context in one layer: the control of claims about routes",
}
ADAPTERS: Mapping[str, str] = {
    "smollm2-routing": "smollm2 with adapters that were taught the tasks: a natural model that masters them",
}
SHIPPED: Mapping[str, str] = {**REFERENCE_MODELS, **ADAPTERS}
# The options of ``claims`` for each: the control, which reads in one layer, is for the claims about routes.
CLAIMS: Mapping[str, str] = {
    "reference": "--beside reference-narrow",
    "reference-narrow": "--only R",
}


def folder_of(name: str) -> Path:
    """Returns the folder with weights, tokenizer, learning curve and scores of a reference model."""
    return Path(str(files("kvbench.reference").joinpath("models", name)))
