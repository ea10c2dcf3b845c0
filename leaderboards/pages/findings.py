"""The findings of the front page: a few that are computed, each with the figure that shows it."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
    interval_text,
)
from leaderboards.aggregate.unmastered import advice, reasons_by_task
from leaderboards.boards.safe_ratio import TOLERATED_LOSS, loss_text, signed
from leaderboards.figures.tradeoff import kept_share
from leaderboards.metrics import Measure
from leaderboards.pages.results import Results
from leaderboards.pages.sections import contexts_text, largest_of
from leaderboards.pages.uses import LONG, SYSTEM, Use, UseCell, UseMatrix, kind_of, safe_ratio_of
from leaderboards.statistics.bootstrap import Blank, Estimate
from leaderboards.statistics.significance import highest_unseen_share
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import CONTROLS, FULL, ORACLE

Address = Callable[[str, str], str]  # of the figure of a task and a measure
RatioOf = Callable[[UseCell], float | None]
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
    """Tells the most that is safe, what is safe for a system prompt and what of it is lost first, what is kept of long
    contexts (or, where none were run, the use that bears least), and how the best policy goes wrong; fewer where there
    is nothing to tell. Where the model can do no task, it says this alone: what it gets wrong is not due to a policy.
    ``section``: the identifier of the section of these results on each page. ``pages``: the file name of the page of
    each task that is not on the front page."""

    def figure(task: str, measure: str) -> str:
        return f"{pages.get(task, '')}#{section}-{measure}-figure"

    if all(task in reasons_by_task(results.rows) for task in results.tasks):
        return [_none_mastered(results, figure)]
    most = _most(results, matrix, matrix.uses, _sure)
    long = next((use for use in matrix.uses if use.name == LONG), None)
    told = most.use if most is not None else None
    second = _least(results, matrix, figure) if long in (None, told) else _of_use(results, matrix, long, figure)
    system = next((use for use in matrix.uses if use.name == SYSTEM and use != told), None)
    if most is not None:
        task = most.use.tasks[0]
        first: Headline | None = Headline(_shown(results, most), figure(task, _first_measure(results, task).name))
    else:
        first = _nothing(results, matrix)
    of_system = _of_use(results, matrix, system, figure)
    lost = _lost_first(results, matrix, figure)
    found = (first, _of_one_level(results, matrix), of_system, lost, second, _wrong(results, figure))
    return [finding for finding in found if finding is not None]


def _none_mastered(results: Results, figure: Address) -> Headline:
    """Says that scores tell nothing of policies, how much is right, and which method at the level that boards show
    first leaves the right answer most likely."""
    shown = ALL_TASKS if len(results.tasks) > 1 else results.tasks[0]
    reasons = reasons_by_task(results.rows)
    below = "; ".join(f"{task}: {reasons[task].removeprefix(f'{CANNOT}: ')}" for task in results.tasks)
    text = f"The model masters no task here, so that scores say nothing of policies ({below})."
    level = Level(kind_of(results).name, kind_of(results).typical)
    rises = {
        row.policy: row
        for row in results.rows
        if (row.task, row.at) == (shown, level) and row.policy not in CONTROLS and DELTA_NLL.value(row) is not None
    }
    if rises:
        best = min(rises.values(), key=lambda row: DELTA_NLL.value(row) or 0.0)
        low_high = interval_text(DELTA_NLL.interval(best), digits=3).replace("–", " to ")
        text += (
            f" What policies change all the same is how likely the right answer is: at {level.where} {best.policy} "
            f"costs least, {DELTA_NLL.text(DELTA_NLL.value(best))} nats a token ({low_high})."
        )
    text += f" {advice(results.tasks)}"
    return Headline(text, figure(shown, DELTA_NLL.name))


@dataclass(frozen=True)
class Safest:
    """The policy that is safe up to the highest ratio for a use."""

    policy: str
    use: Use
    ratio: float


def _of_one_level(results: Results, matrix: UseMatrix) -> Headline | None:
    """Tells which of the policies without levels, such as int4, is safe for every use at the fewest bytes, and which
    are unsafe for which uses."""
    known = {
        line.name: {use: cell for use, cell in zip(matrix.uses, line.cells, strict=True) if cell.sort is not None}
        for line in matrix.methods
        if any(cell.kind is None for cell in line.cells)
    }
    held = {name: _held(results, name) for name in known}
    safe = [name for name, cells in known.items() if all(cell.tone_of_use == "safe" for cell in cells.values())]
    unsafe = {
        name: ", ".join(use.name for use, cell in cells.items() if cell.text == "unsafe")
        for name, cells in known.items()
    }
    best = min(safe, key=held.__getitem__, default="")
    where = "every use" if len(matrix.uses) > 1 else matrix.uses[0].name
    told = [
        f"{best} is shown safe for {where} here, at {held[best]:.0f} % of the full cache’s bytes." if best else "",
        f"Shown unsafe: {'; '.join(f'{name} ({uses})' for name, uses in unsafe.items() if uses)}."
        if any(unsafe.values())
        else "",
    ]
    return Headline(" ".join(filter(None, told)), "#safe") if any(told) else None


def _held(results: Results, policy: str) -> float:
    """Returns the most bytes that a policy without levels holds in a task, in percent of the full cache's."""
    found = (safe_ratio_of(results, task, policy) for task in results.mastered)
    return max((one.held for one in found if not isinstance(one, Blank) and one.held is not None), default=100.0)


