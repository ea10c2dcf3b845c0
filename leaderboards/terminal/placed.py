"""Prints where a press stands among all methods of the board, and writes the same as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from leaderboards.aggregate.duels import Duel
from leaderboards.aggregate.outcomes import OpponentVerdict
from leaderboards.aggregate.pooled import Pooled
from leaderboards.aggregate.row import ALL_TASKS
from leaderboards.downloads.tables import duels_sheet, means_sheet, outcomes_sheet
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.rank import RankInterval
from leaderboards.terminal.result_table import Column, ResultTable

Ranks = Mapping[str, RankInterval | Blank]
# The verdict of a comparison, with the words before the names of the opponents.
GROUPS = {
    "better": "better than",
    "mixed": "better at one level and worse at another than",
    "worse": "worse than",
    "not distinguished": "not distinguished from",
}
MEAN = "mean of tasks"
NO_RANK = "has no place on this board"


def place_line(press: str, model: str, ranks: Ranks) -> str:
    """Says the place of a press in a line, such as "MyPress: place 7 (3 to 12) of 40 on smollm2"."""
    rank = next(iter(ranks.values()), Blank(NO_RANK))
    if isinstance(rank, Blank):
        return f"{press}: no place on {model}, as {rank.reason}"
    return f"{press}: place {place_text(rank)} of {rank.among} on {model}"


def place_text(rank: RankInterval) -> str:
    """Writes a place with its interval, such as "7 (3 to 12)"."""
    if rank.low is None:
        return f"{rank.rank} (too few contexts for an interval)"
    return f"{rank.rank} ({rank.low} to {rank.high})"


def _task_name(task: str) -> str:
    return MEAN if task == ALL_TASKS else task


def places_table(ranks: Ranks) -> ResultTable:
    """Lists the place in the mean over tasks, and in each."""
    rows: list[Sequence[Any]] = []
    for task, rank in ranks.items():
        if isinstance(rank, Blank):
            rows.append((_task_name(task), None, None, None, None, rank.reason))
        else:
            rows.append((_task_name(task), rank.rank, rank.low, rank.high, rank.among, ""))
    columns = (
        Column("task"),
        Column("place", right=True),
        Column("low", "from", right=True),
        Column("high", "to", right=True),
        Column("among", "of", right=True),
        Column("why", "", of_sentences=True),
    )
    return ResultTable("places", columns, rows, "place among all methods, with its 95 % interval")


def opponents_by_verdict(outcomes: Sequence[OpponentVerdict]) -> dict[str, list[str]]:
    """Groups the opponents of a press by the words of the verdict."""
    groups: dict[str, list[str]] = {}
    for verdict, words in GROUPS.items():
        names = [outcome.other for outcome in outcomes if outcome.verdict == verdict]
        if names:
            groups[words] = names
    return groups


def lines_by_verdict(outcomes: Sequence[OpponentVerdict]) -> list[str]:
    """Writes a line for each verdict, such as "better than 2: snapkv, knorm"."""
    lines = []
    for words, names in opponents_by_verdict(outcomes).items():
        lines.append(f"{words} {len(names)}: {', '.join(names)}")
    return lines


def opponents_tables(
    outcomes: Sequence[OpponentVerdict], duels: Sequence[Duel], unmastered: Mapping[str, str]
) -> list[ResultTable]:
    """Makes what a comparison with all methods says: the opponents of each verdict. Programs find
    every verdict and every mean too. ``unmastered``: why the model cannot do a task."""
    lines = lines_by_verdict(outcomes)
    rows: list[Pooled] = []
    for outcome in outcomes:
        rows += outcome.rows
    return [
        ResultTable.from_sheet(
            "outcomes", outcomes_sheet("outcomes", outcomes), Text("\n".join(lines))
        ),
        ResultTable.from_sheet("verdicts", duels_sheet("verdicts", duels, unmastered), ""),
        ResultTable.from_sheet("means", means_sheet("means", rows), ""),
    ]


def markdown_block(
    press: str,
    model: str,
    ranks: Ranks,
    outcomes: Sequence[OpponentVerdict],
    notes: Sequence[str],
    command: str,
) -> str:
    """Writes what a pull request of a press says of its place: about ten lines, with the command."""
    lines = [f"**{place_line(f'`{press}`', f'`{model}`', ranks)}** (kvbench)", ""]
    lines += ["| task | place | of |", "| --- | --- | --- |"]
    for task, rank in ranks.items():
        if isinstance(rank, Blank):
            lines.append(f"| {_task_name(task)} | – ({rank.reason}) | – |")
        else:
            lines.append(f"| {_task_name(task)} | {place_text(rank)} | {rank.among} |")
    lines.append("")
    for words, names in opponents_by_verdict(outcomes).items():
        lines.append(f"- {words} {', '.join(f'`{name}`' for name in names)}")
    lines += [f"- {note}" for note in notes]
    return "\n".join([*lines, "", f"`{command}`", ""])
