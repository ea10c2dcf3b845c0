"""These models ship with the package."""

import difflib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

REFERENCE_MODELS: Mapping[str, str] = {
    "reference": "Llama architecture with grouped-query attention, ships with kvbench",
    "reference-qwen": "Qwen 3 architecture, which norms queries and keys, ships with kvbench",
}
_TRAIN = "torchrun --nproc-per-node 2 -m kvbench.reference.train"
_GOING_ON = f"{_TRAIN} --seed 1 --from training"
_FIRST = f"{_TRAIN} --model reference-qwen --work training/first --steps 4000  # ended after step 2,900"
_QWEN = f"{_GOING_ON}/first \\\n    --model reference-qwen --work training/reference-qwen --steps 6000"
_LLAMA = f"{_GOING_ON}/reference-qwen \\\n    --model reference --work training/reference --steps 600 --decay 1"
# The commands that made each, in their order.
HOW_MADE: Mapping[str, str] = {
    "reference": "\n".join((_FIRST, _QWEN, _LLAMA)),
    "reference-qwen": "\n".join((_FIRST, _QWEN)),
}


def is_mistyped(name: str) -> bool:
    """Tells whether a name that is no file's looks like a shipped model's."""
    return name not in REFERENCE_MODELS and bool(difflib.get_close_matches(name, REFERENCE_MODELS))


def folder_of(name: str) -> Path:
    """Returns the folder with weights, tokenizer, learning curve and scores of a reference model."""
    return Path(str(files("kvbench.reference").joinpath("models", name)))
