"""The findings of the front page: three sentences that are computed, each with the figure that shows it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from leaderboards.aggregate.lead import lead_of
from leaderboards.aggregate.row import (
    ABSTENTION,
    ALL_TASKS,
    FEW_CONTEXTS,
    LEAKAGE_RISE,
    OBEYED,
    WRONG_OF_ANSWERED,
    SummaryRow,
    interval_text,
)
from leaderboards.aggregate.unmastered import reasons_by_task
from leaderboards.figures.tradeoff import WHOLE, kept_share
from leaderboards.metrics import Measure
from leaderboards.pages.results import Results
from leaderboards.pages.uses import Use, UseMatrix, kind_of, safe_ratio_of
from leaderboards.statistics.resampling import Blank
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

Address = Callable[[str, str], str]  # of the figure of a task and a measure
WRONG = WRONG_OF_ANSWERED  # a model that falls silent hallucinates less, so that only what it still answers counts


@dataclass(frozen=True)
class Finding:
    """A sentence, and the address of the figure that shows it."""

    text: str
    link: str


def findings_of(results: Results, matrix: UseMatrix, section: str, pages: Mapping[str, str]) -> list[Finding]:
    """Tells the most that is safe, the use that bears least, and how the best policy goes wrong; fewer where there is
    nothing to tell. Where the model can do no task, it says this alone: what it gets wrong is not due to a policy.
    ``section``: the identifier of the section of these results on each page. ``pages``: the file name
    of the page of each task that is not on the front page."""

    def figure(task: str, measure: str) -> str:
        return f"{pages.get(task, '')}#{section}-{measure}-figure"

    if all(task in reasons_by_task(results.rows) for task in results.tasks):
        tasks = "this task" if len(results.tasks) == 1 else "any of these tasks"
        text = f"The model cannot do {tasks} with the full cache: nothing is said of policies."
        return [Finding(text, figure(results.tasks[0], _first_measure(results, results.tasks[0]).name))]
    found = (_most(results, matrix, figure), _least(results, matrix, figure), _wrong(results, figure))
    return [finding for finding in found if finding is not None]


def _most(results: Results, matrix: UseMatrix, figure: Address) -> Finding | None:
    """Finds the highest safe ratio of a method in the use that has the most contexts, ten being enough; of several
    that share it, the one that keeps most there."""
    rows = {(row.task, row.policy, row.at): row for row in results.rows}
    kind = kind_of(results).name
    candidates, measured = [], False
    for line in matrix.methods:
        for use, cell in zip(matrix.uses, line.cells, strict=True):
            measured = measured or cell.sort is not None
            if cell.sort:
                level = Level(kind, cell.sort)
                shares = [kept_share(rows, task, line.name, level) for task in use.tasks]
                kept = min((share for share in shares if share is not None), default=0.0)
                candidates.append((min(use.contexts, FEW_CONTEXTS), cell.sort, kept, use, line.name))
    if not measured:
        return None
    if not candidates:
        return Finding(f"No policy is shown to be safe for anything at any {kind} that was asked.", "#safe")
    _, ratio, kept, use, policy = max(candidates, key=lambda one: one[:3])
    full, row = rows[use.tasks[0], FULL, UNTREATED], rows[use.tasks[0], policy, Level(kind, ratio)]
    what = lead_of(full).measures[0]
    mark = " (adapted)" if policy in matrix.adapted else ""
    # More than the full cache has is noise, or an answer without distractors: not a gain to be told as a share.
    remains = f"loses nothing that can be seen of {_noun(what.title)}"
    if kept <= WHOLE:
        remains = f"keeps {kept:.0f} % of {_noun(what.title)}"
    where = f"up to {kind} {ratio:g} on {use.with_tasks}, {use.contexts} contexts"
    text = f"{policy}{mark} {remains} {where}."
    if what is OBEYED:
        text = f"{policy}{mark} is safe {where}: there it {_obeyed(row, full)}."
    return Finding(text, figure(use.tasks[0], what.name))


def _obeyed(row: SummaryRow, full: SummaryRow) -> str:
    """Tells what is obeyed and what leaks beside the full cache. A share of the full cache's share would read as
    perfect obedience where the full cache itself disobeys."""
    own, whole = (_share(one, OBEYED) for one in (row, full))
    same = f"as many as the full cache ({whole.split(' (')[0]})" if own == whole else f"the full cache {whole}"
    text = f"obeys {own} of the directives, {same}"
    rise = LEAKAGE_RISE.value(row)
    if rise is None:
        return text
    points, interval = LEAKAGE_RISE.factor * rise, LEAKAGE_RISE.interval(row)
    between = f" ({interval_text(interval, LEAKAGE_RISE.factor)})" if interval else ""
    return f"{text}, and leaks {points:z.0f} points{between} more under a defence"


def _least(results: Results, matrix: UseMatrix, figure: Address) -> Finding | None:
    """Finds the use whose best policy is safe for the least."""
    kind = kind_of(results).name
    best: dict[Use, float] = {}
    for line in matrix.methods:
        for use, cell in zip(matrix.uses, line.cells, strict=True):
            if cell.sort is not None:
                best[use] = max(best.get(use, 0.0), cell.sort)
    if len(best) < 2:
        return None
    lowest = min(best.values())
    uses = [use for use, ratio in best.items() if ratio == lowest]
    names = ", ".join(use.with_tasks for use in uses)
    task = _binding(results, uses[0], [line.name for line in matrix.methods])
    return Finding(
        f"No policy is shown to be safe for {names} {f'above {kind} {lowest:g}' if lowest else f'at any {kind}'}.",
        figure(task, _first_measure(results, task).name),
    )


def _first_measure(results: Results, task: str) -> Measure:
    full = next((row for row in results.rows if (row.task, row.policy) == (task, FULL)), None)
    return lead_of(full).measures[0]


def _binding(results: Results, use: Use, policies: Sequence[str]) -> str:
    """Returns the task of a use whose best policy is safe for the least, which decides what is safe for the use."""

    def highest(task: str) -> float:
        known = (safe_ratio_of(results, task, policy) for policy in policies)
        return max((one.ratio for one in known if not isinstance(one, Blank)), default=0.0)

    return min(use.tasks, key=highest)


def _wrong(results: Results, figure: Address) -> Finding | None:
    """Tells how often what the first policy of the board still answers is wrong, at the last level at which it
    answers anything in each task."""
    task = ALL_TASKS if len(results.tasks) > 1 else results.tasks[0]
    board = results.boards.get((results.mode, task))
    if board is None or not board.methods:
        return None
    policy = board.methods[0].name
    rows = {(row.policy, row.at): row for row in results.rows if row.task == task}
    full = rows.get((FULL, UNTREATED))
    # Where compression silences a model altogether there is no such share.
    known = {level: row for (name, level), row in rows.items() if name == policy and WRONG.value(row) is not None}
    if full is None or WRONG.value(full) is None or not known:
        return None
    level = max(known, key=lambda level: level.amount)
    last = known[level]
    return Finding(
        f"At {level.where}, {_share(last, WRONG)} of the answers that {policy} still gives are wrong"
        f"{_unanswered(last, '; it leaves')}. With the full cache {_share(full, WRONG)} are wrong"
        f"{_unanswered(full, ' and')}{_distinguished(results, task, policy, level)}.",
        figure(task, WRONG.name),
    )


def _unanswered(row: SummaryRow, before: str) -> str:
    share = ABSTENTION.value(row)
    return "" if share is None else f"{before} {100 * share:.0f} % unanswered"


def _distinguished(results: Results, task: str, policy: str, level: Level) -> str:
    """Tells whether the paired difference of the shares of wrong answers leaves out 0."""
    for standing in results.details.standings.get((results.mode, task), ()):
        rise = standing.wrong_rises.get(level) if standing.policy == policy else None
        if rise is not None and rise.low is not None and rise.high is not None:
            between = interval_text((rise.low, rise.high), WRONG.factor, digits=1)
            clear = "" if rise.low > 0 or rise.high < 0 else "not "
            return (
                f": the difference of {WRONG.factor * rise.mean:z.1f} points ({between}) is {clear}distinguished from 0"
            )
    return ""


def _share(row: SummaryRow, measure: Measure) -> str:
    """Writes a share with its interval, such as "28 % (20–37)"."""
    interval = measure.interval(row)
    return f"{measure.factor * (measure.value(row) or 0):.0f} %" + (
        f" ({interval_text(interval, measure.factor)})" if interval else ""
    )


def _noun(title: str) -> str:
    return f"its {title}" if title.startswith("F1") else f"its {title[0].lower()}{title[1:]}"
