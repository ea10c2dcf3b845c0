"""These models ship with the package: small ones that know its tasks alone, and adapters of natural ones."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

REFERENCE_MODELS: Mapping[str, str] = {
    "reference": "Llama architecture, reads by many routes; the default",
    "reference-qwen": "Qwen 3 architecture, which norms queries and keys, reads by many routes",
    "reference-confident": "reference, trained on without unanswerable questions: it always answers",
    "reference-small": "reference-qwen's recipe at a third of the parameters",
    "reference-narrow": "Qwen 3 architecture, reads its context in one layer: the control of claims about routes",
}
ADAPTERS: Mapping[str, str] = {
    "smollm2-routing": "smollm2 with adapters that were taught the tasks: a natural model that masters them",
}
SHIPPED: Mapping[str, str] = {**REFERENCE_MODELS, **ADAPTERS}
# The options of ``claims`` for each: all claims are put to those that read by many routes.
CLAIMS: Mapping[str, str] = {
    "reference": "--beside reference-qwen",
    "reference-qwen": "--beside reference",
    "reference-confident": "--beside reference-qwen",
    "reference-small": "--larger reference-qwen --only F5,R9,N",
    "reference-narrow": "--only R",
}


def folder_of(name: str) -> Path:
    """Returns the folder with weights, tokenizer, learning curve and scores of a reference model."""
    return Path(str(files("kvbench.reference").joinpath("models", name)))
