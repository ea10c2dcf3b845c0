"""The board: one row for each policy, with what an engineer and an author of a press look for first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pandas import DataFrame

from leaderboards.aggregate.measures import ABSTENTION, F1, HALLUCINATION, KV_BYTES, written_interval
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.aggregate.standings import TO_BEAT, Against, Found, Standing, all_standings
from leaderboards.metrics import ON_BOARD, Heading, Measure
from leaderboards.statistics.resampling import Blank
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import CONTROLS, FULL

COST = "ms / 1,000 tokens"
SIGNS = {"better": "▲", "worse": "▼", "tied": ""}


@dataclass(frozen=True)
class BoardCell:
    """``sort``: the value, None if blank, and then ``reason`` says why. ``tone``: better, worse or nothing."""

    text: str
    detail: str = ""
    sort: float | None = None
    tone: str = ""
    reason: str = ""


@dataclass(frozen=True)
class BoardLine:
    policy: str
    cells: tuple[BoardCell, ...]


@dataclass(frozen=True)
class BoardColumn:
    """``at_level``: it tells of one of the levels that stand on a board unless another is chosen."""

    name: str
    meaning: str
    at_level: bool


@dataclass(frozen=True)
class BoardLevel:
    """Holds what stands on the board instead of the columns ``at_level`` when a level is chosen, for each of its
    lines."""

    level: Level
    columns: tuple[BoardColumn, ...]
    lines: tuple[BoardLine, ...]


@dataclass(frozen=True)
class Board:
    """``methods`` and ``controls``: methods by rank, then those without one. ``levels``: in ascending order, each with
    the lines of both in this order."""

    columns: tuple[BoardColumn, ...]
    methods: tuple[BoardLine, ...]
    controls: tuple[BoardLine, ...]
    levels: tuple[BoardLevel, ...]
    shown: tuple[Level, ...]

    @property
    def reasons(self) -> list[str]:
        """Why cells are blank, each once with the columns that they are in."""
        found: dict[str, dict[str, None]] = {}
        for line in (*self.methods, *self.controls):
            for column, cell in zip(self.columns, line.cells, strict=True):
                if cell.reason:
                    found.setdefault(cell.reason, {})[column.name] = None
        return [f"– in {', '.join(columns)}: {reason}" for reason, columns in found.items()]


@dataclass(frozen=True)
class _Policy:
    """All that is known of one policy on a board. ``seconds``: of compression for a token."""

    standing: Standing
    rows: Mapping[Level, SummaryRow]
    full: SummaryRow | None
    seconds: float | None


Boards = Mapping[tuple[str, str], Board]
Cells = Callable[[_Policy], BoardCell]
Column = tuple[BoardColumn, Cells]


def boards_of(records: DataFrame, rows: Sequence[SummaryRow], found: Found | None = None) -> Boards:
    """By mode and task, ``all`` among them. ``rows`` are those that the records add up to, and ``found`` what has been
    computed of them already, or nothing."""
    found = all_standings(records, rows) if found is None else found
    seconds = _seconds(records)
    shown = shown_of(sorted({row.at for row in rows if row.policy != FULL}))
    return {
        (mode, task): _board(
            of_board,
            [row for row in rows if (row.mode, row.task) == (mode, task)],
            seconds.get(task, {}),
            shown,
        )
        for (mode, task), of_board in found.items()
    }


def values_of(board: Board, policy: str) -> dict[str, float | None]:
    """Returns what a policy has in the columns of single levels and of costs, which no standing knows; None where it
    or the column has no value."""
    line = next(line for line in (*board.methods, *board.controls) if line.policy == policy)
    known = {column.name: cell.sort for column, cell in zip(board.columns, line.cells, strict=True)}
    return {
        column.name: known.get(column.name)
        for column, _ in _columns(board.shown)
        if column.at_level or column.name == COST
    }


def shown_of(levels: Sequence[Level]) -> tuple[Level, ...]:
    """Returns the levels that a board shows beside one another: the usual ones, or else the first and last. ``levels``:
    all, in ascending order."""
    usual = tuple(level for level in levels if level.value in level.declared.usual)
    return usual or tuple(dict.fromkeys((*levels[:1], *levels[-1:])))


def _seconds(records: DataFrame) -> dict[str, dict[str, float]]:
    """Mean seconds of compression for a token of context, by task, ``all`` among them, and by policy, over all contexts
    and levels."""
    sound = records[records["status"] == "ok"].drop_duplicates(
        ["task", "mode", "policy", "level_kind", "level", "repeat", "example_id"]
    )
    sums = sound.groupby(["task", "policy"], observed=True)[["compression_seconds", "context_tokens"]].sum()
    by_task = sums["compression_seconds"] / sums["context_tokens"]
    sums = sums.groupby("policy", observed=True).sum()
    by_policy = sums["compression_seconds"] / sums["context_tokens"]
    found = {str(task): own.droplevel("task").to_dict() for task, own in by_task.groupby("task", observed=True)}
    return {**found, ALL_TASKS: by_policy.to_dict()}


def _board(
    found: Sequence[Standing],
    rows: Sequence[SummaryRow],
    seconds: Mapping[str, float],
    shown: tuple[Level, ...],
) -> Board:
    full = next((row for row in rows if row.policy == FULL), None)
    policies = [
        _Policy(
            standing,
            {row.at: row for row in rows if row.policy == standing.policy},
            full,
            seconds.get(standing.policy),
        )
        for standing in found
    ]
    ordered = sorted(policies, key=_place)
    ordered.sort(key=lambda policy: policy.standing.policy in CONTROLS)
    columns, lines = _table(_columns(shown), ordered)
    levels = sorted({row.at for row in rows if row.policy != FULL})
    return Board(
        columns,
        tuple(line for line in lines if line.policy not in CONTROLS),
        tuple(line for line in lines if line.policy in CONTROLS),
        tuple(BoardLevel(level, *_table(_at_level(level), ordered)) for level in levels),
        shown,
    )


def _table(
    columns: Sequence[Column], policies: Sequence[_Policy]
) -> tuple[tuple[BoardColumn, ...], tuple[BoardLine, ...]]:
    """Columns in which nobody has a value are left out, and so are those that the full cache alone would have."""
    cells = [(column, [cell(policy) for policy in policies]) for column, cell in columns]
    compressed = [policy.standing.policy != FULL for policy in policies]
    counted = compressed if any(compressed) else [True] * len(policies)
    cells = [
        (column, own)
        for column, own in cells
        if any(cell.sort is not None for cell, counts in zip(own, counted, strict=True) if counts)
    ]
    return tuple(column for column, _ in cells), tuple(
        BoardLine(policy.standing.policy, tuple(own[place] for _, own in cells))
        for place, policy in enumerate(policies)
    )


def _place(policy: _Policy) -> float:
    rank = policy.standing.rank
    return float("inf") if isinstance(rank, Blank) else rank.rank


def _columns(shown: Sequence[Level]) -> list[Column]:
    """``shown``: of which columns there are one for each level; others are of the first."""
    first = shown[0] if shown else UNTREATED
    return [
        _column("rank", "by the area under F1, with its 95 % interval", _rank),
        _column("F1 area", "mean F1 over the realised ratio, percent, with its 95 % interval", _area),
        *(_against_column(control) for control in TO_BEAT),
        _column(
            "safe ratio",
            "up to which the loss of F1 stays below 5 points, also at the upper end of its interval",
            _safe,
        ),
        _column(
            "cliff",
            "where hallucination rises fastest, with its 95 % interval; ? where it may not rise",
            _cliff,
        ),
        *(
            _measure_column(measure, heading, level, heading.name if heading.single else f"{heading.name} at {level}")
            for measure, heading in ON_BOARD
            for level in ((first,) if heading.single else shown)
        ),
        _column(COST, "time of compression", _cost),
        _saved_column("bytes saved", first),
        _column("questions", "in each cell", _questions),
    ]


def _at_level(level: Level) -> list[Column]:
    return [
        _f1_column(level),
        *(_measure_column(measure, heading, level, f"{heading.name} at {level}") for measure, heading in ON_BOARD),
        _saved_column(f"bytes saved at {level}", level),
    ]


def _column(name: str, meaning: str, cells: Cells, at_level: bool = False) -> Column:
    return BoardColumn(name, meaning, at_level), cells


def _blank(reason: str | None) -> BoardCell:
    return BoardCell("–", reason=reason or "not measured")


def _rank(policy: _Policy) -> BoardCell:
    rank = policy.standing.rank
    if isinstance(rank, Blank):
        return _blank(rank.reason)
    # The first is the best for sorting from the top, as the highest is elsewhere.
    interval = "" if rank.low is None else f"{rank.low}–{rank.high}"
    return BoardCell(f"{rank.rank}{' ○' if rank.tied else ''}", interval, -rank.rank)


def _area(policy: _Policy) -> BoardCell:
    area = policy.standing.area
    if isinstance(area, Blank):
        return _blank(area.reason)
    low, high = area.f1.low, area.f1.high
    interval = "" if low is None or high is None else written_interval((low, high))
    return BoardCell(f"{area.f1.mean:.1f}", interval, area.f1.mean)


def _safe(policy: _Policy) -> BoardCell:
    safe = policy.standing.safe_ratio
    if isinstance(safe, Blank):
        return _blank(safe.reason)
    return BoardCell(f"{safe.ratio:g}" if safe.ratio else "none", "", safe.ratio)


def _cliff(policy: _Policy) -> BoardCell:
    cliff = policy.standing.cliff
    if isinstance(cliff, Blank):
        return _blank(cliff.reason)
    interval = "" if cliff.low is None or cliff.high is None else written_interval((cliff.low, cliff.high), digits=2)
    return BoardCell(f"{cliff.ratio:.2f}{'' if cliff.is_clear else ' ?'}", interval, cliff.ratio)


def _at(policy: _Policy, level: Level) -> SummaryRow | None:
    """The full cache is the same at every level."""
    return policy.full if policy.standing.policy == FULL else policy.rows.get(level)


def _measure_column(measure: Measure, heading: Heading, level: Level, name: str) -> Column:
    """A measure at one level, a share in whole percent."""

    def cell(policy: _Policy) -> BoardCell:
        row = _at(policy, level)
        value = None if row is None else measure.value(row)
        if row is None or value is None:
            return _blank(None if row is None else row.reason)
        text = f"{100 * value:.0f}" if measure.is_share else measure.text(value)
        silent = ABSTENTION.value(row) if measure is HALLUCINATION else None
        # What is not answered is not hallucinated either.
        return BoardCell(text, "" if silent is None else f"silent {100 * silent:.0f}", value)

    unit = "percent" if measure.is_share else measure.unit
    meaning = f"{heading.meaning} at {level}, {unit}"
    if measure is HALLUCINATION:
        meaning += "; below it those that were abstained from"
    return _column(name, meaning, cell, at_level=True)


def _f1_column(level: Level) -> Column:
    def cell(policy: _Policy) -> BoardCell:
        row = _at(policy, level)
        value = None if row is None else F1.value(row)
        if row is None or value is None:
            return _blank(None if row is None else row.reason)
        return BoardCell(F1.text(value), written_interval(F1.interval(row)), value)

    return _column(f"F1 at {level}", f"at {level}, percent, with its 95 % interval", cell, at_level=True)


def _cost(policy: _Policy) -> BoardCell:
    if policy.seconds is None:
        return _blank(None)
    milliseconds = 1e6 * policy.seconds  # of a thousand tokens
    return BoardCell(f"{milliseconds:.1f}", "", milliseconds)


def _saved_column(name: str, level: Level) -> Column:
    def cell(policy: _Policy) -> BoardCell:
        row = _at(policy, level)
        held, whole = (None if one is None else KV_BYTES.value(one) for one in (row, policy.full))
        if held is None or not whole:
            return _blank(None if row is None else row.reason)
        saved = 1 - held / whole
        return BoardCell(f"{100 * saved:.0f}", "", saved)

    meaning = f"of what an allocator holds for the full cache, at {level}, percent"
    return _column(name, meaning, cell, at_level=True)


def _against_column(control: str) -> Column:
    def cell(policy: _Policy) -> BoardCell:
        found = policy.standing.against.get(control)
        if not isinstance(found, Against):
            return _blank(found.reason if found else "a control")
        verdict = found.verdict
        return BoardCell(
            f"{SIGNS[verdict]} {verdict}".strip(), found.difference.written(), found.difference.mean, verdict
        )

    meaning = "F1 area minus that of the control over the same realised ratios, in points; corrected by Holm’s method"
    return _column(f"beats {control}?", meaning, cell)


def _questions(policy: _Policy) -> BoardCell:
    counts = [row.n for row in policy.rows.values()]
    return BoardCell(f"{max(counts):,}", "", max(counts)) if counts else _blank(None)