def _most(results: Results, matrix: UseMatrix, uses: Collection[Use], ratio_of: RatioOf) -> Safest | None:
    """Finds the highest ratio of a method in some uses; of several that share it, the one that keeps most there.
    ``ratio_of``: what counts of a cell, nothing or 0 where it shall not."""
    rows = {(row.task, row.policy, row.at): row for row in results.rows}
    kind = kind_of(results).name
    candidates = []
    for line in matrix.methods:
        for use, cell in zip(matrix.uses, line.cells, strict=True):
            ratio = ratio_of(cell)
            if ratio and cell.kind == kind and use in uses:
                shares = [kept_share(rows, task, line.name, Level(kind, ratio)) for task in use.tasks]
                kept = min((share for share in shares if share is not None), default=0.0)
                candidates.append(((ratio, kept), Safest(line.name, use, ratio)))
    return max(candidates, key=lambda one: one[0])[1] if candidates else None


def _sure(cell: UseCell) -> float | None:
    """Takes what is shown to be safe, and leaves out what may be chance."""
    return cell.sure


def _seeming(cell: UseCell) -> float | None:
    """Takes what seems to be safe, and may be chance."""
    return cell.sort


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
        for standing in results.details.standings.get((results.mode, task), ())
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
    parts = [_points(measure, loss) for measure, loss in zip(measures, losses, strict=True) if not _is_unchanged(loss)]
    if len(parts) < len(losses):
        share = highest_unseen_share(safe.contexts)
        parts.append(
            f"in none of {safe.contexts} contexts does anything {'else ' if parts else ''}change, which excludes a "
            f"change in more than {share:.0%} of contexts".replace("%", " %")
        )
    return " and ".join(parts)


def _is_unchanged(loss: Estimate) -> bool:
    return loss.mean == loss.low == loss.high == 0


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


def _of_use(results: Results, matrix: UseMatrix, use: Use | None, figure: Address) -> Headline | None:
    """Tells what is safe for a use, or that nothing is shown, with what comes nearest."""
    if use is None or all(line.cells[matrix.uses.index(use)].sort is None for line in matrix.methods):
        return None
    task = use.tasks[0]
    address = figure(task, _first_measure(results, task).name)
    if best := _most(results, matrix, [use], _sure):
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
    return Headline(f"{text}.{_nearest(results, matrix, use)}", address)


def _nearest(results: Results, matrix: UseMatrix, use: Use) -> str:
    """Tells what seems to be safe for a use and may be chance; where nothing does, which method loses least at the
    level that boards show first."""
    if seeming := _most(results, matrix, [use], _seeming):
        where = f"{_named(results, seeming.policy, use)} at {kind_of(results).name} {seeming.ratio:g}"
        return f" The highest candidate, {where}, may be chance: {_losses(results, seeming)}."
    level, task = Level(kind_of(results).name, kind_of(results).typical), use.tasks[0]
    known = {
        line.name: safe.losses[_levels(results, task, line.name).index(level)].mean
        for line in matrix.methods
        if not isinstance(safe := safe_ratio_of(results, task, line.name), Blank)
        and level in _levels(results, task, line.name)
    }
    if not known:
        return ""
    policy = min(known, key=known.__getitem__)
    does = "gains most" if round(known[policy]) < 0 else "loses least"
    return f" At {level.where}, {_named(results, policy, use)} {does}: {_loss(results, task, policy, level)}."


