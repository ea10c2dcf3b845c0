"""The findings of the front page: a few that are computed, each with the figure that shows it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from leaderboards.aggregate.arguments import adapted_presses
from leaderboards.aggregate.lead import CANNOT, leading_measures
from leaderboards.aggregate.row import (
    ALL_TASKS,
    DELTA_NLL,
    FEW_CONTEXTS,
    HALLUCINATION,
    LEAKAGE,
    NEXT_TOKENS,
    OBEYED,
    RIGHT,
    UNANSWERED,
    WRONG_OF_ANSWERED,
    SummaryRow,
)
from leaderboards.aggregate.unmastered import advice, reasons_by_task
from leaderboards.boards.safe_ratio import loss_text
from leaderboards.figures.gallery import kept_share
from leaderboards.metrics import Measure
from leaderboards.pages.results import Results
from leaderboards.pages.sections import contexts_text, largest_of
from leaderboards.pages.uses import MEASURED_SHORTER, Use, UseMatrix, kind_of, safe_ratio_of
from leaderboards.statistics.bootstrap import Blank, Estimate
from leaderboards.statistics.significance import highest_unseen_share
from leaderboards.statistics.text import interval_text
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import CONTROLS, FULL, ORACLE

Address = Callable[[str, str], str]  # of the figure of a task and a measure
OF_DIRECTIVES = "points of directives obeyed"
OF_ANSWERS = "points of right answers"
OF_TOKENS = "points of next tokens right"
KNOWN = {RIGHT: OF_ANSWERS, OBEYED: OF_DIRECTIVES, NEXT_TOKENS: OF_TOKENS}
LOSSES = {**KNOWN, LEAKAGE: "points more leakage under a defence"}
GAINS = {**KNOWN, LEAKAGE: "points less leakage under a defence"}
WRONG = WRONG_OF_ANSWERED  # a model that falls silent hallucinates less, so that only what it still answers counts


@dataclass(frozen=True)
class Headline:
    """A sentence, and the address of the figure that shows it."""

    text: str
    link: str


def findings_of(results: Results, matrix: UseMatrix, section: str, pages: Mapping[str, str]) -> list[Headline]:
    """Tells the most that is safe, what is safe for a system prompt and for long contexts, and how the best policy goes
    wrong; fewer where there is nothing to tell. Where the model can do no task, it says this alone: what it gets wrong
    is not due to a policy. ``section``: the identifier of the section of these results on each page. ``pages``: the
    file name of the page of each task that is not on the front page."""

    def figure(task: str, measure: str) -> str:
        return f"{pages.get(task, '')}#{section}-{measure}-figure"

    if all(task in reasons_by_task(results.rows) for task in results.tasks):
        return [_none_mastered(results, figure)]
    most = _most(results, matrix, matrix.uses)
    if most is not None:
        task = most.use.tasks[0]
        first: Headline | None = Headline(_shown(results, most), figure(task, _first_measure(results, task).name))
    else:
        first = _nothing(results, matrix)
    told = most.use if most is not None else None
    others = [use for use in matrix.uses if use.name in MEASURED_SHORTER and use != told]
    found = (first, *(_of_use(results, matrix, use, figure) for use in others), _wrong(results, figure))
    return [finding for finding in found if finding is not None]


def _none_mastered(results: Results, figure: Address) -> Headline:
    """Says that scores tell nothing of policies, how much is right, and which method at the level that boards show
    first leaves the right answer most likely."""
    shown = ALL_TASKS if len(results.tasks) > 1 else results.tasks[0]
    reasons = reasons_by_task(results.rows)
    below = "; ".join(f"{task}: {reasons[task].removeprefix(f'{CANNOT}: ')}" for task in results.tasks)
    text = f"The model masters no task here, so its scores say nothing about policies ({below})."
    level = Level(kind_of(results).name, kind_of(results).typical)
    rises = {
        row.policy: row
        for row in results.rows
        if (row.task, row.at) == (shown, level) and row.policy not in CONTROLS and DELTA_NLL.value(row) is not None
    }
    if rises:
        best = min(rises.values(), key=lambda row: DELTA_NLL.value(row) or 0.0)
        interval = DELTA_NLL.interval(best)
        low_high = f" ({interval_text(interval, digits=3).replace('–', ' to ')})" if interval else ""
        text += (
            f" Policies still change how likely the right answer is: at {level.where} its NLL rises least under "
            f"{best.policy}, by {DELTA_NLL.text(DELTA_NLL.value(best))} nats a token{low_high}."
        )
    text += f" {advice(results.tasks)}"
    return Headline(text, figure(shown, DELTA_NLL.name))


@dataclass(frozen=True)
class Safest:
    """The policy that is safe up to the highest ratio for a use."""

    policy: str
    use: Use
    ratio: float


def _most(results: Results, matrix: UseMatrix, uses: Collection[Use]) -> Safest | None:
    """Finds the highest ratio of a method in some uses; of several that share it, the one that keeps most there."""
    rows = {(row.task, row.policy, row.at): row for row in results.rows}
    kind = kind_of(results).name
    candidates = []
    for line in matrix.methods:
        for use, cell in zip(matrix.uses, line.cells, strict=True):
            ratio = cell.sure  # without what may be chance
            if ratio and cell.kind == kind and use in uses:
                shares = [kept_share(rows, task, line.name, Level(kind, ratio)) for task in use.tasks]
                kept = min((share for share in shares if share is not None), default=0.0)
                candidates.append(((ratio, kept), Safest(line.name, use, ratio)))
    return max(candidates, key=lambda one: one[0])[1] if candidates else None


def _nothing(results: Results, matrix: UseMatrix) -> Headline | None:
    """Says that nothing is shown to be safe, where anything was measured."""
    cells = [cell for line in matrix.methods for cell in line.cells]
    if all(cell.sort is None for cell in cells):
        return None
    chance = any(cell.may_be_chance for cell in cells)
    if all(use.few for use in matrix.uses):
        text = f"Too few contexts ({matrix.contexts}; {FEW_CONTEXTS} at least) to call anything safe"
    else:
        text = f"No policy is shown safe for anything at any {kind_of(results).name} that was asked"
    return Headline(f"{text}{': what seems to be safe may be chance' if chance else ''}.", "#safe")


def _shown(results: Results, safest: Safest) -> str:
    """Tells up to where a policy is shown to be safe, on how many contexts of which length, and the losses that were
    tested there."""
    fewest = min(safest.use.tasks, key=lambda task: largest_of(results, task).fewest_contexts)
    use, of_length = safest.use, f" of {safest.use.length}" if safest.use.length else ""
    return (
        f"{_named(results, safest.policy, use)} is shown safe here for {use.with_tasks} up to "
        f"{kind_of(results).name} {safest.ratio:g}, on {contexts_text(results, fewest)}{of_length}: "
        f"{_losses(results, safest)}."
    )


def _losses(results: Results, safest: Safest) -> str:
    """Writes the losses of a policy in each task of a use."""
    tasks, level = safest.use.tasks, Level(kind_of(results).name, safest.ratio)
    of_tasks = [_loss(results, task, safest.policy, level) for task in tasks]
    return "; ".join(
        f"{loss}{f' in {task}' if len(tasks) > 1 else ''}" for task, loss in zip(tasks, of_tasks, strict=True)
    )


def _named(results: Results, policy: str, use: Use) -> str:
    """Names a policy, and says where its press ran with other arguments than its paper's on the tasks of a use."""
    presses = [
        press
        for task in use.tasks
        for standing in results.standings.get((results.mode, task), ())
        for press in standing.presses
        if press.policy == policy
    ]
    adapted = adapted_presses(presses).get(policy)
    return f"{policy} (adapted: {adapted})" if adapted else policy


