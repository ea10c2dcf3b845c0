"""The findings of the front page: up to three that are computed, each with the figure that shows it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from leaderboards.aggregate.audit import ORACLE
from leaderboards.aggregate.lead import leading_measures
from leaderboards.aggregate.row import (
    ABSTENTION,
    ALL_TASKS,
    FEW_CONTEXTS,
    HALLUCINATION,
    LEAKAGE,
    OBEYED,
    WRONG_OF_ANSWERED,
    SummaryRow,
    interval_text,
)
from leaderboards.aggregate.unmastered import reasons_by_task
from leaderboards.figures.tradeoff import kept_share
from leaderboards.metrics import Measure
from leaderboards.pages.results import Results
from leaderboards.pages.uses import Use, UseMatrix, kind_of, safe_ratio_of
from leaderboards.statistics.resampling import Blank, Estimate
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

Address = Callable[[str, str], str]  # of the figure of a task and a measure
LONG = "long context"
NOUNS = {OBEYED: "points of directives obeyed", LEAKAGE: "points more leakage under a defence"}
WRONG = WRONG_OF_ANSWERED  # a model that falls silent hallucinates less, so that only what it still answers counts


@dataclass(frozen=True)
class Finding:
    """A sentence, and the address of the figure that shows it."""

    text: str
    link: str


def findings_of(results: Results, matrix: UseMatrix, section: str, pages: Mapping[str, str]) -> list[Finding]:
    """Tells the most that is safe, what is kept of long contexts (or, where none were run, the use that bears least),
    and how the best policy goes wrong; fewer where there is nothing to tell. Where the model can do no task, it says
    this alone: what it gets wrong is not due to a policy. ``section``: the identifier of the section of these results
    on each page. ``pages``: the file name of the page of each task that is not on the front page."""

    def figure(task: str, measure: str) -> str:
        return f"{pages.get(task, '')}#{section}-{measure}-figure"

    if all(task in reasons_by_task(results.rows) for task in results.tasks):
        tasks = "this task" if len(results.tasks) == 1 else "any of these tasks"
        text = f"The model cannot do {tasks} with the full cache: nothing is said of policies."
        return [Finding(text, figure(results.tasks[0], _first_measure(results, results.tasks[0]).name))]
    most = _most(results, matrix)
    long = next((use for use in matrix.uses if use.name == LONG), None)
    told = most is not None and long is not None and most.use == long
    second = _least(results, matrix, figure) if long is None or told else _long(results, matrix, long, figure)
    if most is not None:
        task = most.use.tasks[0]
        first: Finding | None = Finding(_shown(results, matrix, most), figure(task, _first_measure(results, task).name))
    else:
        first = _nothing(results, matrix)
    return [finding for finding in (first, second, _wrong(results, figure)) if finding is not None]


@dataclass(frozen=True)
class Safest:
    """What is safe for a use."""

    policy: str
    use: Use
    ratio: float


def _most(results: Results, matrix: UseMatrix, uses: Collection[Use] = ()) -> Safest | None:
    """Finds the highest ratio that is shown to be safe of a method in the use that has the most contexts, ten being
    enough; of several that share it, the one that keeps most there. What may be chance is not shown. ``uses``: those
    to look at, or all."""
    rows = {(row.task, row.policy, row.at): row for row in results.rows}
    kind = kind_of(results).name
    candidates = []
    for line in matrix.methods:
        for use, cell in zip(matrix.uses, line.cells, strict=True):
            if cell.sure and cell.kind == kind and (use in uses or not uses):
                shares = [kept_share(rows, task, line.name, Level(kind, cell.sure)) for task in use.tasks]
                kept = min((share for share in shares if share is not None), default=0.0)
                candidates.append(
                    ((min(use.contexts, FEW_CONTEXTS), cell.sure, kept), Safest(line.name, use, cell.sure))
                )
    return max(candidates, key=lambda one: one[0])[1] if candidates else None


def _nothing(results: Results, matrix: UseMatrix) -> Finding | None:
    """Says that nothing is shown to be safe, where anything was measured."""
    cells = [cell for line in matrix.methods for cell in line.cells]
    if all(cell.sort is None for cell in cells):
        return None
    chance = ": what seems to be safe may be chance" if any(cell.may_be_chance for cell in cells) else ""
    kind = kind_of(results).name
    return Finding(f"No policy is shown safe for anything at any {kind} that was asked{chance}.", "#safe")


def _shown(results: Results, matrix: UseMatrix, safest: Safest) -> str:
    """Tells up to where a policy is shown to be safe, and the losses that were tested there."""
    kind, use = kind_of(results).name, safest.use
    losses = [_loss(results, task, safest.policy, Level(kind, safest.ratio)) for task in use.tasks]
    tasks = [f"{loss}{f' in {task}' if len(losses) > 1 else ''}" for task, loss in zip(use.tasks, losses, strict=True)]
    return (
        f"{_named(safest.policy, matrix)} is shown safe here for {use.with_tasks} up to {kind} "
        f"{safest.ratio:g}, on {use.contexts} contexts: {'; '.join(tasks)}."
    )


def _named(policy: str, matrix: UseMatrix) -> str:
    return f"{policy} (adapted)" if policy in matrix.adapted else policy


def _loss(results: Results, task: str, policy: str, level: Level) -> str:
    """Writes the loss that is tested for the safe ratio: of each measure that leads the task, in points against the
    full cache on the same questions, with its interval."""
    safe = safe_ratio_of(results, task, policy)
    if isinstance(safe, Blank):
        return ""
    measures = leading_measures(_full(results, task))
    losses = safe.losses_by_measure[_levels(results, task, policy).index(level)]
    points = " and ".join(
        f"{loss.mean:z.0f} {NOUNS.get(measure, f'points of {measure.title}')} ({_between(loss)})"
        for measure, loss in zip(measures, losses, strict=True)
    )
    return f"paired loss of {points}"


def _between(loss: Estimate) -> str:
    return "no interval" if loss.low is None or loss.high is None else f"{loss.low:z.0f} to {loss.high:z.0f}"


def _full(results: Results, task: str) -> SummaryRow | None:
    return next((row for row in results.rows if (row.task, row.policy) == (task, FULL)), None)


def _long(results: Results, matrix: UseMatrix, use: Use, figure: Address) -> Finding | None:
    """Tells what is safe for long contexts, or that nothing is shown, and which method loses least at the level that
    boards show first."""
    task = use.tasks[0]
    address = figure(task, _first_measure(results, task).name)
    if best := _most(results, matrix, [use]):
        return Finding(_shown(results, matrix, best), address)
    level = Level(kind_of(results).name, kind_of(results).typical)
    known = {
        line.name: safe.losses[_levels(results, task, line.name).index(level)].mean
        for line in matrix.methods
        if not isinstance(safe := safe_ratio_of(results, task, line.name), Blank)
        and level in _levels(results, task, line.name)
    }
    oracle = safe_ratio_of(results, task, ORACLE)
    chance = not isinstance(oracle, Blank) and oracle.outcome == "not shown"
    text = f"No policy is shown safe for {use.with_tasks}"
    text += f": {use.contexts} contexts do not even show it of the oracle" if chance else f" at any {level.kind}"
    if known:
        policy = min(known, key=known.__getitem__)
        text += f". At {level.where}, {_named(policy, matrix)} loses least: {_loss(results, task, policy, level)}"
    return Finding(f"{text}.", address)


def _levels(results: Results, task: str, policy: str) -> list[Level]:
    """Lists the levels of a policy in a task, from little compression to much, as safe ratios have their losses."""
    levels = {row.at for row in results.rows if (row.task, row.policy) == (task, policy)} - {UNTREATED}
    return sorted(levels, key=lambda one: one.amount)


def _least(results: Results, matrix: UseMatrix, figure: Address) -> Finding | None:
    """Finds the use whose best policy is safe for the least."""
    kind = kind_of(results).name
    best: dict[Use, float] = {}
    for line in matrix.methods:
        for use, cell in zip(matrix.uses, line.cells, strict=True):
            if cell.sure is not None and cell.kind == kind:
                best[use] = max(best.get(use, 0.0), cell.sure)
    if len(best) < 2:
        return None
    lowest = min(best.values())
    uses = [use for use, ratio in best.items() if ratio == lowest]
    names = ", ".join(use.with_tasks for use in uses)
    task = _binding(results, uses[0], [line.name for line in matrix.methods])
    return Finding(
        f"No policy is shown safe for {names} {f'above {kind} {lowest:g}' if lowest else f'at any {kind}'}.",
        figure(task, _first_measure(results, task).name),
    )


def _first_measure(results: Results, task: str) -> Measure:
    return leading_measures(_full(results, task))[0]


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
    (silent, silent_full), (wrong, wrong_full), (raw, raw_full) = (
        [f"{measure.factor * (measure.value(row) or 0):.0f} %" for row in (last, full)]
        for measure in (ABSTENTION, WRONG, HALLUCINATION)
    )
    return Finding(
        f"At {level.where}, {policy} leaves {silent} of the questions unanswered (full cache {silent_full}). Of its "
        f"answers {wrong} are wrong (full cache {wrong_full}){_distinguished(results, task, policy, level)}. Of all "
        f"questions {raw} are answered wrongly (full cache {raw_full}){_silenced(last, full)}.",
        figure(task, WRONG.name),
    )


def _silenced(row: SummaryRow, full: SummaryRow) -> str:
    """Explains a rate of wrong answers that falls, where the answers that are given are wrong more often."""
    fewer = (HALLUCINATION.value(row) or 0) < (HALLUCINATION.value(full) or 0)
    worse = (WRONG.value(row) or 0) > (WRONG.value(full) or 0)
    return ", fewer only because more go unanswered" if fewer and worse else ""


def _distinguished(results: Results, task: str, policy: str, level: Level) -> str:
    """Tells whether the paired difference of the shares of wrong answers leaves out 0."""
    for standing in results.details.standings.get((results.mode, task), ()):
        rise = standing.wrong_rises.get(level) if standing.policy == policy else None
        if rise is not None and rise.low is not None and rise.high is not None:
            between = interval_text((rise.low, rise.high), WRONG.factor, digits=1)
            clear = "" if rise.low > 0 or rise.high < 0 else "not "
            points = f"{WRONG.factor * rise.mean:z.1f} points ({between})"
            return f": a paired difference of {points}, {clear}distinguished from 0"
    return ""
