"""Sets two models beside one another: what each keeps under the same treatment on the same
questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboards.aggregate.duels import POINTS_OF_ONE
from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.paired_difference import MeanDifference
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

CELL_COLUMNS = ("treatment", "rate")


@dataclass(frozen=True)
class ModelPair:
    """One task as two models have it, of the questions that both were asked: resamples of contexts
    are the same."""

    models: tuple[str, str]
    tasks: tuple[MeasuredTask, MeasuredTask]

    @property
    def label(self) -> str:
        """Returns the name of the task, marked where one of the models cannot do it."""
        first, second = self.tasks
        if second.withheld and not first.withheld:
            return second.label
        return first.label

    def levels(self, policy: str) -> list[Level]:
        """Lists the levels at which both models ran a policy, the untreated cache aside."""
        first, second = self.tasks
        shared = set(second.evidence.levels(policy))
        return [
            level for level in first.evidence.levels(policy) if level in shared and level.amount
        ]

    def kept(self, policy: str, level: Level) -> tuple[Estimate | None, Estimate | None]:
        first, second = self.tasks
        return first.kept(policy, level), second.kept(policy, level)

    def difference(self, policy: str, level: Level) -> MeanDifference | None:
        """Returns what the first model keeps minus what the other does, in points; None where a
        full cache has nothing."""
        first, second = self.tasks
        kept = first.kept_values(policy, level)
        kept_by_second = second.kept_values(policy, level)
        if kept is None or kept_by_second is None:
            return None
        # Contexts of both are the same, so that their resamples can be subtracted one by one.
        return MeanDifference.of(first.estimate(POINTS_OF_ONE * (kept - kept_by_second)))

    def row(self, policy: str, level: Level) -> dict[str, Any]:
        """Returns a row of the download."""
        first, second = self.tasks
        row: dict[str, Any] = {"task": first.name, "policy": policy, "level": level.value}
        row["other_model"] = self.models[1]
        for side, task in (("", first), ("other_", second)):
            row[f"{side}full_cache"] = task.full_score
            row[f"{side}score"] = task.score(policy, level)
            row[f"{side}share_kept"] = task.kept(policy, level)
        row["difference"] = self.difference(policy, level)
        row["not_mastered"] = first.withheld or second.withheld or None
        return row


def pair_models(study_input: StudyInput, other: StudyInput) -> list[ModelPair]:
    """Pairs the tasks that two models were asked with the same questions and that have the same
    leading measure."""
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


def beside_sections(
    pairs: Sequence[ModelPair], members: Sequence[Damage], number: int
) -> list[StudySection]:
    """Shows two models in the same pictures and tables; no section where they share no treatment at
    a rate."""
    if not pairs:
        return []
    pictures, listings, details = list[Picture](), list[Listing](), list[Listing]()
    styles = named_styles(pairs[0].models)
    for pair in pairs:
        for group in group_damages(members):
            cells = _differences(pair, group)
            if not cells:
                continue
            where = f"{group.title}, {pair.label}"
            title = f"Difference of the shares kept, points: {where}"
            listings.append(level_table(title, cells, first="treatment"))
            details.append(_every_cell(pair, group, where))
            for fault in compared_faults(pair.tasks[0], group.members):
                pictures += _over_rate(pair, fault.policy, styles)
    if not listings:
        return []
    first, second = pairs[0].models
    text = (
        f"What {first} and {second} keep of what each has with its own full cache, on the same "
        f"questions. A difference is {first} minus {second}, with its 95 % interval over contexts, "
        "which are resampled for both together."
    )
    section = StudySection(
        f"beside-{number}",
        f"Beside {second}",
        text,
        tuple(styles.values()),
        tuple(pictures),
        listings=tuple(listings),
        details=tuple(details),
    )
    return [section]


def _differences(pair: ModelPair, group: DamageGroup) -> Mapping[tuple[str, Level], str]:
    cells = {}
    for member in group.members:
        for level in pair.levels(member.policy):
            difference = pair.difference(member.policy, level)
            cells[member.policy, level] = NONE if difference is None else difference.text
    return cells


def _every_cell(pair: ModelPair, group: DamageGroup, where: str) -> Listing:
    first, second = pair.models
    rows = []
    for member in group.members:
        policy = member.policy
        for level in pair.levels(policy):
            scores = [in_percent(task.score(policy, level)) for task in pair.tasks]
            kept = map(in_percent, pair.kept(policy, level))
            rows.append((policy, f"{level.value:g}", *scores, *kept))
    measure = pair.tasks[0].title
    of_models = (
        f"{first}, {measure}",
        f"{second}, {measure}",
        f"{first}, kept",
        f"{second}, kept",
    )
    return Listing(f"Both models, percent: {where}", (*CELL_COLUMNS, *of_models), tuple(rows))


def _over_rate(pair: ModelPair, policy: str, styles: Mapping[str, LineStyle]) -> list[Picture]:
    """Draws a line for each model over the rates of a fault; nothing where one has a single rate or
    none."""
    levels = pair.levels(policy)
    if len(levels) < 2:
        return []
    lines = []
    for model, task in zip(pair.models, pair.tasks, strict=True):
        # The full cache keeps all of itself, for certain.
        points = [(0.0, Estimate(1.0, 1.0, 1.0, task.evidence.contexts))]
        for level in levels:
            kept = task.kept(policy, level)
            if kept is not None:
                points.append((level.value, kept))
        lines.append(banded_line(styles[model], points))
    axis = Axis.from_values("rate", [level.value for level in levels])
    salt = f"beside/{pair.models[1]}/{pair.label}/{policy}"
    return [curve(policy, f"{pair.label}, share kept", lines, axis, salt)]


def beside_sheet(pairs: Sequence[ModelPair], members: Sequence[Damage]) -> Sheet:
    rows = []
    for pair in pairs:
        for member in members:
            for level in pair.levels(member.policy):
                rows.append(pair.row(member.policy, level))
    title = "What two models keep with each treatment, on the same questions"
    return Sheet.of("treatments-beside", title, rows)
