"""The board: one row for each policy, with what an engineer and an author of a press look for first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pandas import DataFrame

from leaderboards.measures import written_interval
from leaderboards.profiles import Profiles
from leaderboards.resampling import Blank
from leaderboards.row import CONTROLS, FULL, SummaryRow
from leaderboards.standings import TO_BEAT, Against, Standing, standings

SHOWN = (0.5, 0.9)  # ratios at which hallucination and GER stand on the board
MIDDLE = SHOWN[0]
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
class Board:
    """``columns``: name and what it means. ``methods`` and ``controls``: methods by rank, then those without one."""

    columns: tuple[tuple[str, str], ...]
    methods: tuple[BoardLine, ...]
    controls: tuple[BoardLine, ...]


@dataclass(frozen=True)
class _Policy:
    """All that is known of one policy on a board. ``rows``: by asked ratio. ``seconds``: of compression for a token."""

    standing: Standing
    rows: Mapping[float, SummaryRow]
    full: SummaryRow | None
    seconds: float | None


Boards = Mapping[tuple[str, str], Board]
Column = tuple[str, str, Callable[[_Policy], BoardCell]]


def boards_of(records: DataFrame, rows: Sequence[SummaryRow], seed: int = 0) -> Boards:
    """By mode and task, ``all`` among them. ``rows`` are those that the records add up to."""
    profiles = Profiles.of(records, rows, seed)
    seconds = _seconds(records)
    return {
        (mode, task): _board(
            standings(profiles, mode, task),
            [row for row in rows if (row.mode, row.task) == (mode, task)],
            seconds,
        )
        for mode, task in profiles.boards
    }


def _seconds(records: DataFrame) -> dict[str, float]:
    """Mean seconds of compression for a token of context, by policy, over all its contexts and levels."""
    sound = records[records["status"] == "ok"].drop_duplicates(
        ["task", "mode", "policy", "ratio", "budget", "example_id"]
    )
    sums = sound.groupby("policy", observed=True)[["compression_seconds", "context_tokens"]].sum()
    return {str(policy): float(one["compression_seconds"] / one["context_tokens"]) for policy, one in sums.iterrows()}


def _board(
    found: Sequence[Standing],
    rows: Sequence[SummaryRow],
    seconds: Mapping[str, float],
) -> Board:
    full = next((row for row in rows if row.policy == FULL), None)
    policies = [
        _Policy(
            standing,
            {row.asked.value: row for row in rows if row.policy == standing.policy and row.asked.kind == "ratio"},
            full,
            seconds.get(standing.policy),
        )
        for standing in found
    ]
    columns = [column for column in _columns() if any(column[2](policy).sort is not None for policy in policies)]
    lines = {
        policy.standing.policy: BoardLine(policy.standing.policy, tuple(cell(policy) for _, _, cell in columns))
        for policy in sorted(policies, key=_place)
    }
    return Board(
        tuple((name, meaning) for name, meaning, _ in columns),
        tuple(line for name, line in lines.items() if name not in CONTROLS),
        tuple(line for name, line in lines.items() if name in CONTROLS),
    )


def _place(policy: _Policy) -> float:
    rank = policy.standing.rank
    return float("inf") if isinstance(rank, Blank) else rank.rank


def _columns() -> list[Column]:
    return [
        ("rank", "by the area under F1, with its 95 % interval", _rank),
        ("F1 area", "mean F1 over the realised ratio, percent, with its 95 % interval", _area),
        *(_against_column(control) for control in TO_BEAT),
        ("safe ratio", "up to which the loss of F1 stays below 5 points, also at the upper end of its interval", _safe),
        ("cliff", "where hallucination rises fastest, with its 95 % interval", _cliff),
        *(_rate_column(ratio) for ratio in SHOWN),
        *(_ger_column(ratio) for ratio in SHOWN),
        ("leakage", f"of protected directives at {MIDDLE:g}, percent", _leakage),
        ("obeyed", f"directives obeyed at {MIDDLE:g}, percent", _obeyed),
        ("ms / 1,000 tokens", "time of compression", _cost),
        ("bytes saved", f"of what an allocator holds for the full cache, at {MIDDLE:g}, percent", _saved),
        ("questions", "in each cell", _questions),
    ]


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
    return BoardCell(f"{cliff.ratio:.2f}", interval, cliff.ratio)


def _share(row: SummaryRow | None, value: Callable[[SummaryRow], float | None]) -> BoardCell:
    """A share at one ratio, in percent."""
    found = None if row is None else value(row)
    if row is None or found is None:
        return _blank(None if row is None else row.reason)
    return BoardCell(f"{100 * found:.0f}", "", found)


def _at(policy: _Policy, ratio: float) -> SummaryRow | None:
    """The full cache is the same at every ratio."""
    return policy.full if policy.standing.policy == FULL else policy.rows.get(ratio)


def _rate_column(ratio: float) -> Column:
    return (
        f"hallucinated at {ratio:g}",
        "percent of questions",
        lambda policy: _share(_at(policy, ratio), lambda row: row.hallucination_rate),
    )


def _ger_column(ratio: float) -> Column:
    return (
        f"GER at {ratio:g}",
        "percent of the answer’s tokens that survive nowhere",
        lambda policy: _share(_at(policy, ratio), lambda row: row.ger),
    )


def _leakage(policy: _Policy) -> BoardCell:
    return _share(_at(policy, MIDDLE), lambda row: row.leakage)


def _obeyed(policy: _Policy) -> BoardCell:
    return _share(_at(policy, MIDDLE), lambda row: row.directives_obeyed)


def _cost(policy: _Policy) -> BoardCell:
    if policy.seconds is None:
        return _blank(None)
    milliseconds = 1e6 * policy.seconds  # of a thousand tokens
    return BoardCell(f"{milliseconds:.1f}", "", milliseconds)


def _saved(policy: _Policy) -> BoardCell:
    row = _at(policy, MIDDLE)
    if row is None or row.kv_bytes is None or policy.full is None or not policy.full.kv_bytes:
        return _blank(None if row is None else row.reason)
    saved = 1 - row.kv_bytes / policy.full.kv_bytes
    return BoardCell(f"{100 * saved:.0f}", "", saved)


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
    return f"beats {control}?", meaning, cell


def _questions(policy: _Policy) -> BoardCell:
    counts = [row.n for row in policy.rows.values()]
    return BoardCell(f"{max(counts):,}", "", max(counts)) if counts else _blank(None)
