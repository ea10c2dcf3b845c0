"""Shows how hallucination rises over what is really removed, where it rises fastest, and whether
GER goes with it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from leaderboards.aggregate.row import ALL_TASKS
from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, named_styles, policy_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.statistics.text import range_text
from leaderboards.studies.beside import MODELS, only_shared, shared_questions
from leaderboards.studies.cliff.definitions import TITLE
from leaderboards.studies.cliff.sweeps import GER, RATE, Sweep, find_sweeps, is_swept, together
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import (
    banded_line,
    curve,
    exactly,
    in_numbers,
    in_percent,
    list_rows,
)
from leaderboards.studies.treatments.tasks import MeasuredTask, measured_tasks

EVERY_POLICY = "all policies"
REALISED = "realised ratio"
CORRELATION = "z.2f"
COLUMN_TYPES = dict.fromkeys(
    ("hallucination", "susceptibility", "r", "partial", "cliff", "at_cliff"), Estimate
)


@dataclass(frozen=True)
class SweptTasks:
    """Some tasks with the policies that were run on them at several levels."""

    name: str  # of the task, or of the mean over them
    tasks: Sequence[MeasuredTask]
    sweeps: Sequence[Sweep]

    @classmethod
    def of(cls, name: str, tasks: Sequence[MeasuredTask]) -> "SweptTasks":
        return cls(name, tasks, find_sweeps([task.evidence for task in tasks]))

    @property
    def withheld(self) -> str:
        """Says how little the model itself has of the tasks; empty where it can do them."""
        reasons = []
        for task in self.tasks:
            if task.withheld:
                reasons.append(f"{task.name}: {task.withheld}")
        return "; ".join(reasons)

    @property
    def title(self) -> str:
        words = self.name
        if self.name == ALL_TASKS:
            words = "mean over tasks"
        return f"{words}, no verdicts" if self.withheld else words

    def level_rows(self) -> Iterator[dict[str, Any]]:
        """Yields a row of the download for each policy and level, the untreated cache among
        them."""
        for sweep in self.sweeps:
            middles, rises = sweep.rises
            for place, level in enumerate(sweep.levels):
                between, susceptibility = None, None
                if place:  # a step lies before each level but the first
                    between = float(middles[place - 1])
                    susceptibility = sweep.estimate(rises[:, place - 1])
                yield {
                    "policy": sweep.policy,
                    "task": self.name,
                    "level_kind": level.kind,
                    "level": level.value,
                    "realised": float(sweep.realised[place]),
                    "hallucination": sweep.estimate(sweep.rate[:, place]),
                    "between": between,
                    "susceptibility": susceptibility,
                    "ger": float(sweep.plain_ger[0, place]),
                    "slot_coverage": float(sweep.coverage[place]),
                    "not_mastered": self.withheld or None,
                }

    def summary_rows(self) -> Iterator[dict[str, Any]]:
        """Yields a row of the download for each policy, and one for all of them, which has no cliff
        of its own."""
        for sweep in self.sweeps:
            numbers = {
                "r": sweep.correlation,
                "partial": sweep.partial,
                "cliff": sweep.cliff,
                # Without a cliff it is None and not False: there is no rise that could be clear.
                "is_clear": sweep.cliff and sweep.cliff_is_clear,
            }
            yield self._summary(sweep.policy, numbers)
        over_all, given_level = together(self.sweeps)
        of_all = {"r": over_all, "partial": given_level, "cliff": None, "is_clear": None}
        yield self._summary(EVERY_POLICY, of_all)

    def _summary(self, policy: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "policy": policy,
            "task": self.name,
            **numbers,
            "not_mastered": self.withheld or None,
        }


def swept_tasks(study_input: StudyInput) -> list[SweptTasks]:
    """Returns the mean over the tasks that the model can do, over all where it can do none, then
    each task by itself; tasks with one level, and those whose answers are not judged so, are left
    out."""
    alone, shown, mastered = [], [], []
    for task in _judged_tasks(study_input):
        swept = SweptTasks.of(task.name, [task])
        if not swept.sweeps:
            continue
        alone.append(swept)
        shown.append(task)
        if not task.withheld:
            mastered.append(task)
    # The mean over one task is that task.
    if len(alone) < 2:
        return alone
    whole = SweptTasks.of(ALL_TASKS, mastered or shown)
    return [whole, *alone] if whole.sweeps else alone


def _judged_tasks(study_input: StudyInput) -> list[MeasuredTask]:
    """Returns the tasks of whose answers it is known whether they are made up and what is left of
    their evidence."""
    records = study_input.records
    # An attack has no such rate, and a press that rewrites rows has no GER.
    judged = records[records[RATE].notna() & records[GER].notna()]
    names = set(judged["task"])
    if not names:
        return []
    measured, _ = measured_tasks(records)
    return [task for task in measured if task.name in names]


def is_any_swept(study_input: StudyInput) -> bool:
    """Tells whether some policy removes tokens at two levels at least, on a task that is judged."""
    return any(is_swept(task.evidence) for task in _judged_tasks(study_input))


def build_content(study_input: StudyInput) -> StudyContent:
    """Draws hallucination and GER of each policy over what it removes, alone and beside the other
    models."""
    swept = swept_tasks(study_input)
    if not swept:
        return StudyContent(())
    policies = study_input.policies or tuple(map(str, study_input.records["policy"].unique()))
    styles = policy_styles(policies)
    sections = [_section(swept, styles, study_input.number)]
    for number, other in enumerate(study_input.beside, start=1):
        # Two models stand beside one another once, on the page of the first.
        if other.number > study_input.number:
            identifier = f"cliff-beside-{study_input.number}-{number}"
            sections += _beside(study_input, other, len(styles), identifier)
    levels: list[dict[str, Any]] = []
    summaries: list[dict[str, Any]] = []
    for tasks in swept:
        levels += tasks.level_rows()
        summaries += tasks.summary_rows()
    summary_title = "Where hallucination rises, and whether GER goes with it"
    sheets = [
        Sheet.of("cliff", "Hallucination and GER over what is removed", levels, kinds=COLUMN_TYPES),
        Sheet.of("cliff-summary", summary_title, summaries, kinds=COLUMN_TYPES),
    ]
    return StudyContent(sections, sheets=sheets)


def _section(
    swept: Sequence[SweptTasks], styles: Mapping[str, LineStyle], number: int
) -> StudySection:
    first = swept[0]
    shown = tuple(styles[sweep.policy] for sweep in first.sweeps)
    pictures = (
        _over_realised(first, styles, "Hallucination rate", number),
        _susceptibility(first, styles, number),
        _over_realised(first, styles, "Global Eviction Ratio", number),
        _over_ger(first, styles, number),
    )
    summary, *details = map(_summary_table, swept)
    details += map(_level_table, swept)
    text = f"{_answer(first)} {HOW} {_marks(first)}".strip()
    identifier = "cliff" if number == 1 else f"cliff-{number}"
    title = TITLE if first.name == ALL_TASKS else f"{TITLE}: {first.name}"
    return StudySection(identifier, title, text, shown, pictures, (summary,), tuple(details))


HOW = (
    "Susceptibility is how fast the rate rises over the share of rows that is really removed. r "
    "is Pearson’s correlation of GER and the rate over ratios, the full cache among them, as the "
    "paper has it; two curves that both rise have a high one. The partial correlation is over "
    "contexts at one ratio."
)


def _answer(first: SweptTasks) -> str:
    """Says where made-up answers become more, and whether that is where GER is high."""
    places = []
    for sweep in first.sweeps:
        cliff = sweep.cliff
        if cliff is not None and sweep.cliff_is_clear:
            places.append(cliff.mean)
    at = ""
    if places:
        where = range_text(f"{min(places):.2f}", f"{max(places):.2f}")
        at = f"; fastest at a realised ratio of {where}"
    of_all = f"{len(places)} of {len(first.sweeps)} policies"
    rise = f"Made-up answers clearly become more for {of_all}{at}."
    over_ratios, over_contexts = map(_goes, together(first.sweeps))
    return f"{rise} Over ratios GER {over_ratios}; over contexts at one ratio it {over_contexts}."


def _goes(correlation: Estimate | None) -> str:
    if correlation is None:
        return "cannot be set against them, as one of the two never varies"
    number = in_numbers(correlation, CORRELATION)
    if correlation.low is not None and correlation.low > 0:
        return f"goes with them ({number})"
    return f"does not clearly go with them ({number})"


def _marks(first: SweptTasks) -> str:
    sentences = []
    if first.name == ALL_TASKS:
        names = ", ".join(task.name for task in first.tasks)
        sentences.append(f"Mean over {names}.")
    if first.withheld:
        sentences.append(f"{first.withheld}: numbers are shown, verdicts are withheld.")
    return " ".join(sentences)


def _over_realised(
    swept: SweptTasks, styles: Mapping[str, LineStyle], title: str, number: int
) -> Picture:
    lines = []
    for sweep in swept.sweeps:
        if title == "Hallucination rate":
            values = list(map(sweep.estimate, sweep.rate.T))
        else:
            values = list(map(exactly, sweep.plain_ger[0]))
        points = zip(sweep.realised, values, strict=True)
        lines.append(banded_line(styles[sweep.policy], points))
    axis = _realised_axis(swept.sweeps)
    return curve(title, f"share, {swept.title}", lines, axis, f"cliff/{number}/{title}")


def _susceptibility(swept: SweptTasks, styles: Mapping[str, LineStyle], number: int) -> Picture:
    lines = []
    for sweep in swept.sweeps:
        middles, rises = sweep.rises
        points = zip(middles, map(exactly, rises[0]), strict=True)
        lines.append(banded_line(styles[sweep.policy], points))
    axis = _realised_axis(swept.sweeps)
    salt = f"cliff/{number}/susceptibility"
    return curve("Susceptibility", f"dH/dα, {swept.title}", lines, axis, salt)


def _over_ger(swept: SweptTasks, styles: Mapping[str, LineStyle], number: int) -> Picture:
    lines = []
    for sweep in swept.sweeps:
        points = zip(sweep.plain_ger[0], map(exactly, sweep.plain_rate[0]), strict=True)
        lines.append(banded_line(styles[sweep.policy], points))
    # Up to 1 whatever was measured, as GER is a share.
    axis = Axis.from_values("Global Eviction Ratio", [1.0])
    salt = f"cliff/{number}/ger"
    return curve("Hallucination over GER", f"share, {swept.title}", lines, axis, salt)


def _realised_axis(sweeps: Sequence[Sweep]) -> Axis:
    return Axis.from_values(REALISED, [float(sweep.realised[-1]) for sweep in sweeps])


def _summary_table(swept: SweptTasks) -> Listing:
    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "policy": itemgetter("policy"),
        "rises fastest at": _cliff_text,
        "r of GER and H, over ratios": lambda row: in_numbers(row["r"], CORRELATION),
        "partial, over contexts": lambda row: in_numbers(row["partial"], CORRELATION),
    }
    title = f"The cliff, and GER with hallucination: {swept.title}"
    return list_rows(title, swept.summary_rows(), columns)


def _cliff_text(row: Mapping[str, Any]) -> str:
    if row["policy"] == EVERY_POLICY:
        return ""
    if row["cliff"] is None:
        return "rises nowhere"
    text = in_numbers(row["cliff"])
    return text if row["is_clear"] else f"{text}, no clear rise"


def _level_table(swept: SweptTasks) -> Listing:
    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "policy": itemgetter("policy"),
        "level": lambda row: f"{row['level']:g}",
        "realised": lambda row: f"{row['realised']:.3f}",
        "hallucination, percent": lambda row: in_percent(row["hallucination"]),
        "susceptibility, from the level before": lambda row: in_numbers(row["susceptibility"]),
        "GER": lambda row: f"{row['ger']:.2f}",
        "slot coverage": lambda row: f"{row['slot_coverage']:.2f}",
    }
    return list_rows(f"Every level: {swept.title}", swept.level_rows(), columns)


def _beside(
    study_input: StudyInput, other: StudyInput, index: int, identifier: str
) -> list[StudySection]:
    """Shows hallucination and F1 of two models in the same pictures, on the questions that both
    were asked."""
    shared = shared_questions(study_input, other)
    if shared.empty:
        return []
    here = _by_name(only_shared(study_input, shared))
    there = _by_name(only_shared(other, shared))
    # The first is the mean over tasks, where there is one.
    name = next((name for name in here if name in there), None)
    if name is None:
        return []
    swept = here[name]
    models = (study_input.model, other.model)
    # A line is found by the place of its policy on the page: models have places behind those of all
    # policies.
    styles = []
    for place, style in enumerate(named_styles(models).values()):
        styles.append(replace(style, index=index + place))
    pictures = []
    of_other = {sweep.policy: sweep for sweep in there[name].sweeps}
    for sweep in swept.sweeps:
        if sweep.policy in of_other:
            both = (sweep, of_other[sweep.policy])
            pictures += _draw_models(both, styles, swept.title, identifier)
    if not pictures:
        return []
    text = (
        f"{models[0]} and {models[1]} on the same questions, {swept.title}, over the realised "
        f"ratio. {MODELS}"
    )
    title = f"Hallucination and F1 beside {other.model}"
    return [StudySection(identifier, title, text, tuple(styles), tuple(pictures))]


def _by_name(study_input: StudyInput) -> dict[str, SweptTasks]:
    return {swept.name: swept for swept in swept_tasks(study_input)}


def _draw_models(
    sweeps: Sequence[Sweep], styles: Sequence[LineStyle], where: str, identifier: str
) -> list[Picture]:
    """Draws one policy on several models: a picture for hallucination and one for F1."""
    measured: dict[str, list[FloatArray]] = {"hallucination rate": [], "F1, percent": []}
    for sweep in sweeps:
        measured["hallucination rate"].append(sweep.rate)
        measured["F1, percent"].append(sweep.mean("f1"))
    axis = _realised_axis(sweeps)
    policy = sweeps[0].policy
    pictures = []
    for note, of_models in measured.items():
        lines = []
        for sweep, style, values in zip(sweeps, styles, of_models, strict=True):
            points = zip(sweep.realised, map(sweep.estimate, values.T), strict=True)
            lines.append(banded_line(style, points))
        salt = f"{identifier}/{policy}/{note}"
        pictures.append(curve(policy, f"{note}, {where}", lines, axis, salt))
    return pictures
