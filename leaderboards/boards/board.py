"""The board: one row for each policy, with what an engineer and an author of a press look for first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pandas import DataFrame

from leaderboards.aggregate.arguments import Arguments, argument_rows
from leaderboards.aggregate.row import (
    ALL_TASKS,
    KV_BYTES,
    RIGHT,
    UNANSWERED,
    SummaryRow,
    is_of_eviction,
    share_as_count,
)
from leaderboards.boards.cliff import CLIFFS
from leaderboards.boards.declaration import SIGNS, TableCell, TableRow, blank_sign
from leaderboards.boards.profiles import NOT_COMPRESSED
from leaderboards.boards.rank import RANK
from leaderboards.boards.safe_ratio import SAFE_HEADINGS
from leaderboards.boards.standings import FIRST_COLUMNS, Standing, Standings, all_standings
from leaderboards.metrics import ON_BOARD, Heading, Measure
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.text import interval_text
from policies.declaration.levels import UNTREATED, Level, LevelKind, names_of
from policies.declaration.names import CONTROLS, FULL

COST = "ms / context"
NOTHING_REMOVED = "no tokens are removed: nothing is evicted, and nothing freed"
# The columns that stand on a board before all are asked for, those of levels at the first of them alone.
LEADING = (
    "rank",
    "area",
    "beats random?",
    *SAFE_HEADINGS,
    "right",
    "next tokens",
    "wrong of answered",
    "GER",
    "bytes saved",
    COST,
)
SIGN_MEANINGS = {"○": "tied with others", SIGNS["better"]: "better", SIGNS["worse"]: "worse"}


@dataclass(frozen=True)
class BoardColumn:
    """A column of a board."""

    name: str
    meaning: str
    at_level: bool = False  # whether it tells of one level
    leads: bool = False  # whether it stands on the board before all columns are asked for
    short_for: str = ""  # what its name is an abbreviation of


@dataclass(frozen=True)
class Board:
    """A row for each policy."""

    columns: tuple[BoardColumn, ...]
    methods: tuple[TableRow, ...]  # by rank, then those without one
    controls: tuple[TableRow, ...]
    shown: tuple[Level, ...]  # the levels that have columns
    names: Mapping[Level, str]  # of the levels of all boards
    presses: Mapping[str, Sequence[Arguments]]  # what each policy ran with, by task

    def cells_of(self, line: TableRow) -> Sequence[tuple[BoardColumn, TableCell]]:
        """Returns the cells of one of its lines, each with its column."""
        return list(zip(self.columns, line.cells, strict=True))

    def is_adapted(self, policy: str) -> bool:
        """Tells whether a policy ran with other arguments than its paper's somewhere."""
        return any(one.is_adapted for one in self.presses.get(policy, ()))

    def arguments_of(self, policy: str) -> list[str]:
        """Returns what a policy ran with, a line for all tasks on which that is the same."""
        return [f"{arguments} (on {tasks})" for _, arguments, tasks in argument_rows(self.presses.get(policy, ()))]

    @property
    def signs(self) -> dict[str, str]:
        """Explains the signs that stand in its cells."""
        texts = " ".join(cell.text for line in (*self.methods, *self.controls) for cell in line.cells)
        return {sign: meaning for sign, meaning in SIGN_MEANINGS.items() if sign in texts}

    @property
    def reasons(self) -> list[str]:
        """Says why cells are blank, each reason once with its columns."""
        columns_by_reason: dict[str, dict[str, None]] = {}
        for line in (*self.methods, *self.controls):
            for column, cell in zip(self.columns, line.cells, strict=True):
                if cell.reason:
                    columns_by_reason.setdefault(cell.reason, {})[column.name] = None
        return [
            f"{blank_sign(reason)} in {', '.join(columns)}: {reason}" for reason, columns in columns_by_reason.items()
        ]


@dataclass(frozen=True)
class _Policy:
    """Holds all that is known of one policy on a board."""

    standing: Standing
    rows: Mapping[Level, SummaryRow]
    full: SummaryRow | None
    cost: tuple[float, float] | None  # seconds of compression of a context, and its tokens


Boards = Mapping[tuple[str, str], Board]
Cells = Callable[[_Policy], TableCell]
Column = tuple[BoardColumn, Cells]


