"""The matrix of the front page: up to which ratio each policy is safe for what a cache is used
for."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean

from leaderboards.aggregate.lead import full_by_task, is_obeyed_alone, lead_of, reasons_by_task
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
    OPEN,
    SAFE_RATIO,
    SafeRatio,
    beyond_words,
    contexts_line,
    difference_text,
    held_text,
    level_lines,
    lowest,
    more_text,
    verdict_words,
)
from leaderboards.metrics import MEASURES
from leaderboards.metrics.declaration import Definition
from leaderboards.pages.results import Results, distinct
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.intervals import contexts_that_agree
from leaderboards.statistics.text import range_text
from policies.declaration.levels import KINDS, UNTREATED, LevelKind
from policies.declaration.names import CONTROLS, FULL

# The second is no longer than the first: on a phone the heads of columns stand upright.
SYSTEM_PROMPT, FACTS_OF_PROMPT = "system prompt", "prompt facts"
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
    "The safe ratio of a policy in each task, with its loss; of a use with several tasks the "
    "lowest of those that the model masters, since what is safe has to be safe in each, and at its "
    "level the worst loss of them. A use is unsafe where one of its tasks is, and open where one "
    "of them has too few contexts to show it. n: the contexts of its task with the fewest; of "
    "directives, those of obedience or leakage, whichever has fewer. “May be chance”: higher than "
    "what the same contexts show of the oracle, which keeps the evidence. “0 bytes”: the policy "
    "masks tokens and frees nothing, so that what is safe saves nothing.",
)
ROOMY = 4  # uses: of more, the cells of a window of usual width hold two words a line


@dataclass(frozen=True)
class Use:
    name: str
    # those of the results that the model masters; all of them where it masters none
    tasks: tuple[str, ...]
    left_out: tuple[str, ...]  # those that it does not master, of the others
    contexts: int  # of the task, and of its leading measure, that has the fewest
    # of a context in the full cache, mean over its tasks; None where the full cache was not run
    tokens: float | None
    # of the measure that leads, in percent: what the full cache has, mean over its tasks
    full: float | None
    scale: str  # behind that number
    # why nothing is judged: how little the model itself has of its tasks; empty where it masters
    # one
    withheld: str

    @property
    def few(self) -> bool:  # contexts for a verdict to be trusted, whose colour is muted then
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
    # what is said of tasks with directives whose questions the model cannot answer
    unanswered: tuple[str, ...]
    # the policies that ran with other arguments than their papers' on some task
    adapted: frozenset[str]
    tolerance: float  # the loss in points below which a level is safe

    @property
    def needed(self) -> str:
        """Says how many contexts show anything to be safe; empty where each use has as many."""
        counts = [use.contexts for use in self.uses]
        return (
            contexts_line(counts, self.tolerance)
            if min(counts) < contexts_that_agree(self.tolerance / 100)
            else ""
        )

    @property
    def is_crowded(self) -> bool:
        """Tells whether a cell has room for a word or two under its verdict."""
        return len(self.uses) > ROOMY

    @property
    def is_blank(self) -> bool:
        """Tells whether no cell has a number, as where all that was asked are attacks."""
        return all(cell.is_blank for line in (*self.methods, *self.controls) for cell in line.cells)

    @property
    def few(self) -> str:
        """Warns of uses with few contexts; empty where there are enough."""
        few = [use for use in self.uses if use.few]
        if not few:
            return ""
        counts, names = [use.contexts for use in few], ", ".join(use.name for use in few)
        contexts = range_text(min(counts), max(counts))
        which = "each use" if len(few) == len(self.uses) > 1 else names
        has_verdicts = any(
            cell.verdict for line in (*self.methods, *self.controls) for cell in line.cells
        )
        hatched = ": verdicts say little, and their cells are hatched" if has_verdicts else ""
        return f"Only {contexts} context{'s' * (contexts != '1')} for {which}{hatched}"

    @property
    def reasons(self) -> list[str]:
        """Says why cells are blank, which tasks are left out, and what is said of a policy."""
        blank = blank_reasons([use.name for use in self.uses], (*self.methods, *self.controls))
        left_out = [
            f"left out of {use.name}: {', '.join(use.left_out)}, not mastered"
            for use in self.uses
            if use.left_out
        ]
        withheld = [
            f"no verdicts in {use.name}: {use.withheld}; losses are shown all the same"
            for use in self.uses
            if use.withheld
        ]
        if len(withheld) == len(self.uses):
            withheld = []  # the warning above the matrix says it of all
        return [
            *withheld,
            *blank,
            *left_out,
            *self.unanswered,
            *([ADAPTED_NOTE] if self.adapted else []),
        ]


def use_of(task: str, rows: Iterable[SummaryRow]) -> str:
    """Returns what a task stands for. A system prompt is what is obeyed or attacked: a level of its
    task that asks for neither, as the lowest does, asks for facts alone, and says nothing of
    directives and secrets."""
    use = next((use for use, tasks in USES.items() if task in tasks), task)
    if use != SYSTEM_PROMPT:
        return use
    of_task = [row for row in rows if row.task == task and row.complete]
    asked = [
        measure.value(row) is not None
        for row in of_task
        for measure in (OBEYED, MEASURES["leakage"])
    ]
    return FACTS_OF_PROMPT if of_task and not any(asked) else use


def with_use(task: str, rows: Iterable[SummaryRow]) -> str:
    """Returns the name of a task with what it stands for, such as ``instructions (system
    prompt)``."""
    use = use_of(task, rows)
    return task if use in (task, task.replace("_", " ")) else f"{task} ({use})"


def uses_of(results: Results) -> tuple[Use, ...]:
    """Returns the uses that the tasks of some results stand for, in the order of their
    declaration."""
    tasks_by_use: dict[str, list[str]] = {use: [] for use in USES}
    contexts: dict[str, int] = {}
    for row in results.rows:
        contexts[row.task] = max(contexts.get(row.task, 0), row.fewest_contexts)
    for task in results.tasks:
        tasks_by_use.setdefault(use_of(task, results.rows), []).append(task)
    full = {row.task: row for row in results.rows if row.policy == FULL}
    lengths = {task: tokens for task, row in full.items() if (tokens := KEPT_TOKENS.value(row))}
    heights, unmastered = full_by_task(results.rows), reasons_by_task(results.rows)
    uses = []
    for name, all_tasks in tasks_by_use.items():
        if tasks := [task for task in all_tasks if task in results.mastered] or all_tasks:
            left_out = tuple(task for task in all_tasks if task not in tasks)
            fewest = min(contexts[task] for task in tasks)
            means = _mean_of(lengths, tasks), _mean_of(heights, tasks)
            scale = SCALES[lead_of(full.get(tasks[0])).measures[0]]
            reasons = dict.fromkeys(unmastered[task] for task in tasks if task in unmastered)
            withheld = "; ".join(reasons) if unmastered.keys() >= {*tasks} else ""
            uses.append(Use(name, tuple(tasks), left_out, fewest, *means, scale, withheld))
    return tuple(uses)


def _mean_of(by_task: Mapping[str, float], tasks: Sequence[str]) -> float | None:
    known = [by_task[task] for task in tasks if task in by_task]
    return fmean(known) if known else None


def kind_of(results: Results) -> LevelKind:
    """Returns the kind of the levels at which the policies of some results run: that of most of
    them."""
    kinds = Counter(
        row.level_kind for row in results.rows if row.at != UNTREATED and row.task != ALL_TASKS
    )
    return KINDS[kinds.most_common(1)[0][0]] if kinds else UNTREATED.declared


def use_matrix(results: Results) -> UseMatrix:
    """Takes the safe ratios of the standings; policies stand in the order of the board."""
    uses, kind = uses_of(results), kind_of(results)
    order = _policies(results)
    standings = [
        (task, one) for (_, task), of_board in results.standings.items() for one in of_board
    ]
    safe = {(task, one.policy): one[SAFE_RATIO] for task, one in standings}
    lines = []
    for policy in (policy for policy in order if policy != FULL):
        by_use = [
            {task: safe.get((task, policy), Blank(NOT_RUN)) for task in use.tasks} for use in uses
        ]
        lines.append(UseLine(policy, tuple(_cell(by_task, kind) for by_task in by_use)))
    return UseMatrix(
        uses,
        tuple(line for line in lines if line.name not in CONTROLS),
        tuple(line for line in lines if line.name in CONTROLS),
        _masking(results),
        tuple(map(_unanswered, filter(is_obeyed_alone, results.rows))),
        frozenset[str]().union(*(board.adapted for board in results.boards.values())),
        results.tolerance,
    )


def _unanswered(full: SummaryRow) -> str:
    share = RIGHT.text(RIGHT.value(full))
    return (
        f"{full.task}: verdicts are of directives alone; of its questions the full cache has "
        f"{share} % right"
    )


def _masking(results: Results) -> frozenset[str]:
    """Finds the policies that are asked to remove tokens and free no bytes at any level."""
    full = {
        row.task: held
        for row in results.rows
        if row.policy == FULL and (held := KV_BYTES.value(row))
    }
    freed: dict[str, float] = {}
    for row in results.rows:
        held, whole = KV_BYTES.value(row), full.get(row.task)
        if row.policy != FULL and held is not None and whole and row.ratio:
            freed[row.policy] = max(freed.get(row.policy, 0.0), 1 - held / whole)
    return frozenset(policy for policy, share in freed.items() if share < A_LITTLE)


def _policies(results: Results) -> list[str]:
    board = results.boards.get((results.mode, results.shown[0]))
    lines = (*board.methods, *board.controls) if board else results.rows
    return distinct(line.name if isinstance(line, TableRow) else line.policy for line in lines)


def _cell(by_task: Mapping[str, SafeRatio | Blank], kind: LevelKind) -> UseCell:
    """Makes the cell of a use, safe in each of its tasks; levels of another ``kind`` than the usual
    one are named."""
    safe = lowest(by_task)
    if isinstance(safe, Blank):
        return UseCell.blank(safe.reason)
    verdict, level = verdict_words(safe, kind.name)
    beyond = beyond_words(replace(safe, unsafe_in=""), kind.name)
    difference = difference_text(safe.tested.difference, safe.tolerance)
    notes = (held_text(safe), more_text(safe), CHANCE if safe.may_be_chance else "")
    detail = (difference, *notes, *(" ".join(words) for words in beyond))
    return UseCell(
        f"{verdict} {level}".strip(),
        "\n".join(filter(None, detail)),
        safe.worth,
        verdict=verdict,
        level=level,
        difference=difference,
        beyond=beyond,
        notes=tuple(filter(None, notes)),
        every_level="\n".join(level_lines(safe)),
        highest_sure=safe.highest_sure if safe.kind else inf,
    )
