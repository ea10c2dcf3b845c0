"""Prints a comparison: a verdict for each task and level, and how and where the two fail differently."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from leaderboards.aggregate.arguments import Arguments, argument_rows
from leaderboards.aggregate.comparison.duel import COMPARED, MORE, POINTS, UNDECIDED, Duel, MeanDifference, Verdict
from leaderboards.aggregate.comparison.failures import HOW, Contrast
from leaderboards.aggregate.comparison.pooled import BEHIND_HEADLINE, Pooled, note_on_areas
from leaderboards.aggregate.row import FEW_CONTEXTS
from leaderboards.terminal.result_table import Column, ResultTable
from policies.declaration.levels import Level

VERDICTS: tuple[Verdict, ...] = ("better", "worse", UNDECIDED)
LINKS = {"better": "than", "worse": "than", UNDECIDED: "from"}
STYLES = {"better": "green", "worse": "red", UNDECIDED: "dim"}
MOST_PARTS = 6
MOST_MEASURES = 2  # fit beside a verdict
SHARE = "share of the answers"
NOT_MASTERED = "the model cannot do it"


def pooled_table(pooled: Sequence[Pooled], adapted: Collection[str] = ()) -> ResultTable:
    """Makes the table that a comparison begins with: some lines for each opponent, which say where it ran with other
    arguments than its paper's."""
    columns = (
        Column("policy", shown=False),
        Column("other", "", lambda name: f"{name}, adapted" if name in adapted else str(name)),
        Column("sentence", "", _headline_first, of_sentences=True),
        *(Column(name, shown=False) for name in ("measure", "unit", "difference", "p", "verdict", "smallest")),
        *(Column(name, shown=False) for name in ("tasks", "cells", "contexts")),
    )
    rows = [
        (
            *(one.policy, one.other, one.sentence, one.measure.name, POINTS, one.points, one.p, one.verdict),
            *(one.smallest, one.tasks, one.cells, one.contexts),
        )
        for one in pooled
    ]
    title = "no task of this comparison can be done with the full cache"
    if pooled:
        title = "\n".join((pooled[0].policy, *verdicts_in_words(pooled), "One by one, against"))
    return ResultTable("pooled", columns, rows, title, note_on_areas(pooled), headed=False)


def verdicts_in_words(pooled: Sequence[Pooled]) -> list[str]:
    """Writes a line for each measure, such as "F1: better than knorm; not distinguished from random, recency"."""
    lines = []
    for measure in dict.fromkeys(one.measure for one in pooled):
        others = {
            verdict: [one.other for one in pooled if (one.measure, one.verdict) == (measure, verdict)]
            for verdict in VERDICTS
        }
        told = [f"{verdict} {LINKS[verdict]} {', '.join(names)}" for verdict, names in others.items() if names]
        lines.append(f"{measure.title}: {'; '.join(told)}")
    return lines


def _headline_first(sentence: str) -> str:
    """Gives the headline a line of its own."""
    return sentence.replace(BEHIND_HEADLINE, "\n", 1)


def verdict_tables(duels: Sequence[Duel], unmastered: Mapping[str, str]) -> list[ResultTable]:
    """Returns one row for each task and level of one opponent, in 80 columns; a table for each measure that gives
    verdicts. ``unmastered``: why the model cannot do a task, which has no verdict."""
    leads = dict.fromkeys(duel.lead.measure for duel in duels)
    return [_verdict_table([duel for duel in duels if duel.lead.measure is lead], unmastered) for lead in leads]


def _verdict_table(duels: Sequence[Duel], unmastered: Mapping[str, str]) -> ResultTable:
    first, judged = duels[0], mastered(duels, unmastered)
    measures = [measure for name, measure in COMPARED.items() if any(name in duel.contests for duel in duels)]
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
                _difference,
                right=True,
                shown=place < MOST_MEASURES,
            )
            for place, one in enumerate(measures)
        ),
        Column("unit", shown=False),
        Column("verdict_in_words", "", style=_verdict_style, of_sentences=True),
        *(Column(f"{one.name}_{what}", shown=False) for one in measures for what in ("p", "verdict", "smallest")),
        *(Column(name, shown=False) for name in ("verdict", "not_mastered", "questions", "contexts", "family")),
    )
    rows = []
    for duel in duels:
        reason = unmastered.get(duel.task)
        contests = [None if reason else duel.contests.get(one.name) for one in measures]
        rows.append(
            (
                *(duel.policy, duel.other, duel.task, duel.level.kind, duel.level.value),
                *(one and one.points for one in contests),
                POINTS,
                NOT_MASTERED if reason else short_verdict(duel),
                *(value for one in contests for value in ((one.p, one.verdict, one.smallest()) if one else [None] * 3)),
                *(None if reason else duel.verdict, reason, duel.questions, duel.contexts, duel.family),
            )
        )
    title = f"{first.policy} against {first.other}: {summary_line(judged)}"
    reasons = [
        f"{task}: {unmastered[task]}" for task in dict.fromkeys(duel.task for duel in duels) if task in unmastered
    ]
    return ResultTable("verdicts", columns, rows, title, "\n".join([*explanation(judged), *reasons]))


