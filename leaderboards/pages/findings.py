"""The findings of the front page: three sentences that are computed, each with the figure that shows it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from leaderboards.aggregate.lead import lead_of
from leaderboards.aggregate.row import ABSTENTION, ALL_TASKS, WRONG_OF_ANSWERED, SummaryRow, written_interval
from leaderboards.figures.tradeoff import WHOLE, kept_share
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
    nothing to tell. ``section``: the identifier of the section of these results on each page. ``pages``: the file name
    of the page of each task that is not on the front page."""

    def figure(task: str, measure: str) -> str:
        return f"{pages.get(task, '')}#{section}-{measure}-figure"

    found = (_most(results, matrix, figure), _least(results, matrix, figure), _wrong(results, figure))
    return [finding for finding in found if finding is not None]


def _most(results: Results, matrix: UseMatrix, figure: Address) -> Finding | None:
    """Finds the highest safe ratio of a method, of a use with few contexts only where no other has one; of several that
    share it, the one that keeps most there."""
    rows = {(row.task, row.policy, row.at): row for row in results.rows}
    kind = kind_of(results).name
    candidates = []
    for line in matrix.methods:
        for use, cell in zip(matrix.uses, line.cells, strict=True):
            if cell.sort:
                level = Level(kind, cell.sort)
                shares = [kept_share(rows, task, line.name, level) for task in use.tasks]
                kept = min((share for share in shares if share is not None), default=0.0)
                candidates.append((not use.few, cell.sort, kept, use, line.name))
    if not candidates:
        return Finding(f"No policy is shown to be safe for anything at any {kind} that was asked.", "#safe")
    _, ratio, kept, use, policy = max(candidates, key=lambda one: one[:3])
    what = lead_of(rows[use.tasks[0], FULL, UNTREATED]).measures[0]
    mark = " (adapted)" if policy in matrix.adapted else ""
    # More than the full cache has is noise, or an answer without distractors: not a gain to be told as a share.
    remains = f"loses nothing that can be seen of {_noun(what.title)}"
    if kept <= WHOLE:
        remains = f"keeps {kept:.0f} % of {_noun(what.title)}"
    return Finding(
        f"{policy}{mark} {remains} up to {kind} {ratio:g} on {use.with_tasks}, {use.contexts} contexts.",
        figure(use.tasks[0], what.name),
    )


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
    full = next(row for row in results.rows if (row.task, row.policy) == (task, FULL))  # it is comparable
    return Finding(
        f"No policy is shown to be safe for {names} {f'above {kind} {lowest:g}' if lowest else f'at any {kind}'}.",
        figure(task, lead_of(full).measures[0].name),
    )


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
    abstained = ABSTENTION.value(last)
    silent = "" if abstained is None else f"; it leaves {100 * abstained:.0f} % unanswered"
    return Finding(
        f"At {level.where}, {_share_wrong(last)} of the answers that {policy} still gives are wrong{silent}. "
        f"With the full cache {_share_wrong(full)} are wrong.",
        figure(task, WRONG.name),
    )


def _share_wrong(row: SummaryRow) -> str:
    """Writes the share of wrong answers with its interval, such as "28 % (20–37)"."""
    interval = WRONG.interval(row)
    return f"{WRONG.factor * (WRONG.value(row) or 0):.0f} %" + (
        f" ({written_interval(interval, WRONG.factor)})" if interval else ""
    )


def _noun(title: str) -> str:
    return f"its {title}" if title.startswith("F1") else f"its {title[0].lower()}{title[1:]}"
