"""Keeps the source of presses of the user's own in the folder of a run, so that who gets the run
can read and trust it.

``press_sources/<policy>/`` is a folder from which the press can be imported as it was. Nothing in
it is ever run unless a user asks for it: ``check-submission --trust-code``.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from shutil import copyfile

from pydantic import BaseModel, ConfigDict

from kvbench.system.console import console
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.files import file_name, write_atomically, write_text_atomically
from policies import Policy

FOLDER = "press_sources"
LIST_FILE = "files.json"  # in the folder of a press
MOST_BYTES = 1_000_000  # of a file: weights are named, and not copied


class KeptFiles(BaseModel):
    """Lists what the folder of a press holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: str
    press: str  # the file that the press stands in
    files: tuple[str, ...]
    left_out: tuple[str, ...] = ()  # as they are too large


def keep_sources(run: Path, policies: Iterable[Policy]) -> None:
    """Copies the files of each plug-in among some policies into the folder of a run. It says which
    are left out."""
    for policy in policies:
        code = policy.code
        if not (code.files or code.texts):
            continue
        folder = _press_folder(run, policy.name)
        copied, large = [*code.texts], []
        for name, text in code.texts.items():
            write_text_atomically(folder / name, text)
        for name, file in code.files.items():
            if file.stat().st_size > MOST_BYTES:
                large.append(name)
                continue
            write_atomically(folder / name, partial(copyfile, file))
            copied.append(name)
        for name in large:
            size = f"larger than {MOST_BYTES / 1e6:g} MB"
            line = f"{name}, which {policy.name} reads, is {size}: it is not copied to {folder}"
            console.print(line, soft_wrap=True, markup=False)
        kept = KeptFiles(
            policy=policy.name,
            press=next(iter((*code.texts, *code.files))),
            files=tuple(copied),
            left_out=tuple(large),
        )
        write_text_atomically(folder / LIST_FILE, kept.model_dump_json(indent=2) + "\n")


def kept_press(run: Path, policy: str) -> Path | None:
    """Returns the copy of the file that a press stands in; None where the run has none. It reads
    and runs nothing of it. Raises :class:`KVBenchError` where the list of files is damaged."""
    folder = _press_folder(run, policy)
    path = folder / LIST_FILE
    if not path.is_file():
        return None
    try:
        press = folder / KeptFiles.model_validate_json(path.read_bytes()).press
    except (ValueError, OSError) as error:
        reason = f"{path} is damaged ({first_line(error)})"
        raise KVBenchError(f"{reason}: ask for the run again") from error
    # A stranger's list may name a file outside of the folder.
    is_inside = press.resolve().is_relative_to(folder.resolve())
    return press if press.is_file() and is_inside else None


def _press_folder(run: Path, policy: str) -> Path:
    return run / FOLDER / file_name(policy)
