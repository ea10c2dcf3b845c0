"""These models ship with the package."""

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
_TRAIN = "torchrun --nproc-per-node 2 -m kvbench.reference.train"


def _command(model: str, work: str, options: str) -> str:
    return f"{_TRAIN} --model {model} \\\n    --work training/{work} --out training/{work}/model \\\n    {options}"


_WIDENED = "--widened reference-narrow --steps"
_QWEN = _command("reference-qwen", "reference-qwen", f"{_WIDENED} 17000 --fall 1600")
_FADED = _command("reference-qwen", "faded", "--from training/reference-qwen --seed 3 --steps 300 --fade 300")
_UNNORMED = _command("reference", "unnormed", "--from training/faded --seed 4 --steps 700 --fall 300")
_LLAMA = _command("reference", "reference", "--from training/unnormed --steps 1400 --fall 400")
_CONFIDENT = _command(
    "reference", "reference-confident", "--from training/reference --seed 5 --confident --steps 300 --fall 300"
)
_SMALL = _command("reference-qwen", "reference-small", f"--shape small --seed 6 {_WIDENED} 2400 --fall 800")
# The commands that made each, in their order; docs/models.md tells what was done in pieces.
HOW_MADE: Mapping[str, str] = {
    "reference": "\n".join((_QWEN, _FADED, _UNNORMED, _LLAMA)),
    "reference-qwen": _QWEN,
    "reference-confident": "\n".join((_QWEN, _FADED, _UNNORMED, _LLAMA, _CONFIDENT)),
    "reference-small": _SMALL,
    "reference-narrow": f"{_TRAIN} --shape narrow  # by an earlier recipe: docs/models.md",
}
# All of them but the narrow one, which they begin with.
TRAINING = "\n".join((_QWEN, _FADED, _UNNORMED, _LLAMA, _CONFIDENT, _SMALL))
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
