"""Shows question-agnostic beside question-aware compression: table 2 of arXiv 2603.01426, with paired differences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from leaderboards.aggregate.duels import POINTS_OF_ONE, MeanDifference
from leaderboards.aggregate.evidence import NoEvidenceError
from leaderboards.downloads.print_tables import PrintTable
from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Chapter, Definition
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.beside import QUESTION, only, shared_questions
from leaderboards.studies.declaration import Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import NONE, in_numbers
from leaderboards.studies.treatments.tasks import MeasuredTask, measured_tasks
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

MODES = AGNOSTIC, AWARE = ("agnostic", "aware")
TITLE = "Agnostic beside aware"
MEASURES = {"f1": "F1", "right": "right"}  # by column of the records
KINDS = dict.fromkeys(MEASURES, Estimate) | {
    f"{name}_difference": MeanDifference for name in MEASURES
}
PARTS = (*MODES, "difference")
HEADINGS = (
    "task",
    "policy",
    "level",
    *(f"{title}, {part}" for title in MEASURES.values() for part in PARTS),
)


@dataclass(frozen=True)
class TaskInBoth:
    """One task in both modes, on the questions that both were asked: resamples of contexts are the same."""

    sides: tuple[MeasuredTask, MeasuredTask]

    @property
    def cells(self) -> list[tuple[str, Level]]:
        """Lists policies and levels that either mode has, the full cache first."""
        found = dict[tuple[str, Level], None]()
        for side in self.sides:
            for policy in side.evidence.records["policy"].unique():
                found |= dict.fromkeys(
                    (str(policy), level) for level in side.evidence.levels(str(policy))
                )
        return sorted(found, key=lambda cell: cell != (FULL, UNTREATED))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields a row for each policy, level and mode that has it; the difference stands in that of mode aware."""
        for policy, level in self.cells:
            for mode, side in zip(MODES, self.sides, strict=True):
                if level in side.evidence.levels(policy):
                    cell = {"task": side.name, "policy": policy, "level": level, "mode": mode}
                    measured = {name: self.score(mode, policy, level, name) for name in MEASURES}
                    differs = {
                        f"{name}_difference": self.difference(policy, level, name)
                        for name in MEASURES
                    }
                    shown = differs if mode == AWARE else dict.fromkeys(differs)
                    yield {**cell, **measured, **shown, "not_mastered": side.withheld or None}

    def score(self, mode: str, policy: str, level: Level, column: str) -> Estimate | None:
        """Estimates a measure in percent."""
        side = self.sides[MODES.index(mode)]
        values = _percent(side, policy, level, column)
        return None if values is None else side.estimate(values)

    def difference(self, policy: str, level: Level, column: str) -> MeanDifference | None:
        """Returns aware less agnostic, in points; None where one of them did not run it."""
        agnostic, aware = (_percent(side, policy, level, column) for side in self.sides)
        if agnostic is None or aware is None:
            return None
        estimate = self.sides[0].estimate(aware - agnostic)
        return MeanDifference(estimate.mean, estimate.low, estimate.high)


def _percent(side: MeasuredTask, policy: str, level: Level, column: str) -> Any:
    """Returns a measure in percent, as measured and as resampled; None without records."""
    try:
        values = side.evidence.mean(policy, level.value, column)
    except NoEvidenceError:
        return None
    return values if column == "f1" else POINTS_OF_ONE * np.asarray(values)


def tasks_in_both(study_input: StudyInput) -> list[TaskInBoth]:
    """Returns the tasks that both modes were asked with the same questions, in the results of mode agnostic alone."""
    others = [one for one in study_input.modes if one.mode == AWARE]
    if study_input.mode != AGNOSTIC or not others:
        return []
    shared = shared_questions(study_input, others[0], QUESTION)
    if shared.empty:
        return []
    sides = []
    for one in (study_input, others[0]):
        measured, _ = measured_tasks(only(one.records, shared))
        sides.append(
            {task.name: task for task in measured if task.evidence.records["f1"].notna().any()}
        )
    return [
        TaskInBoth((task, sides[1][name])) for name, task in sides[0].items() if name in sides[1]
    ]


def build_content(study_input: StudyInput) -> StudyContent:
    found = tasks_in_both(study_input)
    rows = [row for task in found for row in task.rows()]
    withheld = "; ".join(
        f"{task.sides[0].name}: {task.sides[0].withheld}"
        for task in found
        if task.sides[0].withheld
    )
    marks = f" {withheld}: numbers are shown, verdicts are withheld." if withheld else ""
    text = (
        "Agnostic: a press cuts the context before it sees a question, which serves any number of them. Aware: it sees "
        "the question, and cuts anew for each. A difference is aware less agnostic on the same questions, in points, "
        f"with its 95 % interval over contexts; a policy that needs the question has none.{marks}"
    )
    identifier = "modes" if study_input.number == 1 else f"modes-{study_input.number}"
    about = "F1 and right answers, percent"
    listings = tuple(
        Listing(f"{about}: {_label(task)}", HEADINGS[1:], _lines(task)) for task in found
    )
    section = StudySection(identifier, TITLE, text, listings=listings)
    return StudyContent([section], sheets=[Sheet.of("modes", TITLE, rows, kinds=KINDS)])


def _label(task: TaskInBoth) -> str:
    return next((side.label for side in task.sides if side.withheld), task.sides[0].name)


def _lines(task: TaskInBoth) -> tuple[tuple[str, ...], ...]:
    """Writes a line for each policy and level: both modes and their difference, measure by measure."""
    lines = []
    for policy, level in task.cells:
        texts = []
        for column in MEASURES:
            texts += [in_numbers(task.score(mode, policy, level, column), "z.0f") for mode in MODES]
            difference = task.difference(policy, level, column)
            texts.append(NONE if difference is None else difference.text)
        lines.append((policy, str(level), *texts))
    return tuple(lines)


def print_table(study_input: StudyInput, data: str) -> PrintTable | None:
    """Returns the same as a table for print; None where no other mode stands beside the run. ``data``: says where the
    numbers are from."""
    found = tasks_in_both(study_input)
    if not found:
        return None
    body: list[Sequence[str]] = [HEADINGS]
    for task in found:
        body += [(_label(task), *line) for line in _lines(task)]
    caption = f"Agnostic beside aware, percent, and aware less agnostic in points; in brackets 95 % intervals. {data}"
    return PrintTable(body, caption, is_long=True, names=3)


STUDY = Study(
    name="modes",
    title=TITLE,
    lead="",
    takes=lambda study_input: bool(tasks_in_both(study_input)),
    find=build_content,
    chapter=Chapter(
        "modes",
        TITLE,
        (
            Definition(
                "Aware less agnostic",
                "F1 and right answers where the press sees the question less those where it does not, in points, on "
                "the questions that both were asked. Contexts are resampled for both together.",
                "difference = mean(aware) − mean(agnostic)",
            ),
        ),
    ),
    is_on_front=True,
)