def _loss(results: Results, task: str, policy: str, level: Level) -> str:
    """Writes the loss that is tested for the safe ratio: of each measure that leads the task, in points against the
    full cache on the same questions, with its interval. Where nothing changes the interval has no width, and what n
    contexts exclude is told instead."""
    safe = safe_ratio_of(results, task, policy)
    if isinstance(safe, Blank):
        return ""
    measures = leading_measures(_full(results, task))
    losses = safe.losses_by_measure[_levels(results, task, policy).index(level)]
    changed = [
        (measure, loss) for measure, loss in zip(measures, losses, strict=True) if loss.mean or loss.low or loss.high
    ]
    parts = [_points(measure, loss) for measure, loss in changed]
    if len(parts) < len(losses):
        share = highest_unseen_share(safe.contexts)
        parts.append(
            f"in none of {safe.contexts} contexts does anything {'else ' if parts else ''}change, which excludes a "
            f"change in more than {share:.0%} of contexts".replace("%", " %")
        )
    return " and ".join(parts)


def _points(measure: Measure, loss: Estimate) -> str:
    """Writes a loss in points; a negative one as a gain."""
    gains = round(loss.mean) < 0
    sign = -1 if gains else 1
    noun = (GAINS if gains else LOSSES).get(measure, f"points of {measure.title}")
    if loss.low is None or loss.high is None:
        between = "no interval"
    elif loss.low == loss.high:
        between = "the same in each context"
    else:
        low, high = sorted((sign * loss.low, sign * loss.high))
        between = f"{loss_text(low)} to {loss_text(high)}"
    return f"paired {'gain' if gains else 'loss'} of {loss_text(sign * loss.mean)} {noun} ({between})"


