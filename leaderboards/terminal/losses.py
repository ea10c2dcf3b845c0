"""The table of what each policy loses against the full cache, which a run prints below its
scores."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.boards.board import Standings
from leaderboards.boards.safe_ratio import SAFE_RATIO, LevelLoss, SafeRatio, difference_text
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.intervals import TOLERATED_LOSS
from leaderboards.terminal.result_table import Column, ResultTable
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import CONTROLS, FULL

FEW_LEVELS = 2  # of a policy, which are all printed; of more those that decide
STYLES = {"safe": "green", "open": "yellow", "unsafe": "red"}
FIELDS = (
    *(
        "task",
        "policy",
        "kind",
        "level",
        "mode",
        "verdict",
        "difference",
        "low",
        "high",
        "tolerance",
    ),
    *("contexts", "worst_task", "bytes_held", "reason"),
)


@dataclass(frozen=True)
class _Judged:
    """Holds one policy at one level of one task, or over all tasks: its loss, or why there is
    none."""

    row: SummaryRow
    safe: SafeRatio | Blank

    @property
    def loss(self) -> LevelLoss | None:
        if isinstance(self.safe, Blank):
            return None
        return next((one for one in self.safe.levels if one.level == self.row.at.value), None)

    def plain(self, tolerance: float) -> tuple[object, ...]:
        """Returns the values of ``FIELDS``, unrounded."""
        loss, safe = self.loss, self.safe
        identity = (
            self.row.task,
            self.row.policy,
            self.row.at.kind,
            self.row.at.value,
            self.row.mode,
        )
        if loss is None or isinstance(safe, Blank):
            reason = safe.reason if isinstance(safe, Blank) else self.row.reason
            return (*identity, None, None, None, None, tolerance, None, None, None, reason)
        difference = loss.difference
        verdict = None if safe.withheld else loss.verdict
        numbers = difference.mean, difference.low, difference.high, tolerance, loss.contexts
        return (
            *identity,
            verdict,
            *numbers,
            loss.task or self.row.task,
            safe.held,
            safe.withheld or None,
        )


def loss_table(
    rows: Sequence[SummaryRow], standings: Standings, tolerance: float = TOLERATED_LOSS
) -> ResultTable:
    """Makes the table: for programs each policy, task and level, and for people the worst task of
    each policy. ``standings`` are those of the rows."""
    by_policy = {
        (mode, task, one.policy): one[SAFE_RATIO]
        for (mode, task), of_board in standings.items()
        for one in of_board
        if one.policy != FULL
    }
    keys = ((row, (row.mode, row.task, row.policy)) for row in rows)
    judged = [_Judged(row, by_policy[key]) for row, key in keys if key in by_policy]
    plain = [one.plain(tolerance) for one in judged]
    return ResultTable(
        "losses", [Column(name) for name in FIELDS], plain, view=_view(judged, tolerance)
    )


def _view(judged: Sequence[_Judged], tolerance: float) -> ResultTable | Text:
    """Lays out the policies over all tasks, or over the only one, in 80 columns."""
    tasks = {one.row.task for one in judged}
    shown = [one for one in judged if one.row.task == ALL_TASKS or len(tasks - {ALL_TASKS}) == 1]
    shown = [one for one in shown if (one.row.task != ALL_TASKS or len(tasks) > 2)]
    of_policies: dict[str, list[_Judged]] = {}
    for one in shown:
        if one.loss is not None:
            of_policies.setdefault(one.row.policy, []).append(one)
    if not of_policies:
        reason = next(
            (one.safe.reason for one in shown if isinstance(one.safe, Blank)),
            "nothing was compressed",
        )
        return Text(f"No loss against the full cache: {reason}", "italic")
    title = (
        f"Points against the full cache, 95 % interval; safe: its lower end is above −{tolerance:g}"
    )
    unmastered = next((one.row.not_mastered for one in shown if one.row.not_mastered), None)
    if unmastered:
        title = f"Points against the full cache, 95 % interval; no verdicts: {unmastered}"
    columns = (
        Column("policy", of_sentences=True, style=lambda name: "dim" if name in CONTROLS else ""),
        Column("at"),
        Column("verdict", style=lambda verdict: STYLES.get(verdict, "dim")),
        Column("difference", right=True),
        Column("task", "worst task" if len(tasks) > 2 else "task", of_sentences=True),
        Column("contexts", "n", right=True),
    )
    lines = []
    for policy, of_policy in sorted(of_policies.items(), key=lambda one: one[0] in CONTROLS):
        for place, one in enumerate(_telling(of_policy)):
            lines.append((policy if place == 0 else "", *_line(one, tolerance)))
    return ResultTable("losses", columns, lines, title)


def _telling(judged: Sequence[_Judged]) -> list[_Judged]:
    """Returns the levels that tell of a policy: of many the highest that is safe, the one after it,
    and the lowest that is unsafe."""
    in_order = sorted(judged, key=lambda one: one.row.at)
    if len(in_order) <= FEW_LEVELS:
        return in_order
    if any(isinstance(one.safe, SafeRatio) and one.safe.withheld for one in in_order):
        return [in_order[0], in_order[-1]]  # which would decide is a verdict too
    verdicts = [one.loss.verdict if one.loss else "" for one in in_order]
    safe = next(
        (place for place, verdict in enumerate(verdicts) if verdict != "safe"), len(verdicts)
    )
    places = {max(0, safe - 1), min(safe, len(verdicts) - 1)}
    if "unsafe" in verdicts:
        places.add(verdicts.index("unsafe"))
    return [in_order[place] for place in sorted(places)]


def _line(judged: _Judged, tolerance: float) -> tuple[str, str, str, str, int | None]:
    loss, safe = judged.loss, judged.safe
    if loss is None or isinstance(safe, Blank):
        return "", "", "", "", None
    verdict = "" if safe.withheld else loss.verdict
    return (
        _level_text(judged.row.at, safe),
        verdict,
        difference_text(loss.difference, tolerance),
        loss.task or judged.row.task,
        loss.contexts,
    )


def _level_text(level: Level, safe: SafeRatio) -> str:
    if level == UNTREATED:
        return "" if safe.held is None else f"{safe.held:.0f} % held"
    return f"{level.value:g}" if level.declared.removes else f"{level.kind} {level.value:g}"
