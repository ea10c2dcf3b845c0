"""Names of models, which are checked without loading anything."""

from datasets_gen import unknown_name
from kvbench.models.gguf.header import check_gguf
from kvbench.models.shipped import REFERENCE_MODELS, folder_of, is_mistyped
from kvbench.system.errors import KVBenchError
from kvbench.system.places import user_path


def model_source(name: str) -> str:
    """Returns the folder or hub name of a model for transformers. It raises :class:`KVBenchError` for a name that looks
    like a folder where there is none, or like that of a shipped model."""
    if name in REFERENCE_MODELS:
        return str(folder_of(name))
    looks_local = name.startswith((".", "/", "~")) or name.count("/") > 1
    path = user_path(name)
    if path.is_file():
        check_gguf(path)
        return str(path)
    if path.exists():
        if not (path / "config.json").is_file():
            raise KVBenchError(f"{path} holds no model: config.json is missing")
        return str(path)
    if looks_local:
        raise KVBenchError(f"there is no model at {path}: check the path, or use --model reference")
    if "/" not in name and is_mistyped(name):
        raise KVBenchError(unknown_name("model", name, REFERENCE_MODELS))
    return name
