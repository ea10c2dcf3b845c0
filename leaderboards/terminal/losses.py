"""The table of what each policy loses against the full cache, which a run prints below its
scores."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.boards.board import Standings
from leaderboards.boards.safe_ratio import SAFE_RATIO, difference_text
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.safe_ratio import TOLERATED_LOSS, LevelLoss, SafeRatio
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
        """Returns the loss at the level of the row, if there is one."""
        if not isinstance(self.safe, Blank):
            for loss in self.safe.levels:
                if loss.level == self.row.at.value:
                    return loss
        return None

    def plain(self, tolerance: float) -> tuple[object, ...]:
        """Returns the values of ``FIELDS``, unrounded."""
        row, loss, safe = self.row, self.loss, self.safe
        identity = (row.task, row.policy, row.at.kind, row.at.value, row.mode)
        if loss is None or isinstance(safe, Blank):
            reason = safe.reason if isinstance(safe, Blank) else row.reason
            return *identity, None, None, None, None, tolerance, None, None, None, reason
        difference = loss.difference
        verdict = None if safe.withheld else loss.verdict
        numbers = (difference.mean, difference.low, difference.high, tolerance, loss.contexts)
        task = loss.task or row.task
        return *identity, verdict, *numbers, task, safe.held, safe.withheld or None


def loss_table(
    rows: Sequence[SummaryRow], standings: Standings, tolerance: float = TOLERATED_LOSS
) -> ResultTable:
    """Makes the table: for programs each policy, task and level, and for people the worst task of
    each policy. ``standings`` are those of the rows."""
    safe_ratios = {}
    for (mode, task), of_board in standings.items():
        for standing in of_board:
            if standing.policy != FULL:
                safe_ratios[mode, task, standing.policy] = standing[SAFE_RATIO]
    judged = []
    for row in rows:
        safe = safe_ratios.get((row.mode, row.task, row.policy))
        # The full cache has none: it loses nothing against itself.
        if safe is not None:
            judged.append(_Judged(row, safe))
    plain = [of_level.plain(tolerance) for of_level in judged]
    columns = [Column(name) for name in FIELDS]
    return ResultTable("losses", columns, plain, view=_view(judged, tolerance))


def _view(judged: Sequence[_Judged], tolerance: float) -> ResultTable | Text:
    """Lays out the policies over all tasks, or over the only one, in 80 columns."""
    tasks = {of_level.row.task for of_level in judged}
    # The mean over tasks is one of them.
    several = len(tasks) > 2
    is_single = len(tasks - {ALL_TASKS}) == 1
    shown = []
    for of_level in judged:
        is_mean = of_level.row.task == ALL_TASKS
        if (is_mean and several) or (not is_mean and is_single):
            shown.append(of_level)
    by_policy: dict[str, list[_Judged]] = {}
    for of_level in shown:
        if of_level.loss is not None:
            by_policy.setdefault(of_level.row.policy, []).append(of_level)
    if not by_policy:
        reasons = [of_level.safe.reason for of_level in shown if isinstance(of_level.safe, Blank)]
        reason = reasons[0] if reasons else "no other policy was run"
        return Text(f"No loss against the full cache: {reason}", "italic")
    unmastered = [of_level.row.not_mastered for of_level in shown if of_level.row.not_mastered]
    about = f"safe: its lower end is above −{tolerance:g}"
    if unmastered:
        about = f"no verdicts: {unmastered[0]}"
    title = f"Points against the full cache, 95 % interval; {about}"
    columns = (
        Column("policy", of_sentences=True, style=_style_of_policy),
        Column("at"),
        Column("verdict", style=lambda verdict: STYLES.get(verdict, "dim")),
        Column("difference", right=True),
        Column("task", "worst task" if several else "task", of_sentences=True),
        Column("contexts", "n", right=True),
    )
    lines = []
    for policy in sorted(by_policy, key=lambda policy: policy in CONTROLS):
        name = policy  # stands in the first line of its policy
        for of_level in _telling(by_policy[policy]):
            lines.append((name, *_line(of_level, tolerance)))
            name = ""
    return ResultTable("losses", columns, lines, title)


def _style_of_policy(name: str) -> str:
    return "dim" if name in CONTROLS else ""


def _telling(judged: Sequence[_Judged]) -> list[_Judged]:
    """Returns the levels that tell of a policy: of many the highest that is safe, the one after it,
    and the lowest that is unsafe."""
    in_order = sorted(judged, key=lambda of_level: of_level.row.at)
    if len(in_order) <= FEW_LEVELS:
        return in_order
    verdicts = []
    for of_level in in_order:
        if isinstance(of_level.safe, SafeRatio) and of_level.safe.withheld:
            return [in_order[0], in_order[-1]]  # which would decide is a verdict too
        verdicts.append(of_level.loss.verdict if of_level.loss else "")
    count = 0
    while count < len(verdicts) and verdicts[count] == "safe":
        count += 1
    # The last of the safe ones in a row, and the first that is not.
    places = {max(0, count - 1), min(count, len(verdicts) - 1)}
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
    if level.declared.removes:
        return f"{level.value:g}"
    return f"{level.kind} {level.value:g}"
