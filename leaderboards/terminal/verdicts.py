"""Prints verdicts: of a comparison, and of claims."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.text import Text

from leaderboards.aggregate.arguments import Arguments, adapted_presses
from leaderboards.aggregate.duels import UNDECIDED, Duel, Verdict
from leaderboards.aggregate.gate import GateRow
from leaderboards.aggregate.outcomes import (
    OpponentVerdict,
    areas_of,
    clauses_of,
    conditions,
    does_not_beat_random,
    held_sentence,
    subject_of,
)
from leaderboards.aggregate.pooled import OF_AREAS, Pooled, shared_clauses
from leaderboards.aggregate.row import FEW_CONTEXTS
from leaderboards.claims.verdict import Judgement, number_text
from leaderboards.downloads.tables import (
    duels_sheet,
    gate_sheet,
    means_sheet,
    outcomes_sheet,
    pooled_sheet,
)
from leaderboards.statistics.text import p_text
from leaderboards.terminal.result_table import Column, ResultTable
from policies.declaration.levels import UNTREATED, kind_name

VERDICTS: tuple[Verdict, ...] = ("better", "worse", UNDECIDED)
STYLES = {"better": "green", "worse": "red", UNDECIDED: "dim"}
CLAIM_STYLES = {"holds": "green", "does not hold": "red", "undecided": "yellow"}
NOTHING_MASTERED = "no task that the model can do"


def outcome_tables(
    outcomes: Sequence[OpponentVerdict], presses: Sequence[Arguments] = ()
) -> list[ResultTable]:
    """Makes what a comparison begins with: the verdict for each opponent in a sentence, the mean of
    tasks at each level on which it rests, and the areas over all levels, if there are several.
    Programs find all three."""
    if not outcomes:
        nothing = "no task of this comparison can be done with the full cache"
        return [
            ResultTable("outcomes", (), (), nothing),
            ResultTable("means", (), ()),
            ResultTable("pooled", (), ()),
        ]
    sentences = Text(
        "\n".join([outcomes[0].policy, *verdicts_in_words(outcomes, presses)]), "italic"
    )
    rows, areas = [row for one in outcomes for row in one.rows], areas_of(outcomes)
    return [
        ResultTable.of_sheet("outcomes", outcomes_sheet("outcomes", outcomes), sentences),
        ResultTable.of_sheet("means", means_sheet("means", rows), _means_view(outcomes, presses)),
        ResultTable.of_sheet(
            "pooled", pooled_sheet("pooled", areas), _areas_view(areas, presses) if areas else None
        ),
    ]


def _columns_of_difference() -> tuple[Column, ...]:
    return (
        Column("this", text="{:.0f}".format, right=True),
        Column("other", text="{:.0f}".format, right=True),
        Column("difference", right=True),
        Column("verdict", style=lambda words: STYLES.get(words.partition(", p")[0], "dim")),
    )


def _means_view(outcomes: Sequence[OpponentVerdict], presses: Sequence[Arguments]) -> ResultTable:
    """Lays out a row for each opponent and level; an opponent is named in its first."""
    adapted = adapted_presses(presses)
    rows, levels = [], [row.level for one in outcomes for row in one.rows]
    for one in outcomes:
        name = f"{one.other}, adapted" if one.other in adapted else one.other
        for place, row in enumerate(one.rows):
            level = "" if row.level == UNTREATED else str(row.level)
            cells = *row.sides, row.difference.text, _verdict_in_words(row)
            rows.append((name if place == 0 else "", level, *cells))
    columns = (
        Column("against", of_sentences=True),
        Column("level", kind_name(levels)),
        *_columns_of_difference(),
    )
    below = [held_sentence(outcomes), "; ".join(conditions(outcomes))]
    below += (
        ["±: smaller true differences cannot be told from 0"]
        if any("±" in row[-1] for row in rows)
        else []
    )
    below.append(few_contexts(min(row.fewest for one in outcomes for row in one.rows)))
    title = "mean of tasks, what both have in percent, and the difference in points"
    return ResultTable("means", columns, rows, title, "\n".join(filter(None, below)))


def _areas_view(areas: Sequence[Pooled], presses: Sequence[Arguments]) -> ResultTable:
    adapted = adapted_presses(presses)
    rows = [
        (
            f"{one.other}, adapted" if one.other in adapted else one.other,
            *(*one.sides, one.difference.text, _verdict_in_words(one)),
        )
        for one in areas
    ]
    shared, others = shared_clauses(areas)
    below = [
        "; ".join(shared),
        *(f"{one.other}: {text}" for one, text in zip(areas, others, strict=True) if text),
    ]
    columns = Column("against", of_sentences=True), *_columns_of_difference()
    return ResultTable(
        "areas", columns, rows, "area over all levels", "\n".join([*below, OF_AREAS])
    )


def _verdict_in_words(one: Pooled) -> str:
    if one.verdict != UNDECIDED and one.p is not None:
        return f"{one.verdict}, p {p_text(one.p)}"
    return UNDECIDED if one.smallest is None else f"{UNDECIDED} ±{one.smallest:.0f}"


def verdicts_in_words(
    outcomes: Sequence[OpponentVerdict], presses: Sequence[Arguments] = ()
) -> list[str]:
    """Writes the verdicts, a line for each opponent, then a line of a press that is as good as
    chance, and one for each press that ran with other arguments than its paper's."""
    lines = []
    if outcomes:
        first, *others = clauses_of(outcomes)
        lines = [f"{subject_of(outcomes)}: {first}", *others]
    if does_not_beat_random(outcomes):
        lines.append("not shown to beat random")
    adapted = adapted_presses(presses)
    return [
        *lines,
        *(f"{name} is adapted, not as in its paper: {what}" for name, what in adapted.items()),
    ]


