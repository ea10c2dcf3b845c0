"""Computes what scorers of one's own say: the mean of each policy and level, and the difference from
the full cache."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet, file_name
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.statistics.intervals import difference_interval, mean_interval
from leaderboards.studies.declaration import StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import (
    full_last,
    level_table,
    over_levels,
    without_full,
)
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

KEY = ["task", "question_id", "policy", "level_kind", "level", "repeat"]
Place = tuple[str, Level]


@dataclass(frozen=True)
class ScoredTask:
    """What one scorer says of one task, by policy and level."""

    task: str
    scorer: str
    description: str
    low: float
    high: float
    better: str
    means: Mapping[Place, Estimate]
    losses: Mapping[Place, Estimate]  # differences from the full cache; a loss is negative

    @classmethod
    def of(cls, task: str, rows: DataFrame) -> "ScoredTask":
        """Averages the rows of one scorer and one task, each with its context."""
        first = rows.iloc[0]
        low, high = float(first["low"]), float(first["high"])
        scaled = rows.assign(share=(rows["score"] - low) / (high - low))
        by_place: dict[Place, DataFrame] = {}
        for (policy, kind, level), cell in scaled.groupby(KEY[2:5], sort=False):
            by_place[str(policy), Level(str(kind), float(level))] = cell
        span = high - low
        means, losses = {}, {}
        full = by_place.get((FULL, UNTREATED))
        for place, cell in by_place.items():
            shares = _by_context(cell, "share")
            ends = mean_interval(shares) if len(shares) > 1 else None
            means[place] = _estimate(shares, ends, span, low)
            if full is not None and place != (FULL, UNTREATED):
                losses[place] = _difference(cell, full, span)
        return cls(
            task,
            str(first["scorer"]),
            str(first["description"]),
            low,
            high,
            str(first["better"]),
            means,
            losses,
        )

    @property
    def title(self) -> str:
        return f"{self.scorer}: {self.task}"

    @property
    def meaning(self) -> str:
        """Says what its numbers are."""
        ends = f"from {self.low:g} to {self.high:g}, {self.better} is better"
        words = f"{self.description.rstrip('.')}: " if self.description else ""
        return f"{words}{ends}. Under each mean stands its difference from the full cache."

    def rows(self) -> Iterator[dict[str, object]]:
        """Yields a row of the download for each policy and level."""
        for (policy, level), mean in self.means.items():
            yield {
                "task": self.task,
                "scorer": self.scorer,
                "policy": policy,
                "level": level,
                "score": mean,
                "loss": self.losses.get((policy, level)),
                "lowest": self.low,
                "highest": self.high,
                "better": self.better,
            }


def build_content(study_input: StudyInput) -> StudyContent:
    """Makes a section for each scorer and task, and the download of all."""
    contexts = study_input.records[["task", "question_id", "example_id"]].drop_duplicates()
    scores = study_input.tables["scores"].merge(contexts, on=["task", "question_id"])
    scored = []
    for (task, _), rows in scores.groupby(["task", "scorer"], sort=False):
        scored.append(ScoredTask.of(str(task), rows))
    rows_of_all: list[dict[str, object]] = []
    for of_task in scored:
        rows_of_all += of_task.rows()
    kinds = {"score": Estimate, "loss": Estimate}
    sheet = Sheet.of("scores", "Scores of one's own", rows_of_all, kinds=kinds)
    return StudyContent([_section(of_task, study_input) for of_task in scored], sheets=[sheet])


def _section(scored: ScoredTask, study_input: StudyInput) -> StudySection:
    styles = full_last([*study_input.policies, *(policy for policy, _ in scored.means)])
    texts: dict[Place, str] = {}
    for place, mean in scored.means.items():
        texts[place] = _text(mean)
        if (loss := scored.losses.get(place)) is not None:
            texts[place] = f"{texts[place]}; {_text(loss, signed=True)}"
    identifier = f"scores-{file_name(scored.scorer)}-{file_name(scored.task)}"
    pictures = over_levels(scored.means, styles, scored.title, "mean over contexts", identifier)
    listing = level_table(f"{scored.scorer}, by level", texts)
    return StudySection(
        identifier,
        scored.title,
        scored.meaning,
        styles=without_full(styles),
        pictures=pictures,
        listings=(listing,),
    )


def _text(estimate: Estimate, signed: bool = False) -> str:
    form = "+.2f" if signed else ".2f"
    text = format(estimate.mean, form)
    if estimate.interval is None:
        return text.replace("-", "−")
    low, high = (format(end, form) for end in estimate.interval)
    return f"{text} [{low}, {high}]".replace("-", "−")


def _by_context(cell: DataFrame, column: str) -> FloatArray:
    means: FloatArray = cell.groupby("example_id", sort=True)[column].mean().to_numpy(np.float64)
    return means


def _estimate(
    shares: FloatArray, ends: Sequence[FloatArray] | None, span: float, low: float
) -> Estimate:
    """Scales a mean of shares, and the ends of its interval, to the range of the scorer."""
    mean = low + span * float(shares.mean())
    if ends is None:
        return Estimate(mean, None, None, len(shares))
    lowest, highest = (low + span * float(end) for end in ends)
    return Estimate(mean, lowest, highest, len(shares))


def _difference(cell: DataFrame, full: DataFrame, span: float) -> Estimate:
    """Returns the difference from the full cache on the same questions."""
    before = full.set_index("question_id")["share"]
    paired = cell.assign(change=cell["share"] - cell["question_id"].map(before))
    paired = paired[paired["change"].notna()]
    gains = _by_context(paired.assign(gain=paired["change"].clip(lower=0)), "gain")
    falls = _by_context(paired.assign(fall=-paired["change"].clip(upper=0)), "fall")
    ends = difference_interval(gains, falls) if len(gains) > 1 else None
    return _estimate(gains - falls, ends, span, 0.0)
