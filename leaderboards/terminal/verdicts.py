"""Prints verdicts: of a comparison, and of claims."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from rich.text import Text

from leaderboards.aggregate.arguments import Arguments, adapted_presses
from leaderboards.aggregate.duels import UNDECIDED, Duel, Verdict
from leaderboards.aggregate.gate import GateRow
from leaderboards.aggregate.lost_answers import ChangedAnswer
from leaderboards.aggregate.outcomes import (
    OpponentVerdict,
    conditions,
    does_not_beat_random,
    held_sentence,
    list_areas,
    write_clauses,
    write_subject,
)
from leaderboards.aggregate.pooled import OF_AREAS, Pooled, shared_clauses, verdict_in_words
from leaderboards.aggregate.row import FEW_CONTEXTS
from leaderboards.claims.verdict import Judgement, number_text
from leaderboards.downloads.tables import (
    duels_sheet,
    gate_sheet,
    means_sheet,
    outcomes_sheet,
    pooled_sheet,
)
from leaderboards.terminal.result_table import Column, ResultTable
from policies.declaration.levels import UNTREATED, kind_name

VERDICTS: tuple[Verdict, ...] = ("better", "worse", UNDECIDED)
STYLES = {"better": "green", "worse": "red", UNDECIDED: "dim"}
CLAIM_STYLES = {"holds": "green", "does not hold": "red", "undecided": "yellow"}
FEW_SHOWN = 5  # answers that changed
LONGEST_SHOWN = 60  # characters of such an answer
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
    sentences = [outcomes[0].policy, *verdicts_in_words(outcomes, presses)]
    verdicts = Text("\n".join(sentences), "italic")
    rows = [row for outcome in outcomes for row in outcome.rows]
    means = _means_view(outcomes, presses)
    areas = list_areas(outcomes)
    pooled = _areas_view(areas, presses) if areas else None
    return [
        ResultTable.from_sheet("outcomes", outcomes_sheet("outcomes", outcomes), verdicts),
        ResultTable.from_sheet("means", means_sheet("means", rows), means),
        ResultTable.from_sheet("pooled", pooled_sheet("pooled", areas), pooled),
    ]


def _columns_of_difference() -> tuple[Column, ...]:
    def style(words: str) -> str:
        verdict, _, _ = words.partition(", p")
        return STYLES.get(verdict, "dim")

    return (
        Column("this", text="{:.0f}".format, right=True),
        Column("other", text="{:.0f}".format, right=True),
        Column("difference", right=True),
        Column("verdict", style=style),
    )


def _means_view(outcomes: Sequence[OpponentVerdict], presses: Sequence[Arguments]) -> ResultTable:
    """Lays out a row for each opponent and level; an opponent is named in its first."""
    adapted = adapted_presses(presses)
    rows, levels, fewest = [], [], []
    for outcome in outcomes:
        name = _opponent(outcome.other, adapted)
        for row in outcome.rows:
            level = "" if row.level == UNTREATED else str(row.level)
            verdict = verdict_in_words(row)
            rows.append((name, level, *row.sides, row.difference.text, verdict))
            name = ""
            levels.append(row.level)
            fewest.append(row.fewest)
    columns = (
        Column("against", of_sentences=True),
        Column("level", kind_name(levels)),
        *_columns_of_difference(),
    )
    below = [held_sentence(outcomes), "; ".join(conditions(outcomes))]
    if any("±" in row[-1] for row in rows):
        below.append("±: smaller true differences cannot be told from 0")
    below.append(few_contexts(min(fewest)))
    caption = "\n".join(filter(None, below))
    title = "mean of tasks, what both have in percent, and the difference in points"
    return ResultTable("means", columns, rows, title, caption)


def _opponent(name: str, adapted: Collection[str]) -> str:
    return f"{name}, adapted" if name in adapted else name


def _areas_view(areas: Sequence[Pooled], presses: Sequence[Arguments]) -> ResultTable:
    adapted = adapted_presses(presses)
    shared, details = shared_clauses(areas)
    below = ["; ".join(shared)]
    rows = []
    for area, detail in zip(areas, details, strict=True):
        name = _opponent(area.other, adapted)
        rows.append((name, *area.sides, area.difference.text, verdict_in_words(area)))
        if detail:
            below.append(f"{area.other}: {detail}")
    below.append(OF_AREAS)
    columns = (Column("against", of_sentences=True), *_columns_of_difference())
    return ResultTable("areas", columns, rows, "area over all levels", "\n".join(below))


def verdicts_in_words(
    outcomes: Sequence[OpponentVerdict], presses: Sequence[Arguments] = ()
) -> list[str]:
    """Writes the verdicts, a line for each opponent, then remarks on the presses."""
    lines = []
    if outcomes:
        first, *others = write_clauses(outcomes)
        lines = [f"{write_subject(outcomes)}: {first}", *others]
    return [*lines, *write_remarks(outcomes, presses)]


def write_remarks(
    outcomes: Sequence[OpponentVerdict], presses: Sequence[Arguments] = ()
) -> list[str]:
    """Writes a line of a press that is as good as chance, and one for each press that ran with other
    arguments than its paper's."""
    lines = []
    if does_not_beat_random(outcomes):
        lines.append("not shown to beat random")
    for name, arguments in adapted_presses(presses).items():
        lines.append(f"{name} is adapted, not as in its paper: {arguments}")
    return lines


