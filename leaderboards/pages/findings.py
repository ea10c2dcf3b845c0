"""The findings of the front page: three sentences that are computed, each with the figure that shows it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leaderboards.aggregate.lead import lead_of
from leaderboards.aggregate.row import ALL_TASKS, WRONG_OF_ANSWERED
from leaderboards.figures.tradeoff import kept_share
from leaderboards.pages.results import Results
from leaderboards.pages.uses import Use, UseMatrix
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
    """The highest safe ratio of a method; of several that share it, the one that keeps most there."""
    rows = {(row.task, row.policy, row.at): row for row in results.rows}
    candidates = []
    for line in matrix.methods:
        for use, cell in zip(matrix.uses, line.cells, strict=True):
            if cell.sort:
                level = Level("ratio", cell.sort)
                shares = [kept_share(rows, task, line.name, level) for task in use.tasks]
                kept = min((share for share in shares if share is not None), default=0.0)
                candidates.append((cell.sort, kept, use, line.name))
    if not candidates:
        return Finding("No policy is shown to be safe for anything at any ratio that was asked.", "#safe")
    ratio, kept, use, policy = max(candidates, key=lambda one: one[:2])
    what = lead_of(rows[use.tasks[0], FULL, UNTREATED]).measures[0]
    mark = " (adapted)" if policy in matrix.adapted else ""
    return Finding(
        f"{policy}{mark} keeps {kept:.0f} % of {_noun(what.title)} up to ratio {ratio:g} on {use.name} "
        f"({use.contexts} contexts).",
        figure(use.tasks[0], what.name),
    )


def _least(results: Results, matrix: UseMatrix, figure: Address) -> Finding | None:
    """The use whose best policy is safe for the least."""
    best: dict[Use, float] = {}
    for line in matrix.methods:
        for use, cell in zip(matrix.uses, line.cells, strict=True):
            if cell.sort is not None:
                best[use] = max(best.get(use, 0.0), cell.sort)
    if len(best) < 2:
        return None
    lowest = min(best.values())
    uses = [use for use, ratio in best.items() if ratio == lowest]
    names = ", ".join(use.name for use in uses)
    full = next(row for row in results.rows if (row.task, row.policy) == (uses[0].tasks[0], FULL))  # it is comparable
    return Finding(
        f"No policy is shown to be safe for {names} {f'above ratio {lowest:g}' if lowest else 'at any ratio'}.",
        figure(uses[0].tasks[0], lead_of(full).measures[0].name),
    )


def _wrong(results: Results, figure: Address) -> Finding | None:
    """Tells how often what the first policy of the board still answers is wrong, at the last level at which it
    answers anything in each task."""
    task = ALL_TASKS if len(results.tasks) > 1 else results.tasks[0]
    board = results.boards.get((results.mode, task))
    if board is None or not board.methods:
        return None
    policy = board.methods[0].name
    rows = {(row.policy, row.at): row for row in results.rows if row.task == task}
    full = WRONG.value(rows[FULL, UNTREATED]) if (FULL, UNTREATED) in rows else None
    # Where compression silences a model altogether there is no such share.
    known = {
        level: value
        for (name, level), row in rows.items()
        if name == policy and (value := WRONG.value(row)) is not None
    }
    if full is None or not known:
        return None
    level = max(known, key=lambda level: level.amount)
    shares = [f"{WRONG.factor * value:.0f}" for value in (full, known[level])]
    return Finding(
        f"At {level.where}, {shares[1]} % of the answers that {policy} still gives are wrong; "
        f"with the full cache {shares[0]} %.",
        figure(task, WRONG.name),
    )


def _noun(title: str) -> str:
    return f"its {title}" if title.startswith("F1") else f"its {title[0].lower()}{title[1:]}"