def _lost_first(results: Results, matrix: UseMatrix, figure: Address) -> Headline | None:
    """Tells where directives are shown to be lost while answers on the same texts are still right, and where most
    are."""
    tried = [
        cell
        for task in results.mastered
        if _first_measure(results, task) is OBEYED
        for line in matrix.methods
        for cell in _directive_cells(results, task, line.name)
    ]
    found = [cell for cell in tried if cell.right_lost < TOLERATED_LOSS <= (cell.loss.low or 0.0)]
    if not found:
        return None
    most = max(found, key=lambda cell: cell.loss.mean)
    (obeyed, obeyed_full), (right, right_full) = (
        [f"{measure.factor * (measure.value(row) or 0):.0f}" for row in (most.row, most.full)]
        for measure in (OBEYED, RIGHT)
    )
    tasks = ", ".join(dict.fromkeys(cell.row.task for cell in tried))
    return Headline(
        f"Directives can be lost while answers stay right. This is shown for {len(found)} of {len(tried)} cells (a "
        f"policy at one level) of {tasks}: they lose {TOLERATED_LOSS:g} points or more of directives obeyed, and less "
        f"than {TOLERATED_LOSS:g} points of right answers. {most.row.policy}"
        f"{'' if most.row.at == UNTREATED else f' at {most.row.at.where}'} loses most: it "
        f"obeys {obeyed} % of the directives (full cache {obeyed_full} %) and has {right} % of the answers right (full "
        f"cache {right_full} %).",
        figure(most.row.task, OBEYED.name),
    )


@dataclass(frozen=True)
class DirectiveCell:
    """A policy at one level of a task that has directives and answers."""

    row: SummaryRow
    full: SummaryRow
    loss: Estimate  # of directives obeyed, in points
    right_lost: float  # in points


def _directive_cells(results: Results, task: str, policy: str) -> Iterator[DirectiveCell]:
    full, safe = _full(results, task), safe_ratio_of(results, task, policy)
    rows = {row.at: row for row in results.rows if (row.task, row.policy) == (task, policy)}
    if full is None or isinstance(safe, Blank) or (whole := RIGHT.value(full)) is None:
        return
    for level, losses in zip(_levels(results, task, policy), safe.losses_by_measure, strict=True):
        if (right := RIGHT.value(rows[level])) is not None:
            yield DirectiveCell(rows[level], full, losses[0], RIGHT.factor * (whole - right))


def _levels(results: Results, task: str, policy: str) -> list[Level]:
    """Lists the levels of a policy in a task, from little compression to much, as safe ratios have their losses."""
    levels = {row.at for row in results.rows if (row.task, row.policy) == (task, policy)}
    return sorted(levels - {UNTREATED} or levels, key=lambda one: one.amount)


def _least(results: Results, matrix: UseMatrix, figure: Address) -> Headline | None:
    """Finds the use whose best policy is safe for the least, where any is safe for anything."""
    kind = kind_of(results).name
    best: dict[Use, float] = {}
    for line in matrix.methods:
        for use, cell in zip(matrix.uses, line.cells, strict=True):
            if cell.sure is not None and cell.kind == kind:
                best[use] = max(best.get(use, 0.0), cell.sure)
    if len(best) < 2 or not any(best.values()):
        return None
    lowest = min(best.values())
    uses = [use for use, ratio in best.items() if ratio == lowest]
    names = ", ".join(use.with_tasks for use in uses)
    task = _binding(results, uses[0], [line.name for line in matrix.methods])
    return Headline(
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
        f"answers {wrong} are wrong (full cache {wrong_full}){_distinguished(results, last, policy, level)}. Of all "
        f"questions it answers {raw} wrongly (full cache {raw_full}){_silenced(last, full)}.",
        figure(task, WRONG.name),
    )


def _silenced(row: SummaryRow, full: SummaryRow) -> str:
    """Explains a rate of wrong answers that falls, where the answers that are given are wrong more often."""
    fewer = (HALLUCINATION.value(row) or 0) < (HALLUCINATION.value(full) or 0)
    worse = (WRONG.value(row) or 0) > (WRONG.value(full) or 0)
    return ", fewer only because more go unanswered" if fewer and worse else ""


def _distinguished(results: Results, row: SummaryRow, policy: str, level: Level) -> str:
    """Tells whether the paired difference of the shares of wrong answers leaves out 0; of few contexts it tells
    none."""
    for standing in results.details.standings.get((results.mode, row.task), ()):
        rise = standing.wrong_rises.get(level) if standing.policy == policy else None
        if rise is not None and rise.low is not None and rise.high is not None:
            points = f": a paired difference of {signed(WRONG.factor * rise.mean, 1)} points"
            if row.few_contexts:
                return f"{points}, of which {row.fewest_contexts} contexts are too few to say more"
            # A dash between the two would be read as a minus.
            between = " to ".join(signed(WRONG.factor * end, 1) for end in (rise.low, rise.high))
            clear = "" if rise.low > 0 or rise.high < 0 else "not "
            return f"{points} ({between}), {clear}distinguished from 0"
    return ""
