"""Keeps beside the records of the board which methods cannot run on a model: their rows are missing
there, and the page says why."""

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from kvbench.board.pieces import RECORDS_FOLDER
from kvbench.system.errors import KVBenchError
from kvbench.system.files import write_text_atomically

UNFIT_FILE = "unfit.json"
Unfit = Mapping[str, Mapping[str, str]]  # by model, and there by policy why it cannot run
_CONTENT: TypeAdapter[dict[str, dict[str, str]]] = TypeAdapter(dict[str, dict[str, str]])


def read_unfit(folder: Path = RECORDS_FOLDER) -> Unfit:
    """Reads which methods cannot run on a model; nothing where no file says so. Raises
    :class:`KVBenchError` for a file that is damaged."""
    path = folder / UNFIT_FILE
    if not path.is_file():
        return {}
    try:
        return _CONTENT.validate_json(path.read_bytes())
    except ValidationError as error:
        raise KVBenchError(f"{path} is damaged: delete it, and make board writes it") from error


def write_unfit(folder: Path, unfit: Unfit) -> None:
    """Writes which methods cannot run on a model."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(unfit, indent=1, ensure_ascii=False)
    write_text_atomically(folder / UNFIT_FILE, f"{text}\n")
