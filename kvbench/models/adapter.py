"""A LoRA adapter: a folder that peft wrote, whose configuration names the model that its weights are added to."""

import json
from pathlib import Path

from kvbench.system.errors import KVBenchError, first_line

CONFIGURATION = "adapter_config.json"


def is_adapter(folder: Path) -> bool:
    return (folder / CONFIGURATION).is_file()


def base_of(folder: Path) -> str:
    """Returns the name or path of the model below an adapter."""
    try:
        base = json.loads((folder / CONFIGURATION).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (ValueError, KeyError, TypeError) as error:
        raise KVBenchError(f"{folder / CONFIGURATION} names no base model: {first_line(error)}") from error
    if not isinstance(base, str) or not base:
        raise KVBenchError(f"{folder / CONFIGURATION} names no base model: write it as base_model_name_or_path")
    return base
