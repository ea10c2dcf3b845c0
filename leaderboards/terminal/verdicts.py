"""Prints a comparison: the verdicts, what either has at each task and level, and how and where two fail differently."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from leaderboards.aggregate.arguments import Arguments, adapted_presses, argument_rows
from leaderboards.aggregate.comparison.duel import COMPARED, MORE, POINTS, UNDECIDED, Contest, Duel, Verdict
from leaderboards.aggregate.comparison.failures import HOW, KINDS, Contrast
from leaderboards.aggregate.comparison.pooled import WORST, Pooled, note_on_areas
from leaderboards.aggregate.row import FEW_CONTEXTS
from leaderboards.boards.cells import SIGNS
from leaderboards.statistics.significance import p_text
from leaderboards.terminal.result_table import GAP, Column, ResultTable
from policies.declaration.levels import Level

VERDICTS: tuple[Verdict, ...] = ("better", "worse", UNDECIDED)
LINKS = {"better": "than", "worse": "than", UNDECIDED: "from"}
STYLES = {"better": "green", "worse": "red", UNDECIDED: "dim"}
MOST_PARTS = 3
WIDTH = 80
SHARE = "share of the answers"


def pooled_tables(pooled: Sequence[Pooled], presses: Sequence[Arguments] = ()) -> list[ResultTable]:
    """Makes the tables that a comparison begins with, one for each measure with a row for each opponent; above the
    first stand the verdicts in words."""
    if not pooled:
        return [ResultTable("pooled", (), (), "no task of this comparison can be done with the full cache")]
    measures = list(dict.fromkeys(one.measure for one in pooled))
    first = [pooled[0].policy, *verdicts_in_words(pooled, presses), ""]
    return [
        _pooled_table(
            [one for one in pooled if one.measure == measure],
            set(adapted_presses(presses)),
            first if measure == measures[0] else (),
            _how_to_read(pooled) if measure == measures[-1] else (),
        )
        for measure in measures
    ]


def _pooled_table(
    pooled: Sequence[Pooled], adapted: Collection[str], above: Sequence[str], below: Sequence[str]
) -> ResultTable:
    columns = (
        Column("policy", shown=False),
        Column(
            "other", "against", lambda name: f"{name}, adapted" if name in adapted else str(name), of_sentences=True
        ),
        Column("sentence", shown=False),
        Column("measure", shown=False),
        Column("value", "this", "{:.0f}".format, right=True),
        Column("other_value", "other", "{:.0f}".format, right=True),
        Column("unit", shown=False),
        Column("difference", text=lambda difference: difference.text(), right=True),
        Column("p", shown=False),
        Column("verdict", shown=False),
        Column("verdict_in_words", "verdict", style=_verdict_style),
        Column("smallest", shown=False),
        *(Column(name, shown=False) for name in ("tasks", "cells", "contexts")),
    )
    rows = [
        (
            *(one.policy, one.other, one.sentence, one.measure.name, *one.sides, POINTS, one.points, one.p),
            *(one.verdict, _verdict_in_words(one), one.smallest, one.tasks, one.cells, one.contexts),
        )
        for one in pooled
    ]
    title = f"{pooled[0].measure.title}, {pooled[0].measure.unit}, {pooled[0].measure.direction}"
    caption = (*_what_it_rests_on(pooled), *below)
    return ResultTable("pooled", columns, rows, "\n".join((*above, title)), "\n".join(caption))


def _verdict_in_words(one: Pooled) -> str:
    """Writes the verdict with its p, or which differences cannot be seen."""
    if one.verdict != UNDECIDED and one.p is not None:
        return f"{one.verdict}, p {p_text(one.p)}"
    return UNDECIDED if one.smallest is None else f"{UNDECIDED} ±{one.smallest:.0f}"


def _verdict_style(words: str) -> str:
    return STYLES.get(words.partition(", p")[0], "dim")


def _what_it_rests_on(pooled: Sequence[Pooled]) -> list[str]:
    """Tells in lines what is pooled, why there is no test, where single cells are worse, and what is left out."""
    worse = {one.other: ", ".join(cell.text for cell in one.worse_cells[:WORST]) for one in pooled}
    cells = "; ".join(f"{names} than {other}" for other, names in worse.items() if names)
    shares = [f"{one.other} {one.answered[0]:.0f}/{one.answered[1]:.0f}" for one in pooled if one.answered]
    lines = [
        _told_once({one.other: f"{one.where}, n = {one.n}" for one in pooled}),
        _told_once({one.other: one.reason for one in pooled if one.reason and one.smallest is None}),
        _told_once({one.other: ", ".join(one.left_out) for one in pooled if one.left_out}, "left out: "),
        f"clearly worse in single cells: {cells}" if cells else "",
        f"answers given, percent of these questions, this/other: {', '.join(shares)}" if shares else "",
        _told_once({one.other: one.silent_cells for one in pooled if one.silent}),
    ]
    return list(filter(None, lines))


def _how_to_read(pooled: Sequence[Pooled]) -> list[str]:
    """Explains in lines the verdicts of all measures, and warns of few contexts."""
    tests, fewest = max(one.family for one in pooled), min(one.fewest for one in pooled)
    lines = [f"p and intervals are corrected over {tests} tests (Holm)"] if tests > 1 else []
    if any("±" in _verdict_in_words(one) for one in pooled):
        more = MORE * max(one.limit for one in pooled)
        lines.append(f"±: smaller true differences cannot be told from 0; --limit {more} sees about half")
    few = dict.fromkeys(one.measure.title for one in pooled if one.fewest < FEW_CONTEXTS)
    return [*lines, *([f"{', '.join(few)}: {_few(fewest)}"] if few else []), *filter(None, [note_on_areas(pooled)])]


def _told_once(texts: Mapping[str, str], before: str = "") -> str:
    """Writes what is said of opponents, each text once: that of most of them without their names."""
    others: dict[str, list[str]] = {}
    for other, text in texts.items():
        if text:
            others.setdefault(text, []).append(other)
    if not others:
        return ""
    most = max(others, key=lambda text: len(others[text]))
    first = [most] if len(others[most]) > 1 or len(texts) == 1 else [f"{others[most][0]}: {most}"]
    return before + "; ".join([*first, *(f"{', '.join(names)}: {one}" for one, names in others.items() if one != most)])


def verdicts_in_words(pooled: Sequence[Pooled], presses: Sequence[Arguments] = ()) -> list[str]:
    """Writes a line for each measure, such as "F1, higher is better: better than knorm; not distinguished from random",
    behind a line for each press that ran with other arguments than its paper's."""
    adapted = adapted_presses(presses)
    lines = [f"{name} is adapted, not as in its paper: {what}" for name, what in adapted.items()]
    names = {one.other: f"{one.other}{' (adapted)' * (one.other in adapted)}" for one in pooled}
    for measure in dict.fromkeys(one.measure for one in pooled):
        others = {
            verdict: [
                names[one.other]
                for one in pooled
                if (one.measure, one.verdict) == (measure, verdict) and not one.too_few
            ]
            for verdict in VERDICTS
        }
        too_few = [names[one.other] for one in pooled if one.measure is measure and one.too_few]
        told = [
            f"{verdict} {LINKS[verdict]} {', '.join(of_verdict)}"
            for verdict, of_verdict in others.items()
            if of_verdict
        ]
        told += [f"too few contexts to judge against {', '.join(too_few)}"] if too_few else []
        lines.append(f"{measure.title}, {measure.direction}: {'; '.join(told)}")
    return lines