def beside_table(rows: Sequence[Pooled]) -> ResultTable:
    """Lists what a comparison comes to, with what other runs lose against their own full cache."""
    view = []
    for row in rows:
        level = "" if row.level == UNTREATED else row.level.where
        heights = (*row.sides, row.difference.text, verdict_in_words(row))
        view.append((row.policy, row.other, level, *heights))
    columns = (
        Column("what", of_sentences=True),
        Column("against", of_sentences=True),
        Column("level"),
        *_columns_of_difference(),
    )
    title = "beside other runs, mean of tasks in percent, and the difference in points"
    shown = ResultTable("beside", columns, view, title)
    return ResultTable.from_sheet("beside", means_sheet("beside", rows), shown)


def beginning(text: str) -> str:
    """Returns the beginning of a long answer, as much as tells how it goes wrong."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def changed_table(changed: Mapping[str, Sequence[ChangedAnswer]]) -> ResultTable:
    """Lists the answers that became wrong or right, side by side: people see a few lost ones."""
    rows = []
    for other, answers in changed.items():
        for answer in answers:
            outcome = "lost" if answer.is_lost else "won"
            texts = (answer.question, list(answer.golds), answer.before, answer.now)
            rows.append((other, answer.task, outcome, *texts))
    columns = (
        Column("against", shown=False),
        Column("task", shown=False),
        Column("outcome"),
        Column("question", of_sentences=True),
        Column("golds", "right would be", " / ".join, of_sentences=True),
        Column("before", text=beginning, of_sentences=True),
        Column("now", text=beginning, of_sentences=True),
    )
    lost = sum(row[2] == "lost" for row in rows)
    caption = ""
    if len(rows) > FEW_SHOWN:
        caption = f"{FEW_SHOWN} of {len(rows)} answers that changed: the page has more"
    title = f"answers side by side: {lost} lost, {len(rows) - lost} won"
    view = ResultTable("changed", columns, rows[:FEW_SHOWN], title, caption) if rows else None
    return ResultTable("changed", columns, rows, view=view)


def verdict_table(duels: Sequence[Duel], unmastered: Mapping[str, str]) -> ResultTable:
    """Returns a row for each opponent, task and level, for programs. People see how many cells have
    which verdict: the page has them all. ``unmastered``: why the model cannot do a task, which has
    no verdict."""
    by_other: dict[str, list[Duel]] = {}
    # From as many on there is nothing to warn of.
    fewest = FEW_CONTEXTS
    for duel in mastered(duels, unmastered):
        by_other.setdefault(duel.other, []).append(duel)
        fewest = min(fewest, duel.contexts)
    lines = [f"against {other}: {summary_line(judged)}" for other, judged in by_other.items()]
    if not lines:
        lines = [NOTHING_MASTERED]
    few = few_contexts(fewest)
    if few:
        lines.append(few)
    lines += [f"{task}: {reason}" for task, reason in unmastered.items()]
    sheet = duels_sheet("verdicts", duels, unmastered)
    return ResultTable.from_sheet("verdicts", sheet, Text("\n".join(lines), "dim"))


def gate_table(rows: Sequence[GateRow]) -> ResultTable:
    """Lists what a gate reads: each named opponent at each level, and whether it passes there."""
    lines = []
    for row in rows:
        outcome = "passes" if row.passes else "fails"
        lines.append(f"{outcome}: {row.words}")
    return ResultTable.from_sheet("gate", gate_sheet(rows), Text("\n".join(lines)))


def mastered(duels: Sequence[Duel], unmastered: Mapping[str, str]) -> list[Duel]:
    """Selects the comparisons on tasks that the model can do."""
    return [duel for duel in duels if duel.task not in unmastered]


def few_contexts(fewest: int) -> str:
    """Warns of few contexts; empty where there are enough."""
    if fewest >= FEW_CONTEXTS:
        return ""
    return f"few contexts ({fewest}): verdicts from fewer than {FEW_CONTEXTS} say little"


def summary_line(duels: Sequence[Duel]) -> str:
    """Counts the cells with each verdict."""
    if not duels:
        return NOTHING_MASTERED
    counts = Counter(duel.verdict for duel in duels)
    words = ", ".join(f"{verdict} in {counts[verdict]}" for verdict in VERDICTS)
    return f"{words} of {len(duels)} cells"


def claims_table(judgements: Sequence[Judgement]) -> ResultTable:
    """Returns a row for each statistic of each claim, and below them why some are undecided."""

    def value_text(value: float | None) -> str:
        return "-" if value is None else number_text(value)

    def interval_text(interval: tuple[float, float] | None) -> str:
        return " to ".join(map(number_text, interval or ()))

    def count_text(count: int | None) -> str:
        return "-" if count is None else str(count)

    columns = (
        Column("claim"),
        Column("part", title="what", of_sentences=True),
        Column("value", right=True, text=value_text),
        Column("interval", title="95 %", text=interval_text),
        Column("threshold"),
        Column("contexts", title="n", right=True, text=count_text),
        Column("verdict", style=lambda verdict: CLAIM_STYLES[verdict]),
        Column("why", shown=False),
    )
    rows = []
    for judgement in judgements:
        claim, estimate = judgement.claim, judgement.estimate
        mean = interval = count = None
        if estimate:
            mean, interval, count = estimate.mean, estimate.interval, estimate.n
        subject = judgement.part or claim.words
        threshold = f"{claim.side} {claim.threshold:g}"
        verdict = (judgement.verdict, judgement.why)
        rows.append((claim.identifier, subject, mean, interval, threshold, count, *verdict))
    return ResultTable("claims", columns, rows, caption=_undecided_reasons(judgements))


def _undecided_reasons(judgements: Sequence[Judgement]) -> str:
    """Writes a line for each reason, with the claims that it leaves undecided."""
    claims_by_reason: dict[str, dict[str, None]] = {}  # a dict keeps each claim once, in order
    for judgement in judgements:
        if judgement.verdict == "undecided":
            claims = claims_by_reason.setdefault(judgement.why, {})
            claims[judgement.claim.identifier] = None
    return "\n".join(f"{', '.join(claims)}: {why}" for why, claims in claims_by_reason.items())