def _full(results: Results, task: str) -> SummaryRow | None:
    return next((row for row in results.rows if (row.task, row.policy) == (task, FULL)), None)


def _of_use(results: Results, matrix: UseMatrix, use: Use, figure: Address) -> Headline | None:
    """Tells what is safe for a use, or that nothing is shown."""
    if all(line.cells[matrix.uses.index(use)].sort is None for line in matrix.methods):
        return None
    task = use.tasks[0]
    address = figure(task, _first_measure(results, task).name)
    if best := _most(results, matrix, [use]):
        return Headline(_shown(results, best), address)
    oracle = safe_ratio_of(results, task, ORACLE)
    doubtful = not isinstance(oracle, Blank) and oracle.outcome == "not shown"
    what = f"{use.with_tasks}{f' of {use.length}' if use.length else ''}"
    if use.few:
        text = f"Too few contexts ({use.contexts}; {FEW_CONTEXTS} at least) to call anything safe for {what}"
        text += ": not even the oracle passes" if doubtful else ""
    else:
        text = f"No policy is shown safe for {what}"
        text += (
            f": {use.contexts} contexts do not even show it of the oracle"
            if doubtful
            else f" at any {kind_of(results).name}"
        )
    return Headline(f"{text}.", address)


def _levels(results: Results, task: str, policy: str) -> list[Level]:
    """Lists the levels of a policy in a task, from little compression to much, as safe ratios have their losses."""
    levels = {row.at for row in results.rows if (row.task, row.policy) == (task, policy)}
    return sorted(levels - {UNTREATED} or levels, key=lambda one: one.amount)


def _first_measure(results: Results, task: str) -> Measure:
    return leading_measures(_full(results, task))[0]


def _wrong(results: Results, figure: Address) -> Headline | None:
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
        for measure in (UNANSWERED, WRONG, HALLUCINATION)
    )
    at = "" if level == UNTREATED else f"At {level.where}, "
    return Headline(
        f"{at}{policy} leaves {silent} of the questions unanswered (full cache {silent_full}). Of its "
        f"answers {wrong} are wrong (full cache {wrong_full}). Of all "
        f"questions it answers {raw} wrongly (full cache {raw_full}).",
        figure(task, WRONG.name),
    )
