"""The table of attacks that a run prints at its end."""

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from leaderboards.aggregate.attacks import AttackCell, attack_groups
from leaderboards.downloads.tables import attacks_sheet
from leaderboards.terminal.result_table import ResultTable


def attacks_table(cells: Sequence[AttackCell]) -> ResultTable:
    """Returns a row for each attack, policy and level, for programs. People read what each attack
    gets, or each kind of attack where there are many; the page has each by itself."""
    view: list[Text] = []
    for group in attack_groups(cells):
        view.append(Text(f"Does it leak, word by word? {group.title}", "italic"))
        view += [Text(f"- {sentence}") for sentence in group.sentences]
    return ResultTable.from_sheet("attacks", attacks_sheet(cells), Group(*view, Text()))
