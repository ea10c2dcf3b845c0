"""Makes the tables of the pages as sheets: every number with its interval, how many answers it is
of, and why there is none.

A sheet's columns are named as the fields that they come from. ``leaderboards/metrics`` and
``leaderboards/pages/definitions.py`` say what each means.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from leaderboards.aggregate.attacks import AttackCell
from leaderboards.aggregate.duels import COMPARED, POINTS, Contest, Duel
from leaderboards.aggregate.gate import GateRow
from leaderboards.aggregate.outcomes import OpponentVerdict
from leaderboards.aggregate.pooled import Pooled
from leaderboards.aggregate.row import SummaryRow
from leaderboards.boards.board import DERIVED, Boards, Standings
from leaderboards.downloads.sheets import Sheet
from leaderboards.statistics.paired_difference import MeanDifference
from policies.declaration.levels import level_words

if TYPE_CHECKING:
    # For types alone: claims import studies, which import downloads.
    from leaderboards.claims.verdict import Judgement

# What a data set is ranked by, where it is told several scores; of all of them more is better.
HEADLINES = (
    "string_match",
    "accuracy",
    "score",
    "exact_match",
    "f1",
    "rouge-l",
    "rougeL",
    "rouge1",
)
# The columns of a pooled difference.
POOLED = (
    *("policy", "other", "measure", "tasks", "contexts", "unit", "value", "other_value"),
    *("difference", "p", "smallest", "verdict"),
)


@dataclass(frozen=True)
class Imported:
    """Holds the results of some evaluations of one press at one ratio, in one setting."""

    dataset: str
    model: str
    setting: str  # what of the configuration makes another setting of the same data set and model
    press: str
    ratio: float
    arguments: str  # how the press was built
    # By name, as they were told there; None where there is no number.
    scores: tuple[tuple[str, float | None], ...]
    tasks: int  # that the scores are the means over
    predictions: int
    answers: int  # predictions that came with a gold answer
    f1: float | None  # in percent, computed here from the answers
    em: float | None
    # Entries of the configuration that kvbench does not know; they are in the setting.
    unknown: tuple[str, ...] = ()

    @property
    def headline(self) -> tuple[str, float | None]:
        """Returns the name and the value of the score that ranks the data set."""
        scores = dict(self.scores)
        # Of none of the usual names the first that has a value.
        for name in (*HEADLINES, *scores):
            if scores.get(name) is not None:
                return name, scores[name]
        return "", None


def cells_sheet(rows: Sequence[SummaryRow]) -> Sheet:
    """Lists every measure of each cell."""
    plain = [row.model_dump() for row in rows]
    title = "Every measure of each task, policy and level"
    return Sheet.of("cells", title, plain, tuple(SummaryRow.model_fields))


def board_sheet(standings: Standings, boards: Boards) -> Sheet:
    """Lists what each policy comes to on each board over its levels; single levels are in the sheet
    of cells."""
    rows = []
    for (mode, task), of_board in standings.items():
        adapted = boards[mode, task].adapted
        for standing in of_board:
            policy = standing.policy
            row: dict[str, Any] = {"mode": mode, "task": task, "policy": policy}
            for measure in DERIVED:
                row |= measure.download(standing[measure])
            row["adapted"] = policy in adapted
            rows.append(row)
    return Sheet.of("board", "The boards: a row for each policy", rows)


def attacks_sheet(cells: Sequence[AttackCell]) -> Sheet:
    """Lists what each attack gets; rows without an ``attack`` are over all attacks of their
    kind."""
    rows = []
    for cell in cells:
        row = {**vars(cell)}
        # Each goes out as it is and comes back in columns of its own.
        del row["share"], row["elsewhere"]
        row["share"] = cell.share.mean
        row["share_low"] = cell.share.low
        row["share_high"] = cell.share.high
        row["others_done"] = cell.elsewhere and cell.elsewhere[0]
        row["reading"] = cell.reading
        rows.append(row)
    title = "What attacks get: answers that hold a protected text word by word"
    return Sheet.of("attacks", title, rows)


def duels_sheet(name: str, duels: Iterable[Duel], unmastered: Mapping[str, str]) -> Sheet:
    """Returns the cells of comparisons; those of tasks that the model cannot do have a reason in
    place of verdicts."""
    rows = []
    for duel in duels:
        is_judged = duel.task not in unmastered
        row: dict[str, Any] = {
            "policy": duel.policy,
            "other": duel.other,
            "task": duel.task,
            "level": duel.level,
            "questions": duel.questions,
            "contexts": duel.contexts,
        }
        row |= _side_columns(duel)
        row["unit"] = POINTS
        row |= _contest_columns(duel.contests, is_judged)
        row["verdict"] = duel.verdict if is_judged else None
        row["not_mastered"] = unmastered.get(duel.task)
        rows.append(row)
    kinds = {f"{measure}_difference": MeanDifference for measure in COMPARED}
    return Sheet.of(name, "Verdicts, cell by cell", rows, kinds=kinds)


def _contest_columns(contests: Mapping[str, Contest], is_judged: bool) -> dict[str, Any]:
    """Lists each measure with the interval of the corrected test; p and verdict where the cell
    ``is_judged``."""
    columns: dict[str, Any] = {}
    for name in COMPARED:
        value = other_value = difference = p = verdict = None
        contest = contests.get(name)
        if contest:
            value, other_value = contest.sides
            difference = contest.difference
            if is_judged:
                p, verdict = contest.p, contest.verdict
        columns[f"{name}_value"] = value
        columns[f"{name}_other_value"] = other_value
        columns[f"{name}_difference"] = difference
        columns[f"{name}_p"] = p
        columns[f"{name}_verdict"] = verdict
    return columns


def outcomes_sheet(name: str, outcomes: Iterable[OpponentVerdict]) -> Sheet:
    """Makes the sheet of the one verdict for each opponent, with the level and the difference that
    stand for it."""
    rows = []
    for outcome in outcomes:
        row = _pooled_columns(outcome.deciding)
        row["level"] = outcome.level
        row["verdict"] = outcome.verdict
        row["area_verdict"] = outcome.area.verdict if outcome.area else None
        row["sentence"] = outcome.sentence
        rows.append(row)
    return Sheet.of(name, "The verdict for each opponent", rows)


def means_sheet(name: str, rows: Iterable[Pooled]) -> Sheet:
    """Makes the sheet of the mean of tasks at each level, with which a comparison begins."""
    plain = []
    for row in rows:
        columns = _pooled_columns(row)
        columns["level"] = row.level
        columns |= _side_columns(row)
        plain.append(columns)
    return Sheet.of(name, "Mean of tasks at each level", plain)


def gate_sheet(rows: Iterable[GateRow]) -> Sheet:
    """Makes the sheet of what a gate reads: a row for each named opponent and level."""
    plain = []
    for gate_row in rows:
        row = gate_row.row
        columns = {
            "policy": row.policy,
            "other": row.other,
            "level": row.level,
            **_side_columns(row),
            "unit": POINTS,
            "difference": row.difference,
            "verdict": row.verdict,
            "max_loss": gate_row.max_loss,
            "fails_if_worse": gate_row.fails_if_worse,
            "passes": gate_row.passes,
            "is_sure": gate_row.is_sure,
        }
        plain.append(columns)
    return Sheet.of("gate", "What the gate reads", plain, kinds={"difference": MeanDifference})


def _side_columns(row: Duel | Pooled) -> dict[str, Any]:
    """Returns at which level either was run, and the bytes that it holds there, in percent of the
    full cache."""
    level, other_level = row.run_at
    held, other_held = row.bytes_held
    return {
        "policy_level": level_words(level),
        "other_level": level_words(other_level),
        "bytes_held": held,
        "other_bytes_held": other_held,
    }


def pooled_sheet(name: str, pooled: Iterable[Pooled]) -> Sheet:
    """Makes the sheet of the areas over all levels, which has no row where there is a single
    one."""
    plain = [_pooled_columns(row) for row in pooled]
    kinds = {"difference": MeanDifference}
    return Sheet.of(name, "Areas over all levels", plain, POOLED, kinds=kinds)


def _pooled_columns(row: Pooled) -> dict[str, Any]:
    value, other_value = row.sides
    return {
        "policy": row.policy,
        "other": row.other,
        "measure": row.title,
        "tasks": len(row.tasks),
        "contexts": row.contexts,
        "unit": POINTS,
        "value": value,
        "other_value": other_value,
        "difference": row.difference,
        "p": row.p,
        "smallest": row.smallest,
        "verdict": row.verdict,
    }


def imported_sheet(rows: Sequence[Imported]) -> Sheet:
    """Lists the results that another tool computed."""
    records = []
    for row in rows:
        record = asdict(row)
        record["scores"] = dict(row.scores)
        record["source"] = "imported from kvpress"
        records.append(record)
    return Sheet.of("imported", "Imported from kvpress", records)


def register_rows(judgements: "Sequence[Judgement]") -> list[dict[str, Any]]:
    """Returns a row for each statistic of each claim."""
    return [_register_row(judgement) for judgement in judgements]


def _register_row(judgement: "Judgement") -> dict[str, Any]:
    claim, estimate = judgement.claim, judgement.estimate
    mean = low = high = contexts = None
    if estimate is not None:
        mean, low, high, contexts = estimate.mean, estimate.low, estimate.high, estimate.n
    return {
        "claim": claim.identifier,
        "text": claim.text.title,
        "words": claim.words,
        "reported": claim.reported,
        "statistic": claim.statistic,
        "claim_part": judgement.part,
        "side": claim.side,
        "threshold": claim.threshold,
        "measured": mean,
        "measured_low": low,
        "measured_high": high,
        "measured_n": contexts,
        "claim_p": judgement.p,
        "claim_verdict": judgement.verdict,
        "precondition_met": judgement.is_met,
        "why": judgement.why,
    }


def register_sheet(judgements: "Sequence[Judgement]") -> Sheet:
    """Makes the sheet of a register of claims."""
    return Sheet.of(
        "claims", "Every statistic of every claim, with its verdict", register_rows(judgements)
    )
