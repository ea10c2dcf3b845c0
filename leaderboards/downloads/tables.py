"""Makes the tables of the pages as sheets: every number with its interval, how many answers it is
of, and why there is none.

A sheet's columns are named as the fields that they come from. ``leaderboards/metrics`` and
``leaderboards/pages/definitions.py`` say what each means.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from leaderboards.aggregate.attacks import AttackCell
from leaderboards.aggregate.duels import COMPARED, POINTS, Contest, Duel, MeanDifference
from leaderboards.aggregate.gate import GateRow
from leaderboards.aggregate.outcomes import OpponentVerdict
from leaderboards.aggregate.pooled import Pooled
from leaderboards.aggregate.row import SummaryRow
from leaderboards.boards.board import DERIVED, Boards, Standings
from leaderboards.claims.verdict import Judgement
from leaderboards.downloads.sheets import Sheet
from policies.declaration.levels import level_words

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
    # by name, as they were told there; None where there is no number
    scores: tuple[tuple[str, float | None], ...]
    tasks: int  # that the scores are the means over
    predictions: int
    answers: int  # predictions that came with a gold answer
    f1: float | None  # in percent, computed here from the answers
    em: float | None
    # entries of the configuration that kvbench does not know; they are in the setting
    unknown: tuple[str, ...] = ()

    @property
    def headline(self) -> tuple[str, float | None]:
        scores = dict(self.scores)
        names = [name for name in HEADLINES if scores.get(name) is not None]
        names += [name for name, value in self.scores if value is not None]
        return (names[0], scores[names[0]]) if names else ("", None)


def cells_sheet(rows: Sequence[SummaryRow]) -> Sheet:
    plain, columns = [row.model_dump() for row in rows], tuple(SummaryRow.model_fields)
    return Sheet.of("cells", "Every measure of each task, policy and level", plain, columns)


def board_sheet(standings: Standings, boards: Boards) -> Sheet:
    """Lists what each policy comes to on each board over its levels; single levels are in the sheet
    of cells."""
    rows = [
        {
            **{"mode": mode, "task": task, "policy": one.policy},
            **{
                name: value
                for measure in DERIVED
                for name, value in measure.download(one[measure]).items()
            },
            "adapted": one.policy in boards[mode, task].adapted,
        }
        for (mode, task), of_board in standings.items()
        for one in of_board
    ]
    return Sheet.of("board", "The boards: a row for each policy", rows)


def attacks_sheet(cells: Sequence[AttackCell]) -> Sheet:
    """Lists what each attack gets; rows without an ``attack`` are over all attacks of their
    kind."""
    rows = [
        {
            **{
                name: value
                for name, value in vars(cell).items()
                if name not in ("share", "elsewhere")
            },
            "share": cell.share.mean,
            "share_low": cell.share.low,
            "share_high": cell.share.high,
            "others_done": cell.elsewhere and cell.elsewhere[0],
            "reading": cell.reading,
        }
        for cell in cells
    ]
    return Sheet.of(
        "attacks", "What attacks get: answers that hold a protected text word by word", rows
    )


def duels_sheet(name: str, duels: Iterable[Duel], unmastered: Mapping[str, str]) -> Sheet:
    """Returns the cells of comparisons; those of tasks that the model cannot do have a reason in
    place of verdicts."""
    names = ("policy", "other", "task", "level", "questions", "contexts")
    rows = [
        {
            **{name: getattr(duel, name) for name in names},
            **_sides_of(duel),
            "unit": POINTS,
            **_contests_of(duel.contests, is_judged=duel.task not in unmastered),
            "verdict": None if duel.task in unmastered else duel.verdict,
            "not_mastered": unmastered.get(duel.task),
        }
        for duel in duels
    ]
    return Sheet.of(
        name,
        "Verdicts, cell by cell",
        rows,
        kinds={f"{one}_difference": MeanDifference for one in COMPARED},
    )


def _contests_of(contests: Mapping[str, Contest], is_judged: bool) -> dict[str, Any]:
    """Lists each measure with the interval of the corrected test; p and verdict where the cell
    ``is_judged``."""
    parts = ("value", "other_value", "difference", "p", "verdict")
    columns: dict[str, Any] = {}
    for name in COMPARED:
        one = contests.get(name)
        judged = (one.p, one.verdict) if one and is_judged else (None, None)
        values = (*one.sides, one.difference, *judged) if one else (None,) * len(parts)
        columns |= {f"{name}_{part}": value for part, value in zip(parts, values, strict=True)}
    return columns


def outcomes_sheet(name: str, outcomes: Iterable[OpponentVerdict]) -> Sheet:
    """Makes the sheet of the one verdict for each opponent, with the level and the difference that
    stand for it."""
    rows = [
        {
            **_pooled_columns(one.deciding),
            "level": one.level,
            "verdict": one.verdict,
            "area_verdict": one.area.verdict if one.area else None,
            "sentence": one.sentence,
        }
        for one in outcomes
    ]
    return Sheet.of(name, "The verdict for each opponent", rows)


def means_sheet(name: str, rows: Iterable[Pooled]) -> Sheet:
    """Makes the sheet of the mean of tasks at each level, with which a comparison begins."""
    plain = [{**_pooled_columns(one), "level": one.level, **_sides_of(one)} for one in rows]
    return Sheet.of(name, "Mean of tasks at each level", plain)


def gate_sheet(rows: Iterable[GateRow]) -> Sheet:
    """Makes the sheet of what a gate reads: a row for each named opponent and level."""
    plain = [
        {
            "policy": one.row.policy,
            "other": one.row.other,
            "level": one.row.level,
            **_sides_of(one.row),
            "unit": POINTS,
            "difference": one.row.difference,
            "verdict": one.row.verdict,
            "max_loss": one.max_loss,
            "fails_if_worse": one.fails_if_worse,
            "passes": one.passes,
            "is_sure": one.is_sure,
        }
        for one in rows
    ]
    return Sheet.of("gate", "What the gate reads", plain, kinds={"difference": MeanDifference})


def _sides_of(one: Duel | Pooled) -> dict[str, Any]:
    """Returns at which level either was run, and the bytes that it holds there, in percent of the
    full cache."""
    levels, held = map(level_words, one.run_at), one.bytes_held
    names = ("policy_level", "other_level", "bytes_held", "other_bytes_held")
    return dict(zip(names, (*levels, *held), strict=True))


def pooled_sheet(name: str, pooled: Iterable[Pooled]) -> Sheet:
    """Makes the sheet of the areas over all levels, which has no row where there is a single
    one."""
    plain = [_pooled_columns(one) for one in pooled]
    return Sheet.of(
        name, "Areas over all levels", plain, POOLED, kinds={"difference": MeanDifference}
    )


def _pooled_columns(one: Pooled) -> dict[str, Any]:
    values = (
        *(one.policy, one.other, one.title, len(one.tasks), one.contexts, POINTS, *one.sides),
        *(one.difference, one.p, one.smallest, one.verdict),
    )
    return dict(zip(POOLED, values, strict=True))


def imported_sheet(rows: Sequence[Imported]) -> Sheet:
    records = [
        {**asdict(row), "scores": dict(row.scores), "source": "imported from kvpress"}
        for row in rows
    ]
    return Sheet.of("imported", "Imported from kvpress", records)


def register_rows(judgements: Sequence[Judgement]) -> list[dict[str, Any]]:
    return [
        {
            "claim": one.claim.identifier,
            "text": one.claim.text.title,
            "words": one.claim.words,
            "reported": one.claim.reported,
            "statistic": one.claim.statistic,
            "claim_part": one.part,
            "side": one.claim.side,
            "threshold": one.claim.threshold,
            "measured": None if one.estimate is None else one.estimate.mean,
            "measured_low": None if one.estimate is None else one.estimate.low,
            "measured_high": None if one.estimate is None else one.estimate.high,
            "measured_n": None if one.estimate is None else one.estimate.n,
            "claim_p": one.p,
            "claim_verdict": one.verdict,
            "precondition_met": one.is_met,
            "why": one.why,
        }
        for one in judgements
    ]


def register_sheet(judgements: Sequence[Judgement]) -> Sheet:
    return Sheet.of(
        "claims", "Every statistic of every claim, with its verdict", register_rows(judgements)
    )