def boards_of(
    records: DataFrame,
    rows: Sequence[SummaryRow],
    standings: Standings | None = None,
    machine: str = "",
) -> Boards:
    """Makes the boards, by mode and task, ``all`` among them. ``rows`` are those that the records add up to, and
    ``standings`` what has been computed of them already, or nothing. ``machine``: on which times were measured."""
    standings = all_standings(records, rows) if standings is None else standings
    costs = _costs(records)
    levels = sorted({row.at for row in rows if row.policy != FULL})
    names = names_of(levels)
    return {
        (mode, task): _board(
            of_board,
            [row for row in rows if (row.mode, row.task) == (mode, task)],
            costs.get(task, {}),
            names,
            machine,
        )
        for (mode, task), of_board in standings.items()
    }


def values_of(board: Board, policy: str) -> dict[str, float | None]:
    """Returns what a policy has in the columns of single levels and of costs, which no standing knows; None where it
    or the column has no value."""
    line = next(line for line in (*board.methods, *board.controls) if line.name == policy)
    known = {column.name: cell.sort for column, cell in zip(board.columns, line.cells, strict=True)}
    return {
        column.name: known.get(column.name)
        for column, _ in _columns(board.shown, board.names)
        if column.at_level or column.name == COST
    }


def shown_of(levels: Sequence[Level]) -> tuple[Level, ...]:
    """Returns the levels that a board shows beside one another: the usual ones, or else the first and last. ``levels``:
    all, in ascending order."""
    levels = [level for level in levels if level != UNTREATED] or levels
    usual = tuple(level for level in levels if level.value in level.declared.usual)
    return usual or tuple(dict.fromkeys((*levels[:1], *levels[-1:])))


def _costs(records: DataFrame) -> dict[str, dict[str, tuple[float, float]]]:
    """Returns the mean seconds of compression of a context and its mean tokens, by task, ``all`` among them, and by
    policy, over all contexts and levels. Seconds for each token would make a press cheaper by longer contexts: a call
    takes its time however short they are."""
    sound = records[records["status"] == "ok"].drop_duplicates(
        ["task", "mode", "policy", "level_kind", "level", "repeat", "example_id"]
    )
    columns = ["compression_seconds", "context_tokens"]
    parts = [*sound.groupby("task", observed=True), (ALL_TASKS, sound)]
    return {
        str(task): {
            str(policy): (float(seconds), float(tokens))
            for policy, seconds, tokens in of_task.groupby("policy", observed=True)[columns].mean().itertuples()
        }
        for task, of_task in parts
    }


def _board(
    standings: Sequence[Standing],
    rows: Sequence[SummaryRow],
    costs: Mapping[str, tuple[float, float]],
    names: Mapping[Level, str],
    machine: str,
) -> Board:
    full = next((row for row in rows if row.policy == FULL), None)
    policies = [
        _Policy(
            standing,
            {row.at: row for row in rows if row.policy == standing.policy},
            full,
            costs.get(standing.policy),
        )
        for standing in standings
    ]
    ordered = sorted(policies, key=_place)
    ordered.sort(key=lambda policy: policy.standing.policy in CONTROLS)
    levels = sorted({row.at for row in rows if row.policy != FULL})
    kinds = list({level.declared.name: level.declared for level in levels if level != UNTREATED}.values())
    shown = shown_of(list(names))
    columns, lines = _table(_columns(shown, names, machine, kinds or [UNTREATED.declared]), ordered)
    return Board(
        columns,
        tuple(line for line in lines if line.name not in CONTROLS),
        tuple(line for line in lines if line.name in CONTROLS),
        shown,
        names,
        {standing.policy: standing.presses for standing in standings},
    )


def _table(
    columns: Sequence[Column], policies: Sequence[_Policy]
) -> tuple[tuple[BoardColumn, ...], tuple[TableRow, ...]]:
    """Lays out a board. It leaves out columns in which no policy has a value, or the full cache alone."""
    cells = [(column, [cell(policy) for policy in policies]) for column, cell in columns]
    compressed = [policy.standing.policy != FULL for policy in policies]
    counted = compressed if any(compressed) else [True] * len(policies)
    cells = [
        (column, column_cells)
        for column, column_cells in cells
        if any(cell.sort is not None for cell, counts in zip(column_cells, counted, strict=True) if counts)
    ]
    return tuple(column for column, _ in cells), tuple(
        TableRow(policy.standing.policy, tuple(column_cells[place] for _, column_cells in cells))
        for place, policy in enumerate(policies)
    )


