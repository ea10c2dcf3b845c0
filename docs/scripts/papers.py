"""Reads the register of the five texts: each table, figure and experiment of theirs, with the
command that makes ours.

``make readme`` writes docs/papers.md from papers.json, and tests/documents/test_papers.py runs
every command. In a command MODEL stands for the reader's model, and a file that ends in .jsonl or
.txt for the rows of a benchmark."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

REGISTER = Path(__file__).parents[1] / "papers.json"


class Item(BaseModel, extra="forbid", frozen=True):
    """Says what a table, figure or experiment of a text shows, and where ours stands."""

    name: str  # as the text counts it
    shows: str
    section: str  # the beginning of its title on the page
    sheet: str  # the file among the downloads of the page
    columns: str  # of the sheet, which hold its numbers; separated by commas
    differs: str  # how ours differs from theirs, with the reason; what is to come of it

    @property
    def column_names(self) -> list[str]:
        return self.columns.split(", ")


class Command(BaseModel, extra="forbid", frozen=True):
    """Holds what one command shows: sections of one page, and sheets."""

    line: str
    page: str
    items: Sequence[Item]

    @property
    def name(self) -> str:
        """Returns the name of its run."""
        words = self.line.split()
        return words[words.index("--name") + 1]


class Register(BaseModel, extra="forbid", frozen=True):
    """Holds what is shown of a text, and what is to come, by the name of the item."""

    commands: Sequence[Command]
    to_come: Mapping[str, str]


def registers() -> dict[str, Register]:
    """Returns the register of each text, by its letter."""
    return TypeAdapter(dict[str, Register]).validate_json(REGISTER.read_bytes())
