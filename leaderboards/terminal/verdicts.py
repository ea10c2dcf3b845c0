"""Prints a comparison: a verdict for each task and level, and how and where the two fail differently."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from leaderboards.aggregate.arguments import Arguments, argument_rows
from leaderboards.aggregate.failures import HOW, Contrast
from leaderboards.aggregate.paired import MORE, UNDECIDED, Difference, Duel, Verdict
from leaderboards.aggregate.pooled import Pooled
from leaderboards.aggregate.row import FEW_CONTEXTS
from leaderboards.terminal.result_table import Column, ResultTable
from policies.declaration.levels import Level

VERDICTS: tuple[Verdict, ...] = ("better", "worse", UNDECIDED)
STYLES = {"better": "green", "worse": "red", UNDECIDED: "dim"}
MOST_PARTS = 6
MOST_MEASURES = 2  # fit beside a verdict


def pooled_table(pooled: Sequence[Pooled]) -> ResultTable:
    """Makes the table that a comparison begins with: a line for each opponent, or two where some tasks are judged by
    directives."""
    columns = (
        Column("policy", shown=False),
        Column("other", ""),
        Column("sentence", "", of_sentences=True),
        *(Column(name, shown=False) for name in ("measure", "difference", "p", "verdict", "smallest")),
        *(Column(name, shown=False) for name in ("tasks", "cells", "contexts")),
    )
    rows = [
        (
            *(one.policy, one.other, one.sentence, one.measure.name, one.difference, one.p, one.verdict, one.smallest),
            *(one.tasks, one.cells, one.contexts),
        )
        for one in pooled
    ]
    return ResultTable("pooled", columns, rows, f"{pooled[0].policy} against", headed=False)


def verdict_tables(duels: Sequence[Duel]) -> list[ResultTable]:
    """One row for each task and level of one opponent, in 80 columns; a table for each set of measures that tasks
    have."""
    kinds = list(dict.fromkeys(tuple(duel.contests) for duel in duels))
    return [_verdict_table([duel for duel in duels if tuple(duel.contests) == kind]) for kind in kinds]


def _verdict_table(duels: Sequence[Duel]) -> ResultTable:
    first = duels[0]
    measures = [contest.measure for contest in first.contests.values()]
    columns = (
        Column("policy", shown=False),
        Column("other", shown=False),
        Column("task", cut=True),
        Column("kind", shown=False),
        Column("level", first.level.kind, lambda value: str(Level(first.level.kind, value)), right=True),
        *(
            Column(
                one.name,
                one.short,
                partial(Difference.written, factor=one.factor),
                right=True,
                shown=place < MOST_MEASURES,
            )
            for place, one in enumerate(measures)
        ),
        Column("verdict_in_words", "", style=lambda words: STYLES[words.partition(" ±")[0]]),
        *(Column(f"{one.name}_{what}", shown=False) for one in measures for what in ("p", "verdict", "smallest")),
        *(Column(name, shown=False) for name in ("verdict", "questions", "contexts", "family")),
    )
    rows = [
        (
            *(duel.policy, duel.other, duel.task, duel.level.kind, duel.level.value),
            *(contest.difference for contest in duel.contests.values()),
            short_verdict(duel),
            *(value for one in duel.contests.values() for value in (one.p, one.verdict, one.smallest())),
            *(duel.verdict, duel.questions, duel.contexts, duel.family),
        )
        for duel in duels
    ]
    title = f"{first.policy} against {first.other}: {summary_line(duels)}"
    return ResultTable("verdicts", columns, rows, title, explanation(duels))


def argument_table(presses: Sequence[Arguments]) -> ResultTable:
    """The arguments that each policy ran with, side by side; a row for all tasks on which they are the same."""
    columns = (
        Column("policy"),
        Column("arguments", of_sentences=True),
        Column("tasks", "on", of_sentences=True),
    )
    return ResultTable("arguments", columns, argument_rows(presses), "arguments that the presses ran with")


def short_verdict(duel: Duel) -> str:
    """The verdict, and which differences could not be seen where it is none."""
    smallest = duel.lead.smallest()
    return duel.verdict if duel.verdict != UNDECIDED or smallest is None else f"{UNDECIDED} ±{smallest:.0f}"


def explanation(duels: Sequence[Duel]) -> str:
    """Explains how a table of verdicts is read."""
    lead, levels = duels[0].lead.measure, max(duel.family for duel in duels)
    fewest = min(duel.contexts for duel in duels)
    lines = [f"points of difference; verdicts are on {lead.title}"]
    lines += [f"intervals are those of the test: each task corrected over its {levels} levels (Holm)"] * (levels > 1)
    if any(duel.verdict == UNDECIDED for duel in duels):
        lines.append(f"±: smaller differences cannot be seen with {fewest} contexts; --limit {MORE * fewest} sees half")
    return "\n".join([*lines, *few_contexts(duels)])


def few_contexts(duels: Sequence[Duel]) -> list[str]:
    """Warns of verdicts from few contexts; empty where there are enough."""
    fewest = min(duel.contexts for duel in duels)
    return (
        [f"only {fewest} context{'s' * (fewest > 1)}: verdicts from fewer than {FEW_CONTEXTS} say little"]
        if fewest < FEW_CONTEXTS
        else []
    )


def summary_line(duels: Sequence[Duel]) -> str:
    """Counts how often a policy is better, worse and not distinguished."""
    counts = Counter(duel.verdict for duel in duels)
    words = ", ".join(f"{verdict} in {counts[verdict]}" for verdict in VERDICTS)
    return f"{words} of {len(duels)} cells"


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
