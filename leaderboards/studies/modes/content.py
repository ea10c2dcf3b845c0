"""Shows question-agnostic beside question-aware compression: table 2 of arXiv 2603.01426, with
paired differences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pandas import DataFrame

from leaderboards.aggregate.duels import POINTS_OF_ONE
from leaderboards.aggregate.evidence import NoEvidenceError
from leaderboards.downloads.print_tables import PrintTable
from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.statistics.paired_difference import MeanDifference
from leaderboards.studies.beside import QUESTION, only, shared_questions
from leaderboards.studies.declaration import StudyContent, StudyInput, StudySection
from leaderboards.studies.modes.definitions import TITLE
from leaderboards.studies.parts import NONE, in_numbers
from leaderboards.studies.treatments.tasks import MeasuredTask, measured_tasks
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

MODES = AGNOSTIC, AWARE = ("agnostic", "aware")
MEASURES = ("f1", "right")  # columns of the records
DIFFERENCES = {"f1": "f1_difference", "right": "right_difference"}  # columns of the download
COLUMN_TYPES = dict.fromkeys(MEASURES, Estimate) | dict.fromkeys(
    DIFFERENCES.values(), MeanDifference
)
HEADINGS = (
    "task",
    "policy",
    "level",
    "F1, agnostic",
    "F1, aware",
    "F1, difference",
    "right, agnostic",
    "right, aware",
    "right, difference",
)


@dataclass(frozen=True)
class TaskInBoth:
    """One task in both modes, on the questions that both were asked: resamples of contexts are the
    same."""

    sides: tuple[MeasuredTask, MeasuredTask]

    @property
    def cells(self) -> list[tuple[str, Level]]:
        """Lists policies and levels that either mode has, the full cache first."""
        cells: dict[tuple[str, Level], None] = {}
        for side in self.sides:
            for policy in map(str, side.evidence.records["policy"].unique()):
                for level in side.evidence.levels(policy):
                    cells[policy, level] = None
        # A stable sort leaves all others in their order.
        return sorted(cells, key=lambda cell: cell != (FULL, UNTREATED))

    @property
    def withheld(self) -> str:
        """Says why the task has no verdicts in mode agnostic; empty where it has."""
        return self.sides[0].withheld

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields a row for each policy, level and mode that has it; the difference stands in that
        of mode aware."""
        for policy, level in self.cells:
            for mode, side in zip(MODES, self.sides, strict=True):
                if level not in side.evidence.levels(policy):
                    continue
                row: dict[str, Any] = {"task": side.name, "policy": policy}
                row |= {"level": level, "mode": mode}
                for name in MEASURES:
                    row[name] = self.score(mode, policy, level, name)
                for name, column in DIFFERENCES.items():
                    row[column] = None
                    if mode == AWARE:
                        row[column] = self.difference(policy, level, name)
                row["not_mastered"] = side.withheld or None
                yield row

    def score(self, mode: str, policy: str, level: Level, column: str) -> Estimate | None:
        """Estimates a measure in percent."""
        side = self.sides[MODES.index(mode)]
        values = _percent(side, policy, level, column)
        return None if values is None else side.estimate(values)

    def difference(self, policy: str, level: Level, column: str) -> MeanDifference | None:
        """Returns aware less agnostic, in points; None where one of them did not run it."""
        without_question, with_question = self.sides
        agnostic = _percent(without_question, policy, level, column)
        aware = _percent(with_question, policy, level, column)
        if agnostic is None or aware is None:
            return None
        # The same contexts under the same seed, so that the resamples of both are pairs.
        return MeanDifference.of(without_question.estimate(aware - agnostic))


def _percent(side: MeasuredTask, policy: str, level: Level, column: str) -> FloatArray | None:
    """Returns a measure in percent, as measured and as resampled, shape (1 + resamples,); None
    without records."""
    try:
        values = side.evidence.mean(policy, level.value, column)
    except NoEvidenceError:
        return None
    if column == "f1":  # which is in percent
        return values
    return POINTS_OF_ONE * values


def tasks_in_both(study_input: StudyInput) -> list[TaskInBoth]:
    """Returns the tasks that both modes were asked with the same questions, in the results of mode
    agnostic alone."""
    others = [other for other in study_input.modes if other.mode == AWARE]
    if study_input.mode != AGNOSTIC or not others:
        return []
    shared = shared_questions(study_input, others[0], QUESTION)
    if shared.empty:
        return []
    agnostic = _tasks_with_f1(only(study_input.records, shared))
    aware = _tasks_with_f1(only(others[0].records, shared))
    in_both = []
    for name, task in agnostic.items():
        if name in aware:
            in_both.append(TaskInBoth((task, aware[name])))
    return in_both


def _tasks_with_f1(records: DataFrame) -> dict[str, MeasuredTask]:
    """Returns by name the tasks that have an F1."""
    tasks = {}
    for task in measured_tasks(records)[0]:
        if task.evidence.records["f1"].notna().any():
            tasks[task.name] = task
    return tasks


def build_content(study_input: StudyInput) -> StudyContent:
    """Lists both modes and their difference, task by task."""
    rows: list[dict[str, Any]] = []
    reasons, listings = [], []
    for task in tasks_in_both(study_input):
        rows += task.rows()
        title = f"F1 and right answers, percent: {_label(task)}"
        listings.append(Listing(title, HEADINGS[1:], _lines(task)))
        if task.withheld:
            reasons.append(f"{task.sides[0].name}: {task.withheld}")
    marks = ""
    if reasons:
        marks = f" {'; '.join(reasons)}: numbers are shown, verdicts are withheld."
    text = (
        "Agnostic: a press cuts the context before it sees a question, which serves any number of "
        "them. Aware: it sees the question, and cuts anew for each. A difference is aware less "
        "agnostic on the same questions, in points, with its 95 % interval over contexts; a "
        f"policy that needs the question has none.{marks}"
    )
    if study_input.number == 1:
        identifier = "modes"
    else:
        identifier = f"modes-{study_input.number}"
    section = StudySection(identifier, TITLE, text, listings=tuple(listings))
    return StudyContent([section], sheets=[Sheet.of("modes", TITLE, rows, kinds=COLUMN_TYPES)])


def _label(task: TaskInBoth) -> str:
    """Returns the name of a task, marked where it has no verdicts in one of the modes."""
    for side in task.sides:
        if side.withheld:
            return side.label
    return task.sides[0].name


def _lines(task: TaskInBoth) -> tuple[tuple[str, ...], ...]:
    """Writes a line for each policy and level: both modes and their difference, measure by
    measure."""
    lines = []
    for policy, level in task.cells:
        texts = []
        for column in MEASURES:
            for mode in MODES:
                score = task.score(mode, policy, level, column)
                texts.append(in_numbers(score, "z.0f"))
            difference = task.difference(policy, level, column)
            texts.append(NONE if difference is None else difference.text)
        lines.append((policy, str(level), *texts))
    return tuple(lines)


def print_table(study_input: StudyInput, data: str) -> PrintTable | None:
    """Returns the same as a table for print; None where no other mode stands beside the run.
    ``data``: says where the numbers are from."""
    tasks = tasks_in_both(study_input)
    if not tasks:
        return None
    body: list[Sequence[str]] = [HEADINGS]
    for task in tasks:
        label = _label(task)
        for line in _lines(task):
            body.append((label, *line))
    caption = f"Agnostic beside aware, percent, and aware less agnostic in points; in brackets 95 % intervals. {data}"
    return PrintTable(body, caption, is_long=True, names=3)
