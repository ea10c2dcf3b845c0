"""Prints a comparison: a verdict for each task and level, and how and where the two fail differently."""

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from leaderboards.aggregate.failures import HOW, Contrast
from leaderboards.aggregate.paired import Duel

STYLES = {"better": "green", "worse": "red", "tied": "dim"}
MOST_PARTS = 6


def verdict_table(duels: Sequence[Duel]) -> Table:
    """One row for each task and level of one opponent. p is McNemar's, corrected (Holm) over the whole comparison."""
    first = duels[0]
    title = f"{first.policy} against {first.other}: {summary_line(duels)}"
    table = _table(title, ("task", first.level.kind, "F1, percent", "hallucination", "p", ""))
    for duel in duels:
        table.add_row(
            duel.task,
            str(duel.level),
            duel.f1.written(),
            duel.hallucination.written(100),
            written_p(duel.p),
            Text(duel.verdict, STYLES[duel.verdict]),
        )
    return table


def summary_line(duels: Sequence[Duel]) -> str:
    """How often it is better, worse and tied."""
    counts = Counter(duel.verdict for duel in duels)
    return f"better in {counts['better']}, worse in {counts['worse']}, tied in {counts['tied']} of {len(duels)} cells"


def written_p(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def failure_table(contrasts: Sequence[Contrast]) -> Table:
    """Kinds of answers, and the parts of the questions where the two clearly differ, the largest difference first."""
    first = contrasts[0]
    table = _table("how and where they fail differently", ("", "answers", "this", "other", "difference"))
    parts = [part for part in contrasts if part.part != HOW and part.difference.is_clear]
    for contrast in [*(one for one in contrasts if one.part == HOW), *parts[:MOST_PARTS]]:
        wrong = "" if contrast.part == HOW else "wrong, "
        table.add_row(
            f"{wrong}{contrast.name}",
            f"{contrast.answers:,}",
            f"{100 * contrast.rate:.0f}",
            f"{100 * contrast.other_rate:.0f}",
            contrast.difference.written(100),
        )
    table.caption = f"percent of the answers of {first.policy} (this) and {first.other}; intervals not corrected"
    return table


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.title_justify = table.caption_justify = "left"
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number == 0 or not name else "right", overflow="fold")
    return table
