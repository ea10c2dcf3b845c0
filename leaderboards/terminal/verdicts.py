"""Prints verdicts: of a comparison, with what either has at each task and level and how they answer, and of claims."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.text import Text

from leaderboards.aggregate.arguments import Arguments, adapted_presses, argument_rows
from leaderboards.aggregate.comparison.duel import UNDECIDED, Contest, Duel, Verdict
from leaderboards.aggregate.comparison.paired import KINDS, AnswerKind
from leaderboards.aggregate.comparison.pooled import Pooled, note_on_areas, shared_clauses
from leaderboards.aggregate.row import FEW_CONTEXTS
from leaderboards.boards.declaration import SIGNS
from leaderboards.claims.verdict import Judgement, number_text
from leaderboards.downloads.tables import duels_sheet, kinds_sheet, pooled_sheet
from leaderboards.statistics.text import count_text, p_text, percent
from leaderboards.terminal.result_table import GAP, Column, ResultTable
from policies.declaration.levels import Level

VERDICTS: tuple[Verdict, ...] = ("better", "worse", UNDECIDED)
LINKS = {"better": "than", "worse": "than", UNDECIDED: "from"}
STYLES = {"better": "green", "worse": "red", UNDECIDED: "dim"}
CLAIM_STYLES = {"holds": "green", "does not hold": "red", "undecided": "yellow"}
WIDTH = 80
Cells = Mapping[tuple[str, Level], Mapping[str, Contest]]  # by opponent


def pooled_table(pooled: Sequence[Pooled], presses: Sequence[Arguments] = ()) -> ResultTable:
    """Makes the table that a comparison begins with. People see the verdicts in words, a table for each measure with a
    row for each opponent, and below it what it rests on."""
    if not pooled:
        return ResultTable("pooled", (), (), "no task of this comparison can be done with the full cache")
    adapted = adapted_presses(presses)
    tables = [
        _of_measure([one for one in pooled if one.measure is measure], adapted)
        for measure in dict.fromkeys(one.measure for one in pooled)
    ]
    above = Text("\n".join([pooled[0].policy, *verdicts_in_words(pooled, presses)]), "italic")
    few = {one.measure.title: one.fewest for one in pooled if one.fewest < FEW_CONTEXTS}
    below = [
        *(
            ["±: smaller true differences cannot be told from 0"]
            if any("±" in _verdict_in_words(one) for one in pooled)
            else []
        ),
        *([f"{', '.join(few)}: {_few(min(few.values()))}"] if few else []),
        *filter(None, [note_on_areas(pooled)]),
    ]
    return ResultTable.of_sheet(
        "pooled", pooled_sheet("pooled", pooled), Group(above, *tables, Text("\n".join(below), "dim"))
    )


def _of_measure(pooled: Sequence[Pooled], adapted: Mapping[str, str]) -> ResultTable:
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
            *(*one.sides, one.points.text(), _verdict_in_words(one)),
        )
        for one in pooled
    ]
    measure = pooled[0].measure
    shared, own = shared_clauses(pooled)
    caption = ["; ".join(shared), *(f"{one.other}: {text}" for one, text in zip(pooled, own, strict=True) if text)]
    title = f"{measure.title}, {measure.unit}, {measure.direction}"
    return ResultTable("measure", columns, rows, title, "\n".join(filter(None, caption)))


def _verdict_in_words(one: Pooled) -> str:
    if one.verdict != UNDECIDED and one.p is not None:
        return f"{one.verdict}, p {p_text(one.p)}"
    return UNDECIDED if one.smallest is None else f"{UNDECIDED} ±{one.smallest:.0f}"


def verdicts_in_words(pooled: Sequence[Pooled], presses: Sequence[Arguments] = ()) -> list[str]:
    """Writes a line for each measure, such as "F1, higher is better: better than knorm; not distinguished from random",
    behind a line for each press that ran with other arguments than its paper's."""
    adapted = adapted_presses(presses)
    lines = [f"{name} is adapted, not as in its paper: {what}" for name, what in adapted.items()]
    for measure in dict.fromkeys(one.measure for one in pooled):
        groups: dict[str, list[str]] = {f"{verdict} {LINKS[verdict]}": [] for verdict in VERDICTS}
        groups["too few contexts to judge against"] = []
        for one in pooled:
            if one.measure is measure:
                words = f"{one.verdict} {LINKS[one.verdict]}"
                group = "too few contexts to judge against" if one.too_few else words
                groups[group].append(f"{one.other}{' (adapted)' * (one.other in adapted)}")
        told = "; ".join(f"{words} {', '.join(others)}" for words, others in groups.items() if others)
        lines.append(f"{measure.title}, {measure.direction}: {told}")
    return lines


def verdict_table(duels: Sequence[Duel], unmastered: Mapping[str, str]) -> ResultTable:
    """Returns a row for each opponent, task and level, for programs. People see one for each task and level, with what
    all opponents have there. ``unmastered``: why the model cannot do a task, which has no verdict."""
    judged = mastered(duels, unmastered)
    tables: list[ResultTable] = []
    for lead in dict.fromkeys(duel.lead.measure for duel in judged):
        cells: dict[tuple[str, Level], dict[str, Contest]] = {}
        for duel in judged:
            if duel.lead.measure is lead:
                cells.setdefault((duel.task, duel.level), {})[duel.other] = duel.lead
        title = f"{lead.title}, {lead.unit}, {lead.direction}: this, and each other (how far this is above it)"
        for others in _that_fit(cells):
            tables.append(_grid(cells, others, title))
            title = ""
    below = [*explanation(judged), *(f"{task}: {reason}" for task, reason in unmastered.items())]
    view = Group(*tables, Text("\n".join(below), "dim"))
    return ResultTable.of_sheet("verdicts", duels_sheet("verdicts", duels, unmastered), view)


