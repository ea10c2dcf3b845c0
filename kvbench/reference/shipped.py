"""Which models ship with the package, and where their files are."""

import difflib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

REFERENCE_MODELS: Mapping[str, str] = {
    "reference": "Llama architecture with grouped-query attention, ships with kvbench",
    "reference-qwen": "Qwen 3 architecture, which norms queries and keys, ships with kvbench",
}
_TRAIN = "torchrun --nproc-per-node 2 -m kvbench.reference.train"
_FROM_NOTHING = f"{_TRAIN} --model reference-qwen --work training/reference-qwen --steps 4000"
# The commands that made each, in their order.
HOW_MADE: Mapping[str, str] = {
    "reference": f"{_FROM_NOTHING}\n{_TRAIN} --model reference --work training/reference --steps 200 --seed 1 \\\n"
    "    --from training/reference-qwen",
    "reference-qwen": _FROM_NOTHING,
}


def mistyped(name: str) -> bool:
    """Whether a name that is no file's looks like one of theirs."""
    return name not in REFERENCE_MODELS and bool(difflib.get_close_matches(name, REFERENCE_MODELS))


def folder_of(name: str) -> Path:
    """Weights, tokenizer, learning curve and scores of a reference model."""
    return Path(str(files("kvbench.reference").joinpath("models", name)))