def verdict_table(duels: Sequence[Duel], unmastered: Mapping[str, str]) -> ResultTable:
    """Returns a row for each opponent, task and level, for programs. People see one for each task and level, with what
    all opponents have there. ``unmastered``: why the model cannot do a task, which has no verdict."""
    measures = [measure for name, measure in COMPARED.items() if any(name in duel.contests for duel in duels)]
    columns = (
        *("policy", "other", "task", "kind", "level", *(one.name for one in measures), "unit"),
        *(f"{one.name}_{what}" for one in measures for what in ("value", "other_value", "p", "verdict", "smallest")),
        *("verdict", "not_mastered", "questions", "contexts", "family"),
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
                *(value for one in contests for value in _values(one)),
                *(None if reason else duel.verdict, reason, duel.questions, duel.contexts, duel.family),
            )
        )
    return ResultTable("verdicts", list(map(Column, columns)), rows, view=_by_cell(duels, unmastered))


def _values(contest: Contest | None) -> tuple[Any, ...]:
    return (*contest.sides, contest.p, contest.verdict, contest.smallest()) if contest else (None,) * 5


def _by_cell(duels: Sequence[Duel], unmastered: Mapping[str, str]) -> Group:
    """Lays out what all have by task and level: tables of as many opponents as fit, for each measure that gives
    verdicts."""
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
    return Group(*tables, Text("\n".join(below), "dim"))


