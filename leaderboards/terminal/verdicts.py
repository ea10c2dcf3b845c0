"""Prints a comparison: a verdict for each task and level, and how and where the two fail differently."""

from collections import Counter
from collections.abc import Sequence

from leaderboards.aggregate.failures import HOW, Contrast
from leaderboards.aggregate.paired import Difference, Duel
from leaderboards.terminal.result_table import Column, ResultTable
from policies.declaration.levels import Level

STYLES = {"better": "green", "worse": "red", "tied": "dim"}
MOST_PARTS = 6


def verdict_table(duels: Sequence[Duel]) -> ResultTable:
    """One row for each task and level of one opponent. p is McNemar's, corrected (Holm) over the whole comparison."""
    first = duels[0]
    columns = (
        Column("policy", shown=False),
        Column("other", shown=False),
        Column("task"),
        Column("kind", shown=False),
        Column("level", first.level.kind, lambda value: str(Level(first.level.kind, value)), right=True),
        Column("f1", "F1, percent", Difference.written, right=True),
        Column("hallucination", text=lambda difference: difference.written(100), right=True),
        Column("p", text=written_p, right=True),
        Column("verdict", "", style=lambda verdict: STYLES[verdict]),
        *(Column(name, shown=False) for name in ("hallucination_p", "f1_p", "questions", "contexts")),
    )
    rows = [
        (
            *(duel.policy, duel.other, duel.task, duel.level.kind, duel.level.value, duel.f1, duel.hallucination),
            *(duel.p, duel.verdict, duel.hallucination_p, duel.f1_p, duel.questions, duel.contexts),
        )
        for duel in duels
    ]
    title = f"{first.policy} against {first.other}: {summary_line(duels)}"
    return ResultTable("verdicts", columns, rows, title)


def summary_line(duels: Sequence[Duel]) -> str:
    """How often it is better, worse and tied."""
    counts = Counter(duel.verdict for duel in duels)
    return f"better in {counts['better']}, worse in {counts['worse']}, tied in {counts['tied']} of {len(duels)} cells"


def written_p(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def failure_table(contrasts: Sequence[Contrast]) -> ResultTable:
    """Kinds of answers, and the parts of the questions where the two clearly differ, the largest difference first."""
    first = contrasts[0]
    columns = (
        Column("policy", shown=False),
        Column("other_policy", shown=False),
        Column("what", ""),
        Column("answers", right=True),
        Column("rate", "this", _percent, right=True),
        Column("other_rate", "other", _percent, right=True),
        Column("difference", text=lambda difference: difference.written(100), right=True),
    )
    parts = [part for part in contrasts if part.part != HOW and part.difference.is_clear]
    rows = [
        (
            *(one.policy, one.other, one.name if one.part == HOW else f"wrong, {one.name}"),
            *(one.answers, one.rate, one.other_rate, one.difference),
        )
        for one in [*(one for one in contrasts if one.part == HOW), *parts[:MOST_PARTS]]
    ]
    caption = f"percent of the answers of {first.policy} (this) and {first.other}; intervals not corrected"
    return ResultTable("failures", columns, rows, "how and where they fail differently", caption)


def _percent(rate: float) -> str:
    return f"{100 * rate:.0f}"
