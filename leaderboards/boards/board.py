"""The standings, which are all derived measures of every policy of a board, and the board: one row
for each policy, with what an engineer and an author of a press look for first.

Add a derived measure by writing its file and naming it here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pandas import DataFrame

from leaderboards.aggregate.arguments import Arguments
from leaderboards.aggregate.duels import AnswerTable, MeanDifference, answer_tables
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
from leaderboards.boards.area import AREA, BEATS
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
from leaderboards.statistics.intervals import TOLERATED_LOSS
from leaderboards.statistics.text import ends_text, interval_text
from policies.declaration.levels import UNTREATED, Level, LevelKind, names_of
from policies.declaration.names import CONTROLS, FULL, TO_BEAT

# In the order of the columns of the download.
DERIVED: tuple[DerivedMeasure[Any], ...] = (RANK, AREA, SAFE_RATIO, *BEATS)
# In the order of the board, where the measures of single levels follow. The first two are in view
# on a phone.
FIRST_COLUMNS: tuple[DerivedMeasure[Any], ...] = (RANK, SAFE_RATIO, AREA, *BEATS)


def derived_definitions(chapter: str) -> tuple[Definition, ...]:
    declared = [
        (definition, names) for measure in DERIVED for definition, names in measure.definitions
    ]
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


# by mode and task, ``all`` among the tasks
Standings = Mapping[tuple[str, str], Sequence[Standing]]


def _standings(
    profiles: Profiles, mode: str, task: str, tables: Sequence[AnswerTable], tolerance: float
) -> list[Standing]:
    """Computes the standing of every policy of a board, in the order of its rows; over all tasks
    that of their mean."""
    of_policies, tasks = profiles.of_board(mode, task), profiles.tasks(mode, task)
    counted = [table for table in tables if table.task in tasks]
    against = {
        (policy, line.other): line
        for policy in of_policies
        if policy not in CONTROLS
        for line in pool_tables(counted, policy, TO_BEAT, {})
    }
    presses = profiles.presses(mode, task)
    board = BoardProfiles(of_policies, presses, against, tolerance)
    columns = {measure.name: measure.of_board(board) for measure in DERIVED}
    values = {
        policy: {name: column[policy] for name, column in columns.items()} for policy in of_policies
    }
    return [Standing(policy, values[policy], presses[policy]) for policy in of_policies]


def all_standings(
    records: DataFrame, rows: Sequence[SummaryRow], tolerance: float = TOLERATED_LOSS
) -> Standings:
    """Computes the standings of every board. ``rows`` are those that the records add up to;
    ``tolerance``: the loss in points below which a level is safe."""
    profiles = Profiles.of(records, rows)
    modes = dict.fromkeys(mode for mode, _ in profiles.rows)
    tables = {mode: answer_tables(records[records["mode"] == mode]) for mode in modes}
    by_board = {
        (mode, task): _standings(profiles, mode, task, tables[mode], tolerance)
        for mode, task in profiles.rows
    }
    for mode, task in by_board:
        if task == ALL_TASKS:
            by_task = {one: by_board[mode, one] for one in profiles.tasks(mode, task)}
            by_board[mode, task] = [
                _over_tasks(standing, by_task) for standing in by_board[mode, task]
            ]
    return by_board


def _over_tasks(mean: Standing, by_task: Mapping[str, Sequence[Standing]]) -> Standing:
    """Returns a standing over all tasks, of which some measures are no measures of the mean."""
    of_tasks = {
        task: one
        for task, of_task in by_task.items()
        for one in of_task
        if one.policy == mean.policy
    }
    values = {
        measure.name: measure.over_tasks({task: one[measure] for task, one in of_tasks.items()})
        for measure in DERIVED
        if measure.over_tasks is not None and not isinstance(mean[measure], Blank)
    }
    return replace(mean, values={**mean.values, **values})


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
    # the policies that ran with other arguments than their papers' on some task
    adapted: frozenset[str]

    @property
    def signs(self) -> dict[str, str]:
        texts = " ".join(
            cell.text for line in (*self.methods, *self.controls) for cell in line.cells
        )
        return {sign: meaning for sign, meaning in SIGN_MEANINGS.items() if sign in texts}

    @property
    def reasons(self) -> list[str]:
        return blank_reasons(
            [column.name for column in self.columns], (*self.methods, *self.controls)
        )


@dataclass(frozen=True)
class _Policy:
    standing: Standing
    rows: Mapping[Level, SummaryRow]
    full: SummaryRow | None
    cost: tuple[float, float] | None  # seconds of compression of a context, and its tokens


Boards = Mapping[tuple[str, str], Board]
Cells = Callable[[_Policy], TableCell]
Column = tuple[BoardColumn, Cells]


def boards_of(
    records: DataFrame, rows: Sequence[SummaryRow], standings: Standings | None = None
) -> Boards:
    """Makes the boards by mode and task, ``all`` among them, of the rows that the records add up
    to."""
    standings = all_standings(records, rows) if standings is None else standings
    costs, names = _costs(records), names_of(sorted({row.at for row in rows if row.policy != FULL}))
    boards = {}
    for (mode, task), of_board in standings.items():
        own = [row for row in rows if (row.mode, row.task) == (mode, task)]
        boards[mode, task] = _board(of_board, own, costs.get(task, {}), names)
    return boards


def shown_of(levels: Sequence[Level]) -> tuple[Level, ...]:
    """Returns, of ascending levels, those that a board shows: the usual ones, or else the first and
    last."""
    levels = [level for level in levels if level != UNTREATED] or levels
    usual = tuple(level for level in levels if level.value in level.declared.usual)
    return usual or tuple(dict.fromkeys((*levels[:1], *levels[-1:])))


def _costs(records: DataFrame) -> dict[str, dict[str, tuple[float, float]]]:
    """Returns the mean seconds of compression of a context and its mean tokens, by task, ``all``
    among them, and by policy. Seconds for each token would make a press cheaper by longer
    contexts."""
    by_context = ["task", "mode", "policy", "level_kind", "level", "repeat", "example_id"]
    sound = records[records["status"] == "ok"].drop_duplicates(by_context)
    columns = ["compression_seconds", "context_tokens"]
    parts = [*sound.groupby("task", observed=True), (ALL_TASKS, sound)]
    return {
        str(task): {
            str(policy): (float(seconds), float(tokens))
            for policy, seconds, tokens in of_task.groupby("policy", observed=True)[columns]
            .mean()
            .itertuples()
        }
        for task, of_task in parts
    }


def _board(
    standings: Sequence[Standing],
    rows: Sequence[SummaryRow],
    costs: Mapping[str, tuple[float, float]],
    names: Mapping[Level, str],
) -> Board:
    """Lays out a board. It leaves out columns in which no policy has a value, or the full cache
    alone."""
    full = next((row for row in rows if row.policy == FULL), None)
    policies = [
        _Policy(
            one,
            {row.at: row for row in rows if row.policy == one.policy},
            full,
            costs.get(one.policy),
        )
        for one in sorted(standings, key=_place)
    ]
    levels = sorted({row.at for row in rows if row.policy != FULL})
    kinds = list(
        {level.declared.name: level.declared for level in levels if level != UNTREATED}.values()
    )
    measures = [(measure, heading) for measure, heading in ON_BOARD if is_told(measure, rows)]
    columns = _columns(shown_of(list(names)), names, measures, kinds or [UNTREATED.declared])
    cells = {column: [cell(policy) for policy in policies] for column, cell in columns}
    counted = [
        place for place, policy in enumerate(policies) if policy.standing.policy != FULL
    ] or range(len(policies))
    shown = [
        column for column, of in cells.items() if any(not of[place].is_blank for place in counted)
    ]
    lines = [
        TableRow(policy.standing.policy, tuple(cells[column][place] for column in shown))
        for place, policy in enumerate(policies)
    ]
    return Board(
        tuple(shown),
        tuple(line for line in lines if line.name not in CONTROLS),
        tuple(line for line in lines if line.name in CONTROLS),
        frozenset(
            one.policy for one in standings if any(press.is_adapted for press in one.presses)
        ),
    )


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
    first = shown[0] if shown else UNTREATED
    at = {level: f" at {names[level]}" for level in shown} or {UNTREATED: f" at {UNTREATED}"}
    columns = [_derived_column(one, kinds) for one in FIRST_COLUMNS]
    columns += [_right_column(level, at[level]) for level in shown]
    for measure, heading in measures:
        for level in (first,) if heading.single else shown:
            columns.append(_measure_column(measure, heading, level, at[level]))
    columns.append((BoardColumn(COST, "time of the press’s own work on a context"), _cost))
    columns.append(_saved_column(first, at[first]))
    # The columns that lead stand on the board before all are asked for, those of levels at one of
    # them.
    return [
        (replace(column, leads=column.name.removesuffix(at[first]) in LEADING), cells)
        for column, cells in columns
    ]


def _derived_column(measure: DerivedMeasure[Any], kinds: Sequence[LevelKind]) -> Column:
    heading = measure.heading_of(kinds) if measure.heading_of else measure.heading
    return BoardColumn(heading, measure.line), lambda policy: measure.cell_of(
        policy.standing[measure]
    )


def _at(policy: _Policy, level: Level) -> SummaryRow | None:
    """Returns the row at a level; what has no levels, as the full cache and int4, is the same at
    every level."""
    has_levels = set(policy.rows) - {UNTREATED}
    return policy.rows.get(level if has_levels else UNTREATED)


def _measure_column(measure: Measure, heading: Heading, level: Level, at: str) -> Column:
    """Returns a measure at one level, a share in whole percent."""

    def written(row: SummaryRow, value: float) -> TableCell:
        if is_of_eviction(measure) and not level.declared.removes and not row.realised_ratio:
            return TableCell.blank(NOTHING_REMOVED)
        text = share_as_count(row, measure) or (
            f"{100 * value:z.0f}" if measure.is_share else measure.text(value)
        )
        # a difference says nothing without its interval
        if measure.paired and measure.scale is POINTS:
            ends = measure.interval(row) or (None, None)
            points = [None if one is None else measure.factor * one for one in ends]
            text, _, interval = MeanDifference(measure.factor * value, *points).text.partition(" ")
            return TableCell(text, interval, value)
        silent = UNANSWERED.value(row) if measure in (WRONG_OF_ANSWERED, HALLUCINATION) else None
        # What is not answered is not wrong either.
        detail = "" if silent is None else f"unanswered {100 * silent:.0f}"
        if measure.top is None:  # a difference, whose interval tells whether there is one at all
            detail = ends_text(
                measure.interval(row), measure.factor, 0 if measure.factor > 1 else measure.digits
            )
        return TableCell(text, detail, value)

    unit = "percent" if measure.is_share else measure.unit
    meaning = f"{heading.meaning}{at}, in {unit}"
    if measure in (WRONG_OF_ANSWERED, HALLUCINATION):
        meaning += "; below it the percentage of questions that are left unanswered"
    name = heading.name if heading.single else heading.name + at
    return BoardColumn(name, meaning), _at_level(level, measure, written)


def _right_column(level: Level, at: str) -> Column:
    def written(row: SummaryRow, value: float) -> TableCell:
        return TableCell(RIGHT.text(value), interval_text(RIGHT.interval(row), RIGHT.factor), value)

    meaning = f"right{at}, in percent, with its 95 % interval"
    return BoardColumn(f"right{at}", meaning), _at_level(level, RIGHT, written)


def _at_level(
    level: Level, measure: Measure, written: Callable[[SummaryRow, float], TableCell]
) -> Cells:
    """Makes the cells of a measure at a level, each as it is ``written``, or blank with its
    reason."""

    def cell(policy: _Policy) -> TableCell:
        row = _at(policy, level)
        value = None if row is None else measure.value(row)
        if row is None or value is None:
            return TableCell.blank(None if row is None else row.reason)
        return written(row, value)

    return cell


def _cost(policy: _Policy) -> TableCell:
    if policy.standing.policy == FULL:
        return TableCell.blank(NOT_COMPRESSED)
    if policy.cost is None:
        return TableCell.blank(None)
    seconds, tokens = policy.cost
    return TableCell(f"{1000 * seconds:.1f}", f"{tokens:,.0f} tokens", 1000 * seconds)


def _saved_column(level: Level, at: str) -> Column:
    def cell(policy: _Policy) -> TableCell:
        row = _at(policy, level)
        held, whole = (None if one is None else KV_BYTES.value(one) for one in (row, policy.full))
        if held is None or not whole:
            return TableCell.blank(None if row is None else row.reason)
        saved = 1 - held / whole
        if saved == 0 and not level.declared.removes:
            return TableCell.blank(NOTHING_REMOVED)
        return TableCell(f"{100 * saved:z.0f}", "", saved)

    meaning = f"memory that is freed{at}, in percent of the full cache’s bytes"
    return BoardColumn("bytes saved", meaning), cell