def _verdict_style(words: str) -> str:
    return STYLES.get(words.partition(" ±")[0], "dim")


def _difference(difference: MeanDifference | None) -> str:
    return "–" if difference is None else difference.text()


def mastered(duels: Sequence[Duel], unmastered: Mapping[str, str]) -> list[Duel]:
    """Selects those of tasks that the model can do."""
    return [duel for duel in duels if duel.task not in unmastered]


def argument_table(presses: Sequence[Arguments]) -> ResultTable:
    """Returns the arguments that each policy ran with, side by side; a row for all tasks on which they are the same."""
    columns = (
        Column("policy"),
        Column("arguments", of_sentences=True),
        Column("tasks", "on", of_sentences=True),
    )
    return ResultTable("arguments", columns, argument_rows(presses), "arguments that the presses ran with")


def short_verdict(duel: Duel) -> str:
    """Returns the verdict, and which differences could not be seen where it is none."""
    smallest = duel.lead.smallest()
    return duel.verdict if duel.verdict != UNDECIDED or smallest is None else f"{UNDECIDED} ±{smallest:.0f}"


def explanation(duels: Sequence[Duel]) -> list[str]:
    """Explains in lines how a table of verdicts is read."""
    if not duels:
        return []
    lead, levels = duels[0].lead.measure, max(duel.family for duel in duels)
    fewest = min(duel.contexts for duel in duels)
    lines = [f"points of difference; verdicts are on {lead.title}"]
    lines += [f"intervals are those of the test: each task corrected over its {levels} levels (Holm)"] * (levels > 1)
    if any(duel.verdict == UNDECIDED and duel.lead.smallest() is not None for duel in duels):
        lines.append(f"±: smaller differences cannot be seen with {fewest} contexts; --limit {MORE * fewest} sees half")
    return [*lines, *few_contexts(duels)]


def few_contexts(duels: Sequence[Duel]) -> list[str]:
    """Warns of verdicts from few contexts; empty where there are enough."""
    fewest = min((duel.contexts for duel in duels), default=FEW_CONTEXTS)
    return (
        [f"only {fewest} context{'s' * (fewest > 1)}: verdicts from fewer than {FEW_CONTEXTS} say little"]
        if fewest < FEW_CONTEXTS
        else []
    )


def summary_line(duels: Sequence[Duel]) -> str:
    """Counts how often a policy is better, worse and not distinguished."""
    if not duels:
        return "no task that the model can do"
    counts = Counter(duel.verdict for duel in duels)
    words = ", ".join(f"{verdict} in {counts[verdict]}" for verdict in VERDICTS)
    return f"{words} of {len(duels)} cells"


def failure_table(contrasts: Sequence[Contrast]) -> ResultTable:
    """Lists kinds of answers, and the questions for which the two clearly differ, the largest difference first."""
    first = contrasts[0]
    columns = (
        Column("policy", shown=False),
        Column("other_policy", shown=False),
        Column("what", "", of_sentences=True),
        Column("answers", right=True),
        Column("rate", "this", _percent, right=True),
        Column("other_rate", "other", _percent, right=True),
        Column("difference", text=lambda difference: difference.text(100), right=True),
        Column("unit", shown=False),
    )
    parts = [part for part in contrasts if part.part != HOW and part.difference.is_clear]
    rows = [
        (
            *(one.policy, one.other, one.name if one.part == HOW else f"not right, {one.name}"),
            *(one.answers, one.rate, one.other_rate, one.difference, SHARE),
        )
        for one in [*(one for one in contrasts if one.part == HOW), *parts[:MOST_PARTS]]
    ]
    known = first.difference.low is not None
    intervals = "not corrected" if known else f"of fewer than {FEW_CONTEXTS} contexts are not shown"
    caption = f"percent of the answers of {first.policy} (this) and {first.other}; intervals {intervals}"
    return ResultTable("failures", columns, rows, "how and where they fail differently", caption)


def _percent(rate: float) -> str:
    return f"{100 * rate:.0f}"
