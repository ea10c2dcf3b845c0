"""The page that lists runs, comparisons, registers of claims and imported results."""

from collections.abc import Sequence
from dataclasses import dataclass

from leaderboards.rendering.templating import render


@dataclass(frozen=True)
class ListedPages:
    """Pages of one kind in one folder, which are a row of the list."""

    name: str  # text of the link to the first page
    folder: str  # relative to that of the list; empty for that folder itself
    kind: str
    pages: tuple[str, ...]  # file names, the first of them to begin with
    model: str
    tasks: tuple[str, ...]
    verdicts: str
    began: str  # ISO 8601; empty where nobody knows


def build_list(rows: Sequence[ListedPages]) -> str:
    """Returns the page as text, with the rows in their order."""
    return render("all_runs.html.j2", rows=rows)
