"""Prints verdicts: of a comparison, and of claims."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.text import Text

from leaderboards.aggregate.arguments import Arguments, adapted_presses
from leaderboards.aggregate.duels import UNDECIDED, Duel, Verdict
from leaderboards.aggregate.pooled import OF_AREAS, Pooled, shared_clauses
from leaderboards.aggregate.row import FEW_CONTEXTS
from leaderboards.claims.verdict import Judgement, number_text
from leaderboards.downloads.tables import duels_sheet, pooled_sheet
from leaderboards.statistics.text import p_text
from leaderboards.terminal.result_table import Column, ResultTable
from policies.declaration.names import RANDOM

VERDICTS: tuple[Verdict, ...] = ("better", "worse", UNDECIDED)
LINKS = {"better": "better than", "worse": "worse than", UNDECIDED: "not distinguished from"}
STYLES = {"better": "green", "worse": "red", UNDECIDED: "dim"}
CLAIM_STYLES = {"holds": "green", "does not hold": "red", "undecided": "yellow"}
TOO_FEW = "too few contexts to judge against"
NOTHING_MASTERED = "no task that the model can do"


def pooled_table(pooled: Sequence[Pooled], presses: Sequence[Arguments] = ()) -> ResultTable:
    """Makes the table that a comparison begins with: a row for each opponent, and what it rests on."""
    if not pooled:
        return ResultTable("pooled", (), (), "no task of this comparison can be done with the full cache")
    adapted = adapted_presses(presses)
    columns = (
        Column("against", of_sentences=True),
        Column("this", text="{:.0f}".format, right=True),
        Column("other", text="{:.0f}".format, right=True),
        Column("difference", right=True),
        Column("verdict", style=lambda words: STYLES.get(words.partition(", p")[0], "dim")),
    )
    rows = [
        (
            f"{one.other}, adapted" if one.other in adapted else one.other,
            *(*one.sides, one.difference.text, _verdict_in_words(one)),
        )
        for one in pooled
    ]
    shared, own = shared_clauses(pooled)
    below = ["; ".join(shared), *(f"{one.other}: {text}" for one, text in zip(pooled, own, strict=True) if text)]
    below += ["±: smaller true differences cannot be told from 0"] if any("±" in row[-1] for row in rows) else []
    below.append(few_contexts(min(one.fewest for one in pooled)))
    title = "\n".join([pooled[0].policy, *verdicts_in_words(pooled, presses)])
    view = ResultTable("areas", columns, rows, title, "\n".join(filter(None, [*below, OF_AREAS])))
    return ResultTable.of_sheet("pooled", pooled_sheet("pooled", pooled), view)


def _verdict_in_words(one: Pooled) -> str:
    if one.verdict != UNDECIDED and one.p is not None:
        return f"{one.verdict}, p {p_text(one.p)}"
    return UNDECIDED if one.smallest is None else f"{UNDECIDED} ±{one.smallest:.0f}"


def verdicts_in_words(pooled: Sequence[Pooled], presses: Sequence[Arguments] = ()) -> list[str]:
    """Writes the verdicts in a line, such as "right, on base: better than knorm; not distinguished from random", behind
    a line for each press that ran with other arguments than its paper's, and one of a press that is as good as
    chance."""
    lines = [f"{name} is adapted, not as in its paper: {what}" for name, what in adapted_presses(presses).items()]
    groups: dict[str, list[str]] = {words: [] for words in (*LINKS.values(), TOO_FEW)}
    for one in pooled:
        groups[TOO_FEW if one.too_few else LINKS[one.verdict]].append(one.other)
    chance = [one for one in pooled if one.other == RANDOM and one.verdict != "better" and not one.too_few]
    lines += ["not shown to beat random"] if chance else []
    verdicts = "; ".join(f"{words} {', '.join(others)}" for words, others in groups.items() if others)
    return [*lines, f"{pooled[0].title}, on {', '.join(pooled[0].tasks)}: {verdicts}"] if pooled else lines


def verdict_table(duels: Sequence[Duel], unmastered: Mapping[str, str]) -> ResultTable:
    """Returns a row for each opponent, task and level, for programs. People see how many cells have which verdict: the
    page has them all. ``unmastered``: why the model cannot do a task, which has no verdict."""
    judged = mastered(duels, unmastered)
    by_other = {duel.other: [one for one in judged if one.other == duel.other] for duel in judged}
    lines = [f"against {other}: {summary_line(of_other)}" for other, of_other in by_other.items()] or [NOTHING_MASTERED]
    few = few_contexts(min((duel.contexts for duel in judged), default=FEW_CONTEXTS))
    lines += [few] * bool(few) + [f"{task}: {reason}" for task, reason in unmastered.items()]
    return ResultTable.of_sheet("verdicts", duels_sheet("verdicts", duels, unmastered), Text("\n".join(lines), "dim"))


def mastered(duels: Sequence[Duel], unmastered: Mapping[str, str]) -> list[Duel]:
    return [duel for duel in duels if duel.task not in unmastered]


def few_contexts(fewest: int) -> str:
    enough = fewest >= FEW_CONTEXTS
    return "" if enough else f"few contexts ({fewest}): verdicts from fewer than {FEW_CONTEXTS} say little"


def summary_line(duels: Sequence[Duel]) -> str:
    counts = Counter(duel.verdict for duel in duels)
    words = ", ".join(f"{verdict} in {counts[verdict]}" for verdict in VERDICTS)
    return f"{words} of {len(duels)} cells" if duels else NOTHING_MASTERED


def claims_table(judgements: Sequence[Judgement]) -> ResultTable:
    """Returns a row for each statistic of each claim."""
    columns = (
        Column("claim"),
        Column("part", title="what", of_sentences=True),
        Column("value", right=True, text=lambda value: "-" if value is None else number_text(value)),
        Column("interval", title="95 %", text=lambda interval: " to ".join(map(number_text, interval or ()))),
        Column("threshold"),
        Column("contexts", title="n", right=True, text=lambda n: "-" if n is None else str(n)),
        Column("verdict", style=lambda verdict: CLAIM_STYLES[verdict]),
        Column("why", shown=False),
    )
    rows = []
    for one in judgements:
        claim, estimate = one.claim, one.estimate
        mean, interval, n = (estimate.mean, estimate.interval, estimate.n) if estimate else (None, None, None)
        what, threshold = one.part or claim.words, f"{claim.side} {claim.threshold:g}"
        rows.append((claim.identifier, what, mean, interval, threshold, n, one.verdict, one.why))
    return ResultTable("claims", columns, rows)