Cells = Mapping[tuple[str, Level], Mapping[str, Contest]]


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
    kind = next(iter(cells))[1].kind
    columns = (
        Column("task"),
        Column("level", kind, right=True),
        Column("this", text="{:.0f}".format, right=True),
        *(Column(name, text=_beside, style=_style, right=True, cut=True) for name in others),
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


def _style(contest: Contest | None) -> str:
    return "" if contest is None or contest.verdict == UNDECIDED else STYLES[contest.verdict]


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
    return f"only {fewest} context{'s' * (fewest > 1)}: verdicts from fewer than {FEW_CONTEXTS} say little"


def summary_line(duels: Sequence[Duel]) -> str:
    """Counts how often a policy is better, worse and not distinguished."""
    if not duels:
        return "no task that the model can do"
    counts = Counter(duel.verdict for duel in duels)
    words = ", ".join(f"{verdict} in {counts[verdict]}" for verdict in VERDICTS)
    return f"{words} of {len(duels)} cells"


def failure_table(contrasts: Mapping[str, Sequence[Contrast]]) -> ResultTable:
    """Lists kinds of answers and kinds of questions, against each opponent, for programs. People see how each policy
    answers, and where an opponent clearly differs."""
    every = [one for of_other in contrasts.values() for one in of_other]
    names = ("policy", "other_policy", "part", "value", "answers", "rate", "other_rate", "difference", "unit")
    rows = [
        (*(one.policy, one.other, one.part, one.value), *(one.answers, one.rate, one.other_rate, one.difference, SHARE))
        for one in every
    ]
    known = [one for one in every if one.difference.low is not None]
    where = "where it is not right (wrong or unanswered), percent of such questions, its own against the other’s"
    clear = (
        "intervals that leave out 0, not corrected" if known else f"of fewer than {FEW_CONTEXTS} contexts none is clear"
    )
    columns = (Column("other", ""), Column("where", "", of_sentences=True))
    parts = [(other, _where(of_other)) for other, of_other in contrasts.items()]
    view = Group(_kinds(every), Text(), ResultTable("where", columns, parts, where, clear, headed=False))
    return ResultTable("failures", list(map(Column, names)), rows, view=view)


def _kinds(contrasts: Sequence[Contrast]) -> ResultTable:
    """Makes the table of the kinds of answers: a row for each policy. A policy that shares other questions with one
    opponent than with the next has a row for each."""
    rows: dict[tuple[Any, ...], dict[str, float]] = {}
    for side in ("rate", "other_rate"):
        for one in contrasts:
            if one.part == HOW:
                name = one.policy if side == "rate" else one.other
                shared = tuple(other.rate for other in contrasts if other.part == HOW and other.other == one.other)
                key = (name, one.answers, shared if side == "rate" else ())
                rows.setdefault(key, {})[one.value] = getattr(one, side)
    columns = (
        Column("policy"),
        Column("answers", right=True),
        *(Column(kind, text=_percent, right=True) for kind in KINDS),
    )
    plain = [(name, answers, *(of[kind] for kind in KINDS)) for (name, answers, _), of in rows.items()]
    note = "right counts answers that rightly say that the text does not tell"
    return ResultTable("kinds", columns, plain, "how they answer, percent of the answers", note)


def _where(contrasts: Sequence[Contrast]) -> str:
    """Names the kinds of questions that the two clearly differ in, the largest difference first."""
    parts = [one for one in contrasts if one.part != HOW]
    clear = [one for one in parts if one.difference.is_clear]
    named = [f"{one.name} {_percent(one.rate)} against {_percent(one.other_rate)}" for one in clear[:MOST_PARTS]]
    more = f"{len(clear) - MOST_PARTS} more" if len(clear) > MOST_PARTS else ""
    told = ", ".join(filter(None, (*named, more))) or "nowhere clearly different"
    return f"{told} ({len(clear)} of {len(parts)} kinds of questions differ)"


def _percent(rate: float) -> str:
    return f"{100 * rate:.0f}"
