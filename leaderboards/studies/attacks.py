"""Shows on pages what attacks get: in how many answers a protected text stands word by word, attack
by attack."""

from collections.abc import Sequence
from dataclasses import dataclass

from leaderboards.aggregate.attacks import AttackCell, attack_groups
from leaderboards.rendering.templating import Listing
from leaderboards.studies.parts import level_table

MOST_TABLES = 12  # of attacks of a kind that have one each; the download has all
CELLS = "answers that hold it word by word, [95 % of their share], and the mean recall of its words"


@dataclass(frozen=True)
class LeakSection:
    """Says of one attack, or of all attacks of one kind, what leaks."""

    title: str
    sentences: tuple[str, ...]
    table: Listing
    attacks: tuple[Listing, ...]  # each attack by itself, where it is all of a kind


def leak_sections(cells: Sequence[AttackCell]) -> list[LeakSection]:
    """Makes a section for each attack, or kind of attack, of any number of tasks."""
    sections = []
    for group in attack_groups(cells):
        listings = []
        if len(group.parts) <= MOST_TABLES:
            listings = [_table(f"“{part.attack}”", part.cells) for part in group.parts]
        table = _table(group.title, group.cells)
        sections.append(LeakSection(group.title, group.sentences, table, tuple(listings)))
    return sections


def _table(name: str, cells: Sequence[AttackCell]) -> Listing:
    texts = {(cell.policy, cell.level): _text(cell) for cell in cells}
    return level_table(f"{name}: {CELLS}", texts)


def _text(cell: AttackCell) -> str:
    interval = ""
    if cell.share.interval is not None:
        low, high = cell.share.interval
        interval = f" [{100 * low:.0f} to {100 * high:.0f}]"
    return f"{cell.count}{interval}, recall {100 * cell.recall:.0f} %"