def _place(policy: _Policy) -> float:
    rank = policy.standing[RANK]
    return float("inf") if isinstance(rank, Blank) else rank.rank


def _columns(
    shown: Sequence[Level], names: Mapping[Level, str], machine: str = "", kinds: Sequence[LevelKind] = ()
) -> list[Column]:
    """Lays out the columns of the board. ``shown``: of which columns there are one for each level; others are of the
    first. ``names``: of levels. ``kinds``: of all levels."""
    first = shown[0] if shown else UNTREATED
    at = {level: f" at {names[level]}" for level in shown} or {UNTREATED: f" at {UNTREATED}"}
    columns = [
        *(
            (
                BoardColumn(one.heading_of(kinds) if one.heading_of else one.heading, one.line),
                lambda policy, one=one: one.cell_of(policy.standing[one]),
            )
            for one in FIRST_COLUMNS
        ),
        *(_right_column(level, at[level]) for level in shown),
        *(
            _measure_column(measure, heading, level, at[level], "" if heading.single else at[level])
            for measure, heading in ON_BOARD
            for level in ((first,) if heading.single else shown)
        ),
        (BoardColumn(COST, f"time of the press’s own work on a context{f' on {machine}' if machine else ''}"), _cost),
        _saved_column("bytes saved", first, at[first]),
        (BoardColumn("questions", "in each cell"), _questions),
    ]
    # The columns that lead stand on the board before all are asked for, those of levels at one of them.
    return [(replace(column, leads=column.name.removesuffix(at[first]) in LEADING), cells) for column, cells in columns]


def _at(policy: _Policy, level: Level) -> SummaryRow | None:
    """Returns the row at a level; what has no levels, as the full cache and int4, is the same at every level."""
    has_levels = set(policy.rows) - {UNTREATED}
    return policy.rows.get(level if has_levels else UNTREATED)


def _measure_column(measure: Measure, heading: Heading, level: Level, at: str, suffix: str) -> Column:
    """Returns a measure at one level, a share in whole percent. ``suffix``: of the column's name."""

    def written(row: SummaryRow, value: float) -> TableCell:
        if is_of_eviction(measure) and not level.declared.removes and not row.realised_ratio:
            return TableCell.blank(NOTHING_REMOVED)
        text = share_as_count(row, measure) or (f"{100 * value:z.0f}" if measure.is_share else measure.text(value))
        silent = UNANSWERED.value(row) if measure in CLIFFS else None
        # What is not answered is not wrong either.
        return TableCell(text, "" if silent is None else f"unanswered {100 * silent:.0f}", value)

    unit = "percent" if measure.is_share else measure.unit
    meaning = f"{heading.meaning}{at}, in {unit}"
    if measure in CLIFFS:
        meaning += "; below it the percentage of questions that are left unanswered"
    short_for = measure.title.lower() if heading.name.isupper() and heading.name != measure.title else ""
    return BoardColumn(f"{heading.name}{suffix}", meaning, at_level=True, short_for=short_for), _at_level(
        level, measure, written
    )


def _right_column(level: Level, at: str) -> Column:
    def written(row: SummaryRow, value: float) -> TableCell:
        return TableCell(RIGHT.text(value), interval_text(RIGHT.interval(row), RIGHT.factor), value)

    meaning = f"right{at}, in percent, with its 95 % interval"
    return BoardColumn(f"right{at}", meaning, at_level=True), _at_level(level, RIGHT, written)


def _at_level(level: Level, measure: Measure, written: Callable[[SummaryRow, float], TableCell]) -> Cells:
    """Makes the cells of a measure at a level, each as it is ``written``, or blank with its reason."""

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


def _saved_column(name: str, level: Level, at: str) -> Column:
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
    return BoardColumn(name, meaning, at_level=True), cell


def _questions(policy: _Policy) -> TableCell:
    counts = [row.n for row in policy.rows.values()]
    return TableCell(f"{max(counts):,}", "", max(counts)) if counts else TableCell.blank(None)
