"""Names of models, which are checked without loading anything."""

import difflib
from pathlib import Path

from datasets_gen import unknown_name
from kvbench.models.adapter import base_of, is_adapter
from kvbench.models.fetch import fetch_on_first_use
from kvbench.models.gguf.header import SUFFIX, check_gguf
from kvbench.models.natural import NATURAL_MODELS
from kvbench.models.shipped import ADAPTERS, REFERENCE_MODELS, SHIPPED, folder_of
from kvbench.system.errors import KVBenchError
from kvbench.system.files import user_path

MODEL_NAMES = (*REFERENCE_MODELS, *NATURAL_MODELS, *ADAPTERS)


def is_mistyped(name: str) -> bool:
    """Tells whether a name that is no file's looks like the name of a model of kvbench."""
    return name not in MODEL_NAMES and bool(difflib.get_close_matches(name, MODEL_NAMES))


def adapter_of(name: str) -> Path | None:
    """Returns the folder of the adapter that a model is: its own, where peft wrote the adapter alone."""
    folder = folder_of(name) if name in SHIPPED else user_path(name)
    return folder if is_adapter(folder) else None


def local_source(name: str) -> Path | None:
    """Returns the folder or the GGUF file of a model that is on this machine under its name or path, of the base where
    the model is an adapter; None if it is not, as with the models of the hub."""
    if adapter := adapter_of(name):
        return local_source(base_of(adapter))
    if name in REFERENCE_MODELS:
        return folder_of(name)
    if name in NATURAL_MODELS:
        return NATURAL_MODELS[name].path if NATURAL_MODELS[name].is_here else None
    path = user_path(name)
    return path if path.is_file() or (path / "config.json").is_file() else None


def model_source(name: str) -> str:
    """Returns the folder, GGUF file or hub name of a model for transformers, of its base where it is an adapter, and
    fetches a natural model on its first use. It raises :class:`KVBenchError` for a name that looks like a path where
    there is nothing, or like the name of a model of kvbench."""
    if adapter := adapter_of(name):
        return model_source(base_of(adapter))
    if name in NATURAL_MODELS:
        return str(fetch_on_first_use(NATURAL_MODELS[name]))
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
