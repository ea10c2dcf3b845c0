"""Models that kvbench knows by name, and names and paths of models, which are checked without
loading anything.

The shipped ones are small models that know the tasks alone, and a LoRA adapter of a natural one: a
folder that peft wrote, whose configuration names the model that its weights are added to."""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from datasets_gen import unknown_name
from kvbench.handed.scope import find_handed_model
from kvbench.models.gguf.header import SUFFIX, check_gguf
from kvbench.models.natural import NATURAL_MODELS, fetch
from kvbench.system.errors import KVBenchError
from kvbench.system.files import user_path

# A dtype: on a GPU that of the checkpoint, so that 16 bits need no copy of 32; float32 on a
# processor.
OF_CHECKPOINT = "checkpoint"

ADAPTER = "adapter_config.json"
ADDRESS = re.compile(r"https?://", re.IGNORECASE)
REFERENCE_MODELS: Mapping[str, str] = {
    "reference": "Llama architecture, reads by many routes; the default",
    "reference-narrow": "Qwen 3 architecture, reads its context in one layer: the control of claims about routes",
}
ADAPTERS: Mapping[str, str] = {
    "smollm2-routing": "smollm2 with adapters that were taught the tasks: a natural model that masters them",
}
SHIPPED: Mapping[str, str] = {**REFERENCE_MODELS, **ADAPTERS}


@dataclass(frozen=True)
class ModelTitle:
    """Holds what pages call a model, and what it is in a few words."""

    title: str
    in_words: str


# Of the models that kvbench knows by name.
TITLES: Mapping[str, ModelTitle] = {
    "reference": ModelTitle("reference", "5 million parameters, trained on these tasks alone"),
    "reference-narrow": ModelTitle(
        "reference-narrow", "2 million parameters, trained on these tasks alone"
    ),
    "smollm2": ModelTitle("SmolLM2", "a chat model of 135 million parameters"),
    "smollm2-routing": ModelTitle(
        "SmolLM2", "135 million parameters, with adapters that were taught these tasks"
    ),
    "gemma3": ModelTitle("Gemma 3", "a base model of 270 million parameters"),
    "qwen": ModelTitle("Qwen2.5-Coder", "a chat model of 494 million parameters"),
}


def title_of_model(name: str, in_words: str) -> ModelTitle:
    """Returns what pages call a model; one that is not known by name is described as its run stored
    it."""
    return TITLES.get(name, ModelTitle(name, in_words))


def parameters_text(count: int) -> str:
    """Writes a number of parameters.

    >>> parameters_text(134_515_008), parameters_text(8_030_261_248), parameters_text(5_146_560)
    ('135 million parameters', '8 billion parameters', '5.1 million parameters')
    """
    for size, name in ((10**9, "billion"), (10**6, "million"), (10**3, "thousand")):
        if count >= size:
            number = f"{count / size:.1f}".removesuffix(".0")
            if count >= 10 * size:
                number = f"{count / size:.3g}"
            return f"{number} {name} parameters"
    return f"{count} parameters"


def reference_folder(name: str) -> Path:
    """Returns the folder with weights, tokenizer, learning curve and scores of a reference
    model."""
    return Path(str(files("kvbench.reference").joinpath("models", name)))


def base_model(folder: Path) -> str:
    """Returns the name or path of the model below an adapter. A relative path begins at the
    adapter's folder, wherever a command is run; where nothing lies there, at the current folder, as
    in peft. Raises :class:`KVBenchError` where the adapter names none."""
    try:
        base = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (ValueError, KeyError, TypeError):
        base = None
    if not isinstance(base, str) or not base:
        raise KVBenchError(
            f"{folder / ADAPTER} names no base model: write it as base_model_name_or_path"
        )
    beside = folder / base
    is_meant = beside.exists() or (base.startswith(".") and not user_path(base).exists())
    if base not in MODEL_NAMES and is_meant:
        return str(beside.resolve())
    return base


MODEL_NAMES = (*REFERENCE_MODELS, *NATURAL_MODELS, *ADAPTERS)


def is_mistyped(name: str) -> bool:
    """Tells whether a name that is no file's looks like the name of a model of kvbench."""
    return name not in MODEL_NAMES and bool(difflib.get_close_matches(name, MODEL_NAMES))


def adapter_folder(name: str) -> Path | None:
    """Returns the folder of the adapter that a model is: its own, where peft wrote the adapter
    alone."""
    folder = reference_folder(name) if name in SHIPPED else user_path(name)
    return folder if (folder / ADAPTER).is_file() else None


def local_source(name: str) -> Path | None:
    """Returns the folder or GGUF file of a model, or of its base, that is on this machine; else
    None."""
    if adapter := adapter_folder(name):
        return local_source(base_model(adapter))
    if name in REFERENCE_MODELS:
        return reference_folder(name)
    if name in NATURAL_MODELS:
        if NATURAL_MODELS[name].is_here:
            return NATURAL_MODELS[name].path
        return None
    path = user_path(name)
    if path.is_file() or (path / "config.json").is_file():
        return path
    return None


def is_address(name: str) -> bool:
    """Tells whether a model is named by the address of a server that runs it."""
    return ADDRESS.match(name.strip()) is not None


def model_source(name: str) -> str:
    """Returns the folder, GGUF file or hub name of a model for transformers, of its base where it
    is an adapter, and fetches a natural model on its first use; a model in memory has its name
    alone. It raises :class:`KVBenchError` for
    a name that looks like a path where there is nothing, or like the name of a model of kvbench, and
    for the address of a server, which gives answers and no model."""
    if find_handed_model(name) is not None:
        return name
    if is_address(name):
        raise KVBenchError(
            "--model is the address of a server, which run and plan take: this needs the model itself"
        )
    if adapter := adapter_folder(name):
        return model_source(base_model(adapter))
    if name in NATURAL_MODELS:
        return str(fetch(NATURAL_MODELS[name], check=False))
    here, path = local_source(name), user_path(name)
    if here is not None:
        if here.is_file():
            check_gguf(here)
        return str(here)
    if path.exists():
        raise KVBenchError(f"{path} holds no model: config.json is missing")
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or path.suffix == SUFFIX:
        raise KVBenchError(f"there is no model at {path}: check the path, or use --model reference")
    if "/" not in name and is_mistyped(name):
        raise KVBenchError(unknown_name("model", name, MODEL_NAMES))
    return name
