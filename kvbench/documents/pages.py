"""``python -m kvbench.documents.pages`` writes the tables of the README and of docs anew, and the model cards.

A table stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``; a test fails when one has drifted.
"""

import re
from pathlib import Path

from datasets_gen import unknown_name
from kvbench.documents.model_card import model_card
from kvbench.documents.tables import BLOCKS, DOCS
from kvbench.models.shipped import REFERENCE_MODELS, folder_of
from kvbench.system.errors import KVBenchError

ROOT = DOCS.parent
BEGIN = re.compile(r"<!-- begin (.+?) -->\n")
BLOCK = re.compile(r"(<!-- begin (.+?) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def pages() -> list[Path]:
    """Returns the documents that people read: the README, the index, and the others in the order of the index."""
    index = DOCS / "index.md"
    listed = [DOCS / name for name in re.findall(r"\]\((\w+\.md)\)", index.read_text())]
    return [ROOT / "README.md", index, *listed]


def blocks_of(text: str) -> list[str]:
    """Returns the names of the tables of a page, in order."""
    return BEGIN.findall(text)


def fill_tables(text: str, page: str) -> str:
    """Writes every table of a page anew; raises :class:`KVBenchError` for one that is unknown or has no end."""
    complete = {match[2] for match in BLOCK.finditer(text)}
    for name in blocks_of(text):
        if name not in BLOCKS:
            raise KVBenchError(f"{page}: {unknown_name('table', name, BLOCKS)}")
        if name not in complete:
            raise KVBenchError(f"{page}: the table '{name}' has no end: add <!-- end {name} --> behind it")
    return BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match[2]]()}\n{match[3]}", text)


if __name__ == "__main__":
    for page in pages():
        page.write_text(fill_tables(page.read_text(), page.name))
    for model in REFERENCE_MODELS:
        (folder_of(model) / "README.md").write_text(model_card(model))