def verdict_table(duels: Sequence[Duel], unmastered: Mapping[str, str]) -> ResultTable:
    """Returns a row for each opponent, task and level, for programs. People see how many cells have
    which verdict: the page has them all. ``unmastered``: why the model cannot do a task, which has
    no verdict."""
    judged = mastered(duels, unmastered)
    by_other = {duel.other: [one for one in judged if one.other == duel.other] for duel in judged}
    lines = [
        f"against {other}: {summary_line(of_other)}" for other, of_other in by_other.items()
    ] or [NOTHING_MASTERED]
    few = few_contexts(min((duel.contexts for duel in judged), default=FEW_CONTEXTS))
    lines += [few] * bool(few) + [f"{task}: {reason}" for task, reason in unmastered.items()]
    return ResultTable.of_sheet(
        "verdicts", duels_sheet("verdicts", duels, unmastered), Text("\n".join(lines), "dim")
    )


def gate_table(rows: Sequence[GateRow]) -> ResultTable:
    """Lists what a gate reads: each named opponent at each level, and whether it passes there."""
    lines = [f"{'passes' if one.passes else 'fails'}: {one.words}" for one in rows]
    return ResultTable.of_sheet("gate", gate_sheet(rows), Text("\n".join(lines)))


def mastered(duels: Sequence[Duel], unmastered: Mapping[str, str]) -> list[Duel]:
    return [duel for duel in duels if duel.task not in unmastered]


def few_contexts(fewest: int) -> str:
    enough = fewest >= FEW_CONTEXTS
    return (
        ""
        if enough
        else f"few contexts ({fewest}): verdicts from fewer than {FEW_CONTEXTS} say little"
    )


def summary_line(duels: Sequence[Duel]) -> str:
    counts = Counter(duel.verdict for duel in duels)
    words = ", ".join(f"{verdict} in {counts[verdict]}" for verdict in VERDICTS)
    return f"{words} of {len(duels)} cells" if duels else NOTHING_MASTERED


def claims_table(judgements: Sequence[Judgement]) -> ResultTable:
    """Returns a row for each statistic of each claim."""
    columns = (
        Column("claim"),
        Column("part", title="what", of_sentences=True),
        Column(
            "value", right=True, text=lambda value: "-" if value is None else number_text(value)
        ),
        Column(
            "interval",
            title="95 %",
            text=lambda interval: " to ".join(map(number_text, interval or ())),
        ),
        Column("threshold"),
        Column("contexts", title="n", right=True, text=lambda n: "-" if n is None else str(n)),
        Column("verdict", style=lambda verdict: CLAIM_STYLES[verdict]),
        Column("why", shown=False),
    )
    rows = []
    for one in judgements:
        claim, estimate = one.claim, one.estimate
        mean, interval, n = (
            (estimate.mean, estimate.interval, estimate.n) if estimate else (None, None, None)
        )
        what, threshold = one.part or claim.words, f"{claim.side} {claim.threshold:g}"
        rows.append((claim.identifier, what, mean, interval, threshold, n, one.verdict, one.why))
    return ResultTable("claims", columns, rows)
