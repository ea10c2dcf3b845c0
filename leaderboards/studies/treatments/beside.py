"""Sets two models beside one another: what each keeps under the same treatment on the same questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboards.aggregate.duels import POINTS_OF_ONE, MeanDifference
from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.beside import only, shared_questions
from leaderboards.studies.declaration import Picture, StudyInput, StudySection
from leaderboards.studies.parts import NONE, banded_line, curve, in_percent, level_table
from leaderboards.studies.treatments.damage import (
    Damage,
    DamageGroup,
    compared_faults,
    group_damages,
)
from leaderboards.studies.treatments.tasks import MeasuredTask, measured_tasks
from policies.declaration.levels import Level

COLUMNS = ("treatment", "rate")


@dataclass(frozen=True)
class ModelPair:
    """One task as two models have it, of the questions that both were asked: resamples of contexts are the same."""

    models: tuple[str, str]
    tasks: tuple[MeasuredTask, MeasuredTask]

    @property
    def label(self) -> str:
        """Returns the name of the task, marked where one of the models cannot do it."""
        return next((task.label for task in self.tasks if task.withheld), self.tasks[0].label)

    def levels(self, policy: str) -> list[Level]:
        """Lists the levels at which both models ran a policy, the untreated cache aside."""
        one, other = (task.evidence.levels(policy) for task in self.tasks)
        return [level for level in one if level in other and level.amount]

    def kept(self, policy: str, level: Level) -> tuple[Estimate | None, Estimate | None]:
        one, other = (task.kept(policy, level) for task in self.tasks)
        return one, other

    def difference(self, policy: str, level: Level) -> MeanDifference | None:
        """Returns what the first model keeps minus what the other does, in points; None where a full cache has
        nothing."""
        one, other = (task.kept_values(policy, level) for task in self.tasks)
        if one is None or other is None:
            return None
        estimate = self.tasks[0].estimate(POINTS_OF_ONE * (one - other))
        return MeanDifference(estimate.mean, estimate.low, estimate.high)

    def row(self, policy: str, level: Level) -> dict[str, Any]:
        """Returns a row of the download."""
        row: dict[str, Any] = {"task": self.tasks[0].name, "policy": policy, "level": level.value}
        row["other_model"] = self.models[1]
        for side, task in zip(("", "other_"), self.tasks, strict=True):
            row[f"{side}full_cache"] = task.full_score
            row[f"{side}score"] = task.score(policy, level)
            row[f"{side}share_kept"] = task.kept(policy, level)
        row["difference"] = self.difference(policy, level)
        row["not_mastered"] = next((task.withheld for task in self.tasks if task.withheld), None)
        return row


def pair_models(study_input: StudyInput, other: StudyInput) -> list[ModelPair]:
    """Pairs the tasks that two models were asked with the same questions and that have the same leading measure."""
    shared = shared_questions(study_input, other)
    if shared.empty:
        return []
    sides = []
    for records in (study_input.records, other.records):
        measured, _ = measured_tasks(only(records, shared))
        sides.append({task.name: task for task in measured})
    pairs = []
    for name, task in sides[0].items():
        same = sides[1].get(name)
        if same is not None and same.column == task.column:
            pairs.append(ModelPair((study_input.model, other.model), (task, same)))
    return pairs


def beside_section(
    pairs: Sequence[ModelPair], members: Sequence[Damage], number: int
) -> StudySection | None:
    """Shows two models in the same pictures and tables; None where they share no treatment at a rate."""
    pictures, listings, details = list[Picture](), list[Listing](), list[Listing]()
    styles = named_styles(pairs[0].models) if pairs else {}
    for pair in pairs:
        for group in group_damages(members):
            cells = _differences(pair, group)
            if not cells:
                continue
            where = f"{group.title}, {pair.label}"
            listings.append(
                level_table(
                    f"Difference of the shares kept, points: {where}", cells, first="treatment"
                )
            )
            details.append(_every_cell(pair, group, where))
            for fault in compared_faults(pair.tasks[0], group.members):
                pictures += _over_rate(pair, fault.policy, styles)
    if not listings:
        return None
    one, other = pairs[0].models
    text = (
        f"What {one} and {other} keep of what each has with its own full cache, on the same questions. A difference is "
        f"{one} minus {other}, with its 95 % interval over contexts, which are resampled for both together."
    )
    title = f"Beside {other}"
    shown = (tuple(styles.values()), tuple(pictures))
    return StudySection(
        f"beside-{number}", title, text, *shown, listings=tuple(listings), details=tuple(details)
    )


def _differences(pair: ModelPair, group: DamageGroup) -> Mapping[tuple[str, Level], str]:
    cells = {}
    for one in group.members:
        for level in pair.levels(one.policy):
            difference = pair.difference(one.policy, level)
            cells[one.policy, level] = NONE if difference is None else difference.text
    return cells


def _every_cell(pair: ModelPair, group: DamageGroup, where: str) -> Listing:
    one, other = pair.models
    rows = []
    for member in group.members:
        for level in pair.levels(member.policy):
            kept = [in_percent(side) for side in pair.kept(member.policy, level)]
            scores = [in_percent(task.score(member.policy, level)) for task in pair.tasks]
            rows.append((member.policy, f"{level.value:g}", *scores, *kept))
    of_models = (
        f"{one}, {pair.tasks[0].title}",
        f"{other}, {pair.tasks[0].title}",
        f"{one}, kept",
        f"{other}, kept",
    )
    return Listing(f"Both models, percent: {where}", (*COLUMNS, *of_models), tuple(rows))


def _over_rate(pair: ModelPair, policy: str, styles: Mapping[str, LineStyle]) -> list[Picture]:
    """Draws a line for each model over the rates of a fault; nothing where one has a single rate or none."""
    levels = pair.levels(policy)
    if len(levels) < 2:
        return []
    lines = []
    for place, task in enumerate(pair.tasks):
        start = Estimate(1.0, 1.0, 1.0, task.evidence.contexts)
        estimates = [(level.value, task.kept(policy, level)) for level in levels]
        points = [(rate, one) for rate, one in estimates if one is not None]
        lines.append(banded_line(styles[pair.models[place]], [(0.0, start), *points]))
    axis = Axis.from_values("rate", [level.value for level in levels])
    return [
        curve(
            policy,
            f"{pair.label}, share kept",
            lines,
            axis,
            f"beside/{pair.models[1]}/{pair.label}/{policy}",
        )
    ]


def beside_sheet(pairs: Sequence[ModelPair], members: Sequence[Damage]) -> Sheet:
    rows = []
    for pair in pairs:
        for one in members:
            rows += [pair.row(one.policy, level) for level in pair.levels(one.policy)]
    return Sheet.of(
        "treatments-beside", "What two models keep with each treatment, on the same questions", rows
    )