def _that_fit(cells: Cells) -> list[list[str]]:
    """Parts the opponents into groups whose columns fit beside those of the cell."""
    widths: dict[str, int] = {}
    for met in cells.values():
        for other, contest in met.items():
            widths[other] = max(widths.get(other, len(other)), len(_beside(contest)))
    first = max(len(task) for task, _ in cells) + len("ratio") + len("this") + 2 * GAP
    groups: list[list[str]] = [[]]
    for other in widths:
        if groups[-1] and first + sum(GAP + widths[name] for name in (*groups[-1], other)) > WIDTH:
            groups.append([])
        groups[-1].append(other)
    return groups


def _grid(cells: Cells, others: Sequence[str], title: str) -> ResultTable:
    """Makes the table of some opponents by the measure that gives the verdicts."""
    columns = (
        Column("task"),
        Column("level", next(iter(cells))[1].kind, right=True),
        Column("this", text="{:.0f}".format, right=True),
        *(
            Column(
                name,
                text=_beside,
                style=lambda contest: STYLES[contest.verdict] if contest and SIGNS[contest.verdict] else "",
                right=True,
                cut=True,
            )
            for name in others
        ),
    )
    rows = [
        (task, str(level), next(iter(met.values())).sides[0], *(met.get(name) for name in others))
        for (task, level), met in cells.items()
    ]
    return ResultTable("cells", columns, rows, title)


def _beside(contest: Contest | None) -> str:
    """Writes what an opponent has, and how far the policy is above it, with the sign of a verdict."""
    if contest is None:
        return "–  "
    return f"{contest.sides[1]:.0f} ({contest.points.mean:+z.0f}) {SIGNS[contest.verdict] or ' '}"


def mastered(duels: Sequence[Duel], unmastered: Mapping[str, str]) -> list[Duel]:
    """Selects those of tasks that the model can do."""
    return [duel for duel in duels if duel.task not in unmastered]


def argument_table(presses: Sequence[Arguments]) -> ResultTable:
    """Returns the arguments that each policy ran with, side by side; a row for all tasks on which they are the same."""
    columns = (Column("policy"), Column("arguments", of_sentences=True), Column("tasks", "on", of_sentences=True))
    return ResultTable("arguments", columns, argument_rows(presses), "arguments that the presses ran with")


def explanation(duels: Sequence[Duel]) -> list[str]:
    """Explains in lines how the table of cells is read."""
    if not duels:
        return ["no task that the model can do"]
    levels, policy = max(duel.family for duel in duels), duels[0].policy
    over = f", corrected over the {levels} levels of a task (Holm)" if levels > 1 else ""
    lines = [f"▲ {policy} is better there, ▼ worse{over}; no sign: not distinguished"]
    return [*lines, *few_contexts(duels)]


def few_contexts(duels: Sequence[Duel]) -> list[str]:
    """Warns of verdicts from few contexts; empty where there are enough."""
    fewest = min((duel.contexts for duel in duels), default=FEW_CONTEXTS)
    return [_few(fewest)] if fewest < FEW_CONTEXTS else []


def _few(fewest: int) -> str:
    return f"only {count_text(fewest, 'context')}: verdicts from fewer than {FEW_CONTEXTS} say little"


def summary_line(duels: Sequence[Duel]) -> str:
    """Counts how often a policy is better, worse and not distinguished."""
    if not duels:
        return "no task that the model can do"
    counts = Counter(duel.verdict for duel in duels)
    words = ", ".join(f"{verdict} in {counts[verdict]}" for verdict in VERDICTS)
    return f"{words} of {len(duels)} cells"


def failure_table(kinds: Sequence[AnswerKind]) -> ResultTable:
    """Tells how often either of two policies answers in which way. A policy that shares other questions with one
    opponent than with the next has a row for each."""
    rows: dict[tuple[object, ...], dict[str, float]] = {}
    for side in ("rate", "other_rate"):
        for other in dict.fromkeys(one.other for one in kinds):
            of_other = [one for one in kinds if one.other == other]
            name = of_other[0].policy if side == "rate" else other
            rates = {one.kind: getattr(one, side) for one in of_other}
            rows.setdefault((name, of_other[0].answers, *rates.values()), rates)
    columns = (
        Column("policy"),
        Column("answers", right=True),
        *(Column(kind, text=percent, right=True) for kind in KINDS),
    )
    plain = [(name, answers, *rates) for name, answers, *rates in rows]
    note = "right counts answers that rightly say that the text does not tell"
    view = ResultTable("kinds", columns, plain, "how they answer, percent of the answers", note)
    return ResultTable.of_sheet("failures", kinds_sheet("failures", kinds), view)


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
    rows = [
        (
            one.claim.identifier,
            one.part or one.claim.words,
            None if one.estimate is None else one.estimate.mean,
            None if one.estimate is None else one.estimate.interval,
            f"{one.claim.side} {one.claim.threshold:g}",
            None if one.estimate is None else one.estimate.n,
            one.verdict,
            one.why,
        )
        for one in judgements
    ]
    return ResultTable("claims", columns, rows)
