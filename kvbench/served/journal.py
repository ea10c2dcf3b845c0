"""Notes every answer as soon as it is there, so that a run which is killed asks nothing twice.

The tables of a run are written chunk by chunk, and what a kill loses of a chunk is computed again
elsewhere. A server would be paid again, and might answer otherwise."""

import threading
from pathlib import Path

from pydantic import BaseModel, ValidationError

from kvbench.served.answer import ServedAnswer

FILE = "answers.jsonl"  # in the folder of a run, while it is not complete


class _Entry(BaseModel):
    task: str
    question_id: str
    answer: ServedAnswer


class Journal:
    """Holds the answers of a run that are not in its tables yet. Several threads may write."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str], ServedAnswer] = {}
        self._is_removed = False
        if self._file.is_file():
            for line in self._file.read_bytes().splitlines():
                self._read(line)

    def _read(self, line: bytes) -> None:
        try:
            entry = _Entry.model_validate_json(line)
        except ValidationError:  # the line that a kill cut off
            return
        self._answers[entry.task, entry.question_id] = entry.answer

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, task: str, question_id: str) -> ServedAnswer | None:
        """Returns an answer that is noted."""
        return self._answers.get((task, question_id))

    def add(self, task: str, question_id: str, answer: ServedAnswer) -> None:
        """Notes an answer. It is with the system when this returns, whatever becomes of the
        process."""
        entry = _Entry(task=task, question_id=question_id, answer=answer)
        with self._lock:
            if self._is_removed:  # this answer was under way when the notes lost their worth
                return
            self._answers[task, question_id] = answer
            # A line that a kill cut off stands alone: a new one begins behind it.
            with self._file.open("ab") as file:
                file.write(b"\n" + entry.model_dump_json().encode())

    def remove(self) -> None:
        """Removes all notes, and takes no more: the tables have them, or they are not to be
        trusted."""
        with self._lock:
            self._is_removed = True
            self._answers.clear()
            self._file.unlink(missing_ok=True)
