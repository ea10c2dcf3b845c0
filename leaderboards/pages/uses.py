"""The matrix of the front page: up to which ratio each policy is safe for what a cache is used
for."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean

from leaderboards.aggregate.leading_measures import (
    find_lead,
    full_by_task,
    is_obeyed_alone,
    reasons_by_task,
)
from leaderboards.aggregate.row import (
    ALL_TASKS,
    FEW_CONTEXTS,
    KEPT_TOKENS,
    KV_BYTES,
    NEXT_TOKENS,
    OBEYED,
    RIGHT,
    SummaryRow,
)
from leaderboards.boards.declaration import TableCell, TableRow, blank_reasons
from leaderboards.boards.safe_ratio import (
    CHANCE,
    SAFE_RATIO,
    beyond_words,
    contexts_line,
    difference_text,
    held_text,
    level_lines,
    more_text,
    verdict_words,
)
from leaderboards.metrics import MEASURES
from leaderboards.metrics.declaration import Definition
from leaderboards.pages.results import Results, distinct
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.safe_ratio import OPEN, SafeRatio, contexts_that_agree, lowest
from leaderboards.statistics.text import range_text
from policies.declaration.levels import LEVEL_KINDS, UNTREATED, LevelKind
from policies.declaration.names import CONTROLS, FULL

# The second is no longer than the first: on a phone the heads of columns stand upright.
SYSTEM_PROMPT, FACTS_OF_PROMPT = "system prompt", "prompt facts"
VERDICTS = ("safe", OPEN, "unsafe")  # as they are counted
# What a cache is used for, and the tasks that stand for it. A task that is not named here has a
# column of its own.
USES: Mapping[str, tuple[str, ...]] = {
    "needle": ("niah_single_1", "niah_single_2", "niah_single_3"),
    "needle among others": ("niah_multikey_1", "niah_multikey_2", "niah_multikey_3"),
    "several needles": ("niah_multivalue", "niah_multiquery"),
    "variable tracking": ("vt",),
    "counting words": ("cwe", "fwe"),
    "short QA": ("base", "knowledge"),
    "long context": ("long_context",),
    "multi-hop": ("hops",),
    "coreference": ("coreference",),
    "several entities": ("multi_entity", "multi_presence"),
    SYSTEM_PROMPT: ("instructions", "ifeval"),
    "arithmetic": ("arithmetic", "gsm8k"),
}
SCALES = {RIGHT: " % right", OBEYED: " % obeyed", NEXT_TOKENS: " % of next tokens"}
NOT_RUN = "not run"
A_LITTLE = 0.005  # of the bytes
ADAPTED_NOTE = (
    "adapted: it ran with other arguments than its paper’s, as a window or a part that stays whole "
    "is smaller in a short context: see the method"
)
DEFINITION = Definition(
    "What is safe for what",
    "Each cell has the safe ratio of a policy, with its loss. Of a use with several tasks it is "
    "the lowest of those that the model masters, since what is safe has to be safe in each; the "
    "loss is the worst of them at its level. A use is unsafe where one of its tasks is, and open "
    "where one of them has too few contexts to show it. n: the contexts of its task with the "
    "fewest; of directives, those of obedience or leakage, whichever has fewer. “May be chance”: "
    "higher than what the same contexts show of the oracle, which keeps the evidence. “0 bytes”: "
    "the policy masks tokens and frees nothing, so that what is safe saves nothing.",
)
ROOMY = 4  # uses: of more, the cells of a window of usual width hold two words a line


@dataclass(frozen=True)
class Use:
    name: str
    # Those of the results that the model masters; all of them where it masters none.
    tasks: tuple[str, ...]
    left_out: tuple[str, ...]  # those that it does not master, of the others
    contexts: int  # of the task, and of its leading measure, that has the fewest
    # Of a context in the full cache, mean over its tasks; None where the full cache was not run.
    tokens: float | None
    # Of the measure that leads, in percent: what the full cache has, mean over its tasks.
    full: float | None
    scale: str  # behind that number
    # Why nothing is judged: how little the model itself has of its tasks; empty where it masters
    # one.
    withheld: str

    @property
    def few(self) -> bool:
        """Tells whether it has too few contexts for a verdict to be trusted."""
        return self.contexts < FEW_CONTEXTS


@dataclass(frozen=True)
class UseCell(TableCell):
    verdict: str = ""  # safe, open or unsafe; empty of a task that the model cannot do
    level: str = ""  # that the verdict and the difference are of; empty of what has one level
    difference: str = ""  # from the full cache there, with its interval
    beyond: tuple[tuple[str, str], ...] = ()  # the verdict of higher levels, each with the level
    notes: tuple[str, ...] = ()  # bytes held, and how many contexts are needed
    every_level: str = ""  # all of them in a line each
    highest_sure: float = inf  # the highest ratio that the contexts can show to be safe

    @property
    def tone_of_use(self) -> str:
        """Names what it says, as its style does. What is open may be shown to be unsafe further
        on."""
        if self.sort is None:
            return "withheld"
        if self.verdict == OPEN and self.beyond:
            return "open unsafe-from"
        return "chance" if self.may_be_chance else self.verdict

    @property
    def may_be_chance(self) -> bool:
        """Tells whether its ratio is higher than what the same contexts show of the oracle."""
        return self.sort is not None and self.sort > self.highest_sure


@dataclass(frozen=True)
class UseLine(TableRow):
    cells: tuple[UseCell, ...]


@dataclass(frozen=True)
class UseMatrix:
    """A row for each policy but the full cache, a column for each use."""

    uses: tuple[Use, ...]
    methods: tuple[UseLine, ...]
    controls: tuple[UseLine, ...]
    masking: frozenset[str]  # the policies that mask tokens and free no bytes
    # What is said of tasks with directives whose questions the model cannot answer.
    unanswered: tuple[str, ...]
    # The policies that ran with other arguments than their papers' on some task.
    adapted: frozenset[str]
    tolerance: float  # the loss in points below which a level is safe

    @property
    def needed(self) -> str:
        """Says how many contexts show anything to be safe; empty where each use has as many."""
        counts = [use.contexts for use in self.uses]
        if min(counts) >= contexts_that_agree(self.tolerance / 100):
            return ""
        return contexts_line(counts, self.tolerance)

    @property
    def is_crowded(self) -> bool:
        """Tells whether a cell has room for a word or two under its verdict."""
        return len(self.uses) > ROOMY

    def _cells(self) -> Iterator[UseCell]:
        for line in self.lines:
            yield from line.cells

    @property
    def is_blank(self) -> bool:
        """Tells whether no cell has a number, as where all that was asked are attacks."""
        return all(cell.is_blank for cell in self._cells())

    @property
    def few(self) -> str:
        """Warns of uses with few contexts; empty where there are enough."""
        counts, few = [], []
        for use in self.uses:
            if use.few:
                counts.append(use.contexts)
                few.append(use.name)
        if not few:
            return ""
        contexts = range_text(min(counts), max(counts))
        unit = "context" if contexts == "1" else "contexts"
        names = ", ".join(few)
        if len(few) == len(self.uses) > 1:
            names = "each use"
        warning = f"Only {contexts} {unit} for {names}"
        if any(cell.verdict for cell in self._cells()):
            warning += ": verdicts say little, and their cells are hatched"
        return warning

    @property
    def reasons(self) -> list[str]:
        """Says why cells are blank, which tasks are left out, and what is said of a policy."""
        withheld, left_out = [], []
        for use in self.uses:
            if use.withheld:
                reason = f"no verdicts in {use.name}: {use.withheld}"
                withheld.append(f"{reason}; losses are shown all the same")
            if use.left_out:
                tasks = ", ".join(use.left_out)
                left_out.append(f"left out of {use.name}: {tasks}, not mastered")
        if len(withheld) == len(self.uses):
            withheld = []  # the warning above the matrix says it of all
        blank = blank_reasons([use.name for use in self.uses], self.lines)
        reasons = [*withheld, *blank, *left_out, *self.unanswered]
        if self.adapted:
            reasons.append(ADAPTED_NOTE)
        return reasons

    @property
    def verdict_counts(self) -> str:
        """Counts the verdicts of methods, as "2 safe, 5 open"; empty where there is none."""
        verdicts: Counter[str] = Counter()
        for line in self.methods:
            verdicts.update(cell.verdict for cell in line.cells)
        counts = []
        for verdict in VERDICTS:
            if verdicts[verdict]:
                counts.append(f"{verdicts[verdict]} {verdict}")
        return ", ".join(counts)

    @property
    def lines(self) -> tuple[UseLine, ...]:
        """Returns the rows of methods, then those of controls."""
        return *self.methods, *self.controls


def use_for(task: str, rows: Iterable[SummaryRow]) -> str:
    """Returns what a task stands for. A system prompt is what is obeyed or attacked: a level of its
    task that asks for neither, as the lowest does, asks for facts alone, and says nothing of
    directives and secrets."""
    use = next((use for use, tasks in USES.items() if task in tasks), task)
    if use != SYSTEM_PROMPT:
        return use
    leakage = MEASURES["leakage"]
    was_run = False
    for row in rows:
        if row.task != task or not row.complete:
            continue
        was_run = True
        if OBEYED.value(row) is not None or leakage.value(row) is not None:
            return use
    return FACTS_OF_PROMPT if was_run else use


def with_use(task: str, rows: Iterable[SummaryRow]) -> str:
    """Returns the name of a task with what it stands for, such as ``instructions (system
    prompt)``."""
    use = use_for(task, rows)
    if use in (task, task.replace("_", " ")):
        return task
    return f"{task} ({use})"


def all_uses(results: Results) -> tuple[Use, ...]:
    """Returns the uses that the tasks of some results stand for, in the order of their
    declaration."""
    tasks_by_use: dict[str, list[str]] = {use: [] for use in USES}
    for task in results.tasks:
        tasks_by_use.setdefault(use_for(task, results.rows), []).append(task)
    facts = _facts_of_tasks(results)
    uses = []
    for name, tasks in tasks_by_use.items():
        if tasks:
            uses.append(_use(name, tasks, results, facts))
    return tuple(uses)


@dataclass(frozen=True)
class _Facts:
    """Holds what uses are made of, each by task."""

    contexts: Mapping[str, int]
    full: Mapping[str, SummaryRow]
    tokens: Mapping[str, float]  # of a context in the full cache
    heights: Mapping[str, float]  # what the full cache has, in percent
    unmastered: Mapping[str, str]  # why the model cannot do a task


def _facts_of_tasks(results: Results) -> _Facts:
    contexts: dict[str, int] = {}
    full, tokens = {}, {}
    for row in results.rows:
        # The most of any row, since one that was cut short has fewer.
        contexts[row.task] = max(contexts.get(row.task, 0), row.fewest_contexts)
        if row.policy == FULL:
            full[row.task] = row
    for task, row in full.items():
        kept = KEPT_TOKENS.value(row)
        if kept:
            tokens[task] = kept
    heights, unmastered = full_by_task(results.rows), reasons_by_task(results.rows)
    return _Facts(contexts, full, tokens, heights, unmastered)


def _use(name: str, all_tasks: Sequence[str], results: Results, facts: _Facts) -> Use:
    mastered, left_out = [], []
    for task in all_tasks:
        if task in results.mastered:
            mastered.append(task)
        else:
            left_out.append(task)
    # All of them are shown then, and none is left out.
    if not mastered:
        left_out = []
    tasks = mastered or all_tasks
    withheld = ""
    if all(task in facts.unmastered for task in tasks):
        reasons = dict.fromkeys(facts.unmastered[task] for task in tasks)
        withheld = "; ".join(reasons)
    return Use(
        name,
        tasks=tuple(tasks),
        left_out=tuple(left_out),
        contexts=min(facts.contexts[task] for task in tasks),
        tokens=_mean_over(tasks, facts.tokens),
        full=_mean_over(tasks, facts.heights),
        scale=SCALES[find_lead(facts.full.get(tasks[0])).measures[0]],
        withheld=withheld,
    )


def _mean_over(tasks: Sequence[str], by_task: Mapping[str, float]) -> float | None:
    values = []
    for task in tasks:
        if task in by_task:
            values.append(by_task[task])
    if not values:
        return None
    return fmean(values)


def usual_kind(results: Results) -> LevelKind:
    """Returns the kind of the levels at which the policies of some results run: that of most of
    them."""
    kinds: Counter[str] = Counter()
    for row in results.rows:
        if row.at != UNTREATED and row.task != ALL_TASKS:
            kinds[row.level_kind] += 1
    if not kinds:
        return UNTREATED.declared
    (usual, _), *_ = kinds.most_common(1)
    return LEVEL_KINDS[usual]


def use_matrix(results: Results) -> UseMatrix:
    """Takes the safe ratios of the standings; policies stand in the order of the board."""
    uses, kind = all_uses(results), usual_kind(results)
    safe = {}
    for (_, task), of_board in results.standings.items():
        for standing in of_board:
            # Without the mode, which all results of one matrix share.
            safe[task, standing.policy] = standing[SAFE_RATIO]
    methods, controls = [], []
    for policy in _policies(results):
        if policy == FULL:
            continue
        cells = []
        for use in uses:
            by_task = {task: safe.get((task, policy), Blank(NOT_RUN)) for task in use.tasks}
            cells.append(_cell(by_task, kind))
        line = UseLine(policy, tuple(cells))
        if policy in CONTROLS:
            controls.append(line)
        else:
            methods.append(line)
    adapted = frozenset[str]()
    for board in results.boards.values():
        adapted |= board.adapted
    return UseMatrix(
        uses,
        tuple(methods),
        tuple(controls),
        masking=_masking(results),
        unanswered=tuple(map(_unanswered, filter(is_obeyed_alone, results.rows))),
        adapted=adapted,
        tolerance=results.tolerance,
    )


def _unanswered(full: SummaryRow) -> str:
    share = RIGHT.text(RIGHT.value(full))
    right = f"of its questions the full cache has {share} % right"
    return f"{full.task}: verdicts are of directives alone; {right}"


def _masking(results: Results) -> frozenset[str]:
    """Finds the policies that are asked to remove tokens and free no bytes at any level."""
    whole_bytes: dict[str, float | None] = {}
    for row in results.rows:
        if row.policy == FULL:
            whole_bytes[row.task] = KV_BYTES.value(row)
    freed: dict[str, float] = {}
    for row in results.rows:
        held, whole = KV_BYTES.value(row), whole_bytes.get(row.task)
        # Only where something was to be removed: an untreated level frees nothing by design.
        if row.policy != FULL and held is not None and whole and row.ratio:
            # At any level and on any task: a policy that ever frees bytes does not mask.
            freed[row.policy] = max(freed.get(row.policy, 0.0), 1 - held / whole)
    return frozenset(policy for policy, share in freed.items() if share < A_LITTLE)


def _policies(results: Results) -> list[str]:
    board = results.boards.get((results.mode, results.shown[0]))
    if board:
        return distinct(line.name for line in board.lines)
    return distinct(row.policy for row in results.rows)


def _cell(by_task: Mapping[str, SafeRatio | Blank], kind: LevelKind) -> UseCell:
    """Makes the cell of a use, safe in each of its tasks; levels of another ``kind`` than the usual
    one are named."""
    safe = lowest(by_task)
    if isinstance(safe, Blank):
        return UseCell.blank(safe.reason)
    verdict, level = verdict_words(safe, kind.name)
    # Without its task: the column of the matrix is a use, and its head names it.
    beyond = beyond_words(replace(safe, unsafe_in=""), kind.name)
    difference = difference_text(safe.tested.difference, safe.tolerance)
    chance = CHANCE if safe.may_be_chance else ""
    notes = tuple(filter(None, (held_text(safe), more_text(safe), chance)))
    detail = [difference, *notes, *map(" ".join, beyond)]
    return UseCell(
        f"{verdict} {level}".strip(),
        "\n".join(filter(None, detail)),
        safe.worth,
        verdict=verdict,
        level=level,
        difference=difference,
        beyond=beyond,
        notes=notes,
        every_level="\n".join(level_lines(safe)),
        highest_sure=safe.highest_sure if safe.kind else inf,
    )
