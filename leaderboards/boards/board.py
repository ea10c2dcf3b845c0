"""The standings, which are all derived measures of every policy of a board, and the board: one row
for each policy, with what an engineer and an author of a press look for first.

Add a derived measure by writing its file and naming it here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pandas import DataFrame

from leaderboards.aggregate.arguments import Arguments
from leaderboards.aggregate.duels import AnswerTable, answer_tables
from leaderboards.aggregate.pooled import pool_tables
from leaderboards.aggregate.row import (
    ALL_TASKS,
    HALLUCINATION,
    KV_BYTES,
    RIGHT,
    UNANSWERED,
    WRONG_OF_ANSWERED,
    SummaryRow,
    is_of_eviction,
    is_told,
    share_as_count,
)
from leaderboards.boards.area_under_curve import AREA, BEATS
from leaderboards.boards.declaration import (
    SIGNS,
    BoardProfiles,
    DerivedMeasure,
    TableCell,
    TableRow,
    Value,
    blank_reasons,
)
from leaderboards.boards.profiles import NOT_COMPRESSED, Profiles
from leaderboards.boards.rank import RANK
from leaderboards.boards.safe_ratio import SAFE_HEADINGS, SAFE_RATIO
from leaderboards.metrics import ON_BOARD, Heading, Measure
from leaderboards.metrics.declaration import POINTS, Definition, definitions_in
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.paired_difference import MeanDifference
from leaderboards.statistics.safe_ratio import TOLERATED_LOSS
from leaderboards.statistics.text import ends_text, interval_text
from policies.declaration.levels import UNTREATED, Level, LevelKind, name_levels
from policies.declaration.names import CONTROLS, FULL, TO_BEAT

# In the order of the columns of the download.
DERIVED: tuple[DerivedMeasure[Any], ...] = (RANK, AREA, SAFE_RATIO, *BEATS)
# In the order of the board, where the measures of single levels follow. The first two are in view
# on a phone.
FIRST_COLUMNS: tuple[DerivedMeasure[Any], ...] = (RANK, SAFE_RATIO, AREA, *BEATS)


def derived_definitions(chapter: str) -> tuple[Definition, ...]:
    """Returns the definitions of a chapter that belong to derived measures."""
    declared: list[tuple[Definition, tuple[str, ...]]] = []
    for measure in DERIVED:
        declared += measure.definitions
    return definitions_in(chapter, declared)


@dataclass(frozen=True)
class Standing:
    """Holds what one policy comes to, in one mode, at one task or over ``all``: ``standing[AREA]``
    is its area, or a :class:`~leaderboards.statistics.bootstrap.Blank` that says why it has
    none."""

    policy: str
    values: Mapping[str, Any]  # by name of a derived measure
    presses: Sequence[Arguments] = ()  # what it ran with, by task

    def __getitem__(self, measure: DerivedMeasure[Value]) -> Value:
        value: Value = self.values[measure.name]
        return value


# By mode and task, ``all`` among the tasks.
Standings = Mapping[tuple[str, str], Sequence[Standing]]


def _standings(
    profiles: Profiles, mode: str, task: str, tables: Sequence[AnswerTable], tolerance: float
) -> list[Standing]:
    """Computes the standing of every policy of a board, in the order of its rows; over all tasks
    that of their mean."""
    by_policy = profiles.board_profiles(mode, task)
    tasks = profiles.tasks(mode, task)
    tables_of_tasks = [table for table in tables if table.task in tasks]
    # Against both controls at once, since Holm's method corrects over the two.
    against = {}
    for policy in by_policy:
        if policy not in CONTROLS:
            for line in pool_tables(tables_of_tasks, policy, TO_BEAT, {}):
                against[policy, line.other] = line
    presses = profiles.presses(mode, task)
    board = BoardProfiles(by_policy, presses, against, tolerance)
    values: dict[str, dict[str, Any]] = {policy: {} for policy in by_policy}
    for measure in DERIVED:
        for policy, value in measure.of_board(board).items():
            values[policy][measure.name] = value
    standings = []
    for policy in by_policy:
        standings.append(Standing(policy, values[policy], presses[policy]))
    return standings


def all_standings(
    records: DataFrame, rows: Sequence[SummaryRow], tolerance: float = TOLERATED_LOSS
) -> Standings:
    """Computes the standings of every board. ``rows`` are those that the records add up to;
    ``tolerance``: the loss in points below which a level is safe."""
    profiles = Profiles.of(records, rows)
    tables: dict[str, list[AnswerTable]] = {}
    by_board = {}
    for mode, task in profiles.rows:
        # The tables of a mode serve each of its tasks and their mean.
        if mode not in tables:
            tables[mode] = answer_tables(records[records["mode"] == mode])
        by_board[mode, task] = _standings(profiles, mode, task, tables[mode], tolerance)
    # A second loop, as the standing over all tasks looks up those of each.
    for mode, task in by_board:
        if task != ALL_TASKS:
            continue
        by_task = {}
        for name in profiles.tasks(mode, task):
            by_task[name] = by_board[mode, name]
        over_tasks = []
        for standing in by_board[mode, task]:
            over_tasks.append(_over_tasks(standing, by_task))
        by_board[mode, task] = over_tasks
    return by_board


def _over_tasks(mean: Standing, by_task: Mapping[str, Sequence[Standing]]) -> Standing:
    """Returns a standing over all tasks, of which some measures are no measures of the mean."""
    standings = {}
    for task, of_task in by_task.items():
        for standing in of_task:
            if standing.policy == mean.policy:
                standings[task] = standing
    values = dict(mean.values)
    for measure in DERIVED:
        # What is blank over all tasks stays so, even where a single task has a value.
        if measure.over_tasks is None or isinstance(mean[measure], Blank):
            continue
        of_tasks = {}
        for task, standing in standings.items():
            of_tasks[task] = standing[measure]
        values[measure.name] = measure.over_tasks(of_tasks)
    return replace(mean, values=values)


COST = "ms / context"
NOTHING_REMOVED = "no tokens are removed: nothing is evicted, and nothing freed"
# The columns that stand on a board before all are asked for, those of levels at the first of them
# alone.
LEADING = {
    *(
        "rank",
        "area",
        "beats random?",
        *SAFE_HEADINGS,
        "right",
        "next tokens",
        "leaks more",
        "NLL rise",
    ),
    *("wrong of answered", "GER", "bytes saved", COST),
}
SIGN_MEANINGS = {"○": "tied with others", SIGNS["better"]: "better", SIGNS["worse"]: "worse"}


@dataclass(frozen=True)
class BoardColumn:
    name: str
    meaning: str
    leads: bool = False  # whether it stands on the board before all columns are asked for


@dataclass(frozen=True)
class Board:
    """A row for each policy."""

    columns: tuple[BoardColumn, ...]
    methods: tuple[TableRow, ...]  # by rank, then those without one
    controls: tuple[TableRow, ...]
    # The policies that ran with other arguments than their papers' on some task.
    adapted: frozenset[str]

    @property
    def signs(self) -> dict[str, str]:
        """Returns the signs that stand on the board, each with its meaning."""
        signs = {}
        for sign, meaning in SIGN_MEANINGS.items():
            for line in self.lines:
                if any(sign in cell.text for cell in line.cells):
                    signs[sign] = meaning
        return signs

    @property
    def reasons(self) -> list[str]:
        """Says why cells are blank."""
        names = [column.name for column in self.columns]
        return blank_reasons(names, self.lines)

    @property
    def lines(self) -> tuple[TableRow, ...]:
        """Returns the rows of methods, then those of controls."""
        return *self.methods, *self.controls


@dataclass(frozen=True)
class _Policy:
    standing: Standing
    rows: Mapping[Level, SummaryRow]
    full: SummaryRow | None
    cost: tuple[float, float] | None  # seconds of compression of a context, and its tokens


Boards = Mapping[tuple[str, str], Board]
Cells = Callable[[_Policy], TableCell]
Column = tuple[BoardColumn, Cells]


def make_boards(
    records: DataFrame, rows: Sequence[SummaryRow], standings: Standings | None = None
) -> Boards:
    """Makes the boards by mode and task, ``all`` among them, of the rows that the records add up
    to."""
    if standings is None:
        standings = all_standings(records, rows)
    costs = _costs(records)
    levels = set()
    rows_by_board: dict[tuple[str, str], list[SummaryRow]] = {}
    for row in rows:
        rows_by_board.setdefault((row.mode, row.task), []).append(row)
        if row.policy != FULL:
            levels.add(row.at)
    # Of the levels of all boards, so that a level has the same name on each.
    names = name_levels(sorted(levels))
    boards = {}
    for (mode, task), of_board in standings.items():
        of_rows = rows_by_board.get((mode, task), [])
        boards[mode, task] = _board(of_board, of_rows, costs.get(task, {}), names)
    return boards


def shown_levels(levels: Sequence[Level]) -> tuple[Level, ...]:
    """Returns, of ascending levels, those that a board shows: the usual ones, or else the first and
    last."""
    treated = [level for level in levels if level != UNTREATED] or levels
    # A run may have asked for none of the usual levels.
    usual = tuple(level for level in treated if level.value in level.declared.usual)
    if usual:
        return usual
    ends = (*treated[:1], *treated[-1:])
    return tuple(dict.fromkeys(ends))


def _costs(records: DataFrame) -> dict[str, dict[str, tuple[float, float]]]:
    """Returns the mean seconds of compression of a context and its mean tokens, by task, ``all``
    among them, and by policy. Seconds for each token would make a press cheaper by longer
    contexts."""
    by_context = ["task", "mode", "policy", "level_kind", "level", "repeat", "example_id"]
    # The seconds are of a context and stand in each of its answers: contexts with more questions
    # would count for more.
    sound = records[records["status"] == "ok"].drop_duplicates(by_context)
    columns = ["compression_seconds", "context_tokens"]
    costs: dict[str, dict[str, tuple[float, float]]] = {}
    for task, of_task in (*sound.groupby("task", observed=True), (ALL_TASKS, sound)):
        means = of_task.groupby("policy", observed=True)[columns].mean()
        of_policies = costs.setdefault(str(task), {})
        for policy, seconds, tokens in means.itertuples():
            of_policies[str(policy)] = (float(seconds), float(tokens))
    return costs


def _board(
    standings: Sequence[Standing],
    rows: Sequence[SummaryRow],
    costs: Mapping[str, tuple[float, float]],
    names: Mapping[Level, str],
) -> Board:
    """Lays out a board. It leaves out columns in which no policy has a value, or the full cache
    alone."""
    policies = _policies(standings, rows, costs)
    measures = [(measure, heading) for measure, heading in ON_BOARD if is_told(measure, rows)]
    cells: dict[str, list[TableCell]] = {policy.standing.policy: [] for policy in policies}
    # The full cache alone gives no column, as most of its cells say nothing; on a board of nothing
    # else it has to.
    only_full = list(cells) == [FULL]
    shown = []
    for column, make_cell in _columns(shown_levels(list(names)), names, measures, _kinds(rows)):
        of_column = {}
        is_shown = False
        for policy in policies:
            name, cell = policy.standing.policy, make_cell(policy)
            # Kept until all policies were asked, since a column stands for all of them or for none.
            of_column[name] = cell
            if not cell.is_blank and (name != FULL or only_full):
                is_shown = True
        if is_shown:
            shown.append(column)
            for name, cell in of_column.items():
                cells[name].append(cell)
    methods, controls = [], []
    for name, of_policy in cells.items():
        line = TableRow(name, tuple(of_policy))
        if name in CONTROLS:
            controls.append(line)
        else:
            methods.append(line)
    adapted = set()
    for standing in standings:
        if any(press.is_adapted for press in standing.presses):
            adapted.add(standing.policy)
    return Board(tuple(shown), tuple(methods), tuple(controls), frozenset(adapted))


def _policies(
    standings: Sequence[Standing],
    rows: Sequence[SummaryRow],
    costs: Mapping[str, tuple[float, float]],
) -> list[_Policy]:
    """Returns the policies by rank, then those without one."""
    full = next((row for row in rows if row.policy == FULL), None)
    by_policy: dict[str, dict[Level, SummaryRow]] = {}
    for row in rows:
        by_policy.setdefault(row.policy, {})[row.at] = row
    policies = []
    for standing in sorted(standings, key=_place):
        name = standing.policy
        policies.append(_Policy(standing, by_policy.get(name, {}), full, costs.get(name)))
    return policies


def _kinds(rows: Sequence[SummaryRow]) -> list[LevelKind]:
    """Returns the kinds of the levels of some rows, each once, in the order of the levels."""
    levels = set()
    for row in rows:
        if row.policy != FULL and row.at != UNTREATED:
            levels.add(row.at)
    kinds = {}
    for level in sorted(levels):
        kinds[level.declared.name] = level.declared
    return list(kinds.values()) or [UNTREATED.declared]


def _place(standing: Standing) -> float:
    rank = standing[RANK]
    return float("inf") if isinstance(rank, Blank) else rank.rank


def _columns(
    shown: Sequence[Level],
    names: Mapping[Level, str],
    measures: Sequence[tuple[Measure, Heading]],
    kinds: Sequence[LevelKind],
) -> list[Column]:
    """Lays out the columns; of some measures there is one for each of the ``shown`` levels, of
    others at the first."""
    at = {level: f" at {names[level]}" for level in shown} or {UNTREATED: f" at {UNTREATED}"}
    first = next(iter(at))
    columns = []
    for derived in FIRST_COLUMNS:
        columns.append(_derived_column(derived, kinds))
    for level in shown:
        columns.append(_right_column(level, at[level]))
    for measure, heading in measures:
        for level in (first,) if heading.single else shown:
            columns.append(_measure_column(measure, heading, level, at[level]))
    columns.append((BoardColumn(COST, "time of the press’s own work on a context"), _cost))
    columns.append(_saved_column(first, at[first]))
    marked = []
    for column, cells in columns:
        # Columns of levels lead at the first of them alone.
        leads = column.name.removesuffix(at[first]) in LEADING
        marked.append((replace(column, leads=leads), cells))
    return marked


def _derived_column(measure: DerivedMeasure[Any], kinds: Sequence[LevelKind]) -> Column:
    heading = measure.heading
    if measure.heading_of:
        heading = measure.heading_of(kinds)
    column = BoardColumn(heading, measure.line)
    return column, lambda policy: measure.board_cell(policy.standing[measure])


def _at(policy: _Policy, level: Level) -> SummaryRow | None:
    """Returns the row at a level; what has no levels, as the full cache and int4, is the same at
    every level."""
    has_levels = any(row_level != UNTREATED for row_level in policy.rows)
    return policy.rows.get(level if has_levels else UNTREATED)


def _measure_column(measure: Measure, heading: Heading, level: Level, at: str) -> Column:
    """Returns a measure at one level, a share in whole percent."""
    counts_wrong = measure in (WRONG_OF_ANSWERED, HALLUCINATION)

    def write(row: SummaryRow, value: float) -> TableCell:
        # A 0 would read as a merit of what evicts nothing by its nature.
        if is_of_eviction(measure) and not level.declared.removes and not row.realised_ratio:
            return TableCell.blank(NOTHING_REMOVED)
        if measure.paired and measure.scale is POINTS:
            return _difference_cell(row, measure, value)
        text = share_as_count(row, measure)
        if not text:
            if measure.is_share:
                text = f"{100 * value:z.0f}"
            else:
                text = measure.text(value)
        detail = ""
        silent = UNANSWERED.value(row)
        if counts_wrong and silent is not None:  # what is not answered is not wrong either
            detail = f"unanswered {100 * silent:.0f}"
        if measure.top is None:  # a difference, whose interval tells whether there is one at all
            digits = 0 if measure.factor > 1 else measure.digits
            detail = ends_text(measure.interval(row), measure.factor, digits)
        return TableCell(text, detail, value)

    unit = "percent" if measure.is_share else measure.unit
    meaning = f"{heading.meaning}{at}, in {unit}"
    if counts_wrong:
        meaning += "; below it the percentage of questions that are left unanswered"
    name = heading.name
    if not heading.single:
        name += at
    return BoardColumn(name, meaning), _at_level(level, measure, write)


def _difference_cell(row: SummaryRow, measure: Measure, value: float) -> TableCell:
    """Makes the cell of a difference in points, which says nothing without its interval."""
    low, high = measure.interval(row) or (None, None)
    if low is not None and high is not None:
        low, high = measure.factor * low, measure.factor * high
    difference = MeanDifference(measure.factor * value, low, high)
    text, _, interval = difference.text.partition(" ")
    return TableCell(text, interval, value)


def _right_column(level: Level, at: str) -> Column:
    def write(row: SummaryRow, value: float) -> TableCell:
        interval = interval_text(RIGHT.interval(row), RIGHT.factor)
        return TableCell(RIGHT.text(value), interval, value)

    meaning = f"right{at}, in percent, with its 95 % interval"
    return BoardColumn(f"right{at}", meaning), _at_level(level, RIGHT, write)


def _at_level(
    level: Level, measure: Measure, write: Callable[[SummaryRow, float], TableCell]
) -> Cells:
    """Returns a function that makes the cells of a measure at a level, each as it is written by
    ``write``, or blank with its reason."""

    def cell(policy: _Policy) -> TableCell:
        row = _at(policy, level)
        if row is None:
            return TableCell.blank(None)
        value = measure.value(row)
        if value is None:
            return TableCell.blank(row.reason)
        return write(row, value)

    return cell


def _cost(policy: _Policy) -> TableCell:
    if policy.standing.policy == FULL:
        return TableCell.blank(NOT_COMPRESSED)
    if policy.cost is None:
        return TableCell.blank(None)
    seconds, tokens = policy.cost
    milliseconds = 1000 * seconds
    return TableCell(f"{milliseconds:.1f}", f"{tokens:,.0f} tokens", milliseconds)


def _saved_column(level: Level, at: str) -> Column:
    def cell(policy: _Policy) -> TableCell:
        row = _at(policy, level)
        if row is None:
            return TableCell.blank(None)
        held = KV_BYTES.value(row)
        whole = KV_BYTES.value(policy.full) if policy.full else None
        if held is None or not whole:
            return TableCell.blank(row.reason)
        saved = 1 - held / whole
        # The same here: what is damaged or rewritten was never meant to save anything.
        if saved == 0 and not level.declared.removes:
            return TableCell.blank(NOTHING_REMOVED)
        return TableCell(f"{100 * saved:z.0f}", "", saved)

    meaning = f"memory that is freed{at}, in percent of the full cache’s bytes"
    return BoardColumn("bytes saved", meaning), cell
