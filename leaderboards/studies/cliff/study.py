"""Shows how hallucination rises over what is really removed, where it rises fastest, and whether GER goes with it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leaderboards.aggregate.row import ALL_TASKS
from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Chapter, Definition
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, named_styles, policy_styles
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.statistics.text import range_text
from leaderboards.studies.beside import MODELS, only_shared, shared_questions
from leaderboards.studies.cliff.sweeps import GER, RATE, Sweep, find_sweeps, is_swept, together
from leaderboards.studies.declaration import Picture, Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import (
    banded_line,
    curve,
    exactly,
    in_numbers,
    in_percent,
    list_rows,
)
from leaderboards.studies.treatments.tasks import MeasuredTask, measured_tasks

TITLE = "Hallucination, GER and the cliff"
EVERY_POLICY = "all policies"
REALISED = "realised ratio"
CORRELATION = "z.2f"
KINDS = dict.fromkeys(
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
        return "; ".join(f"{task.name}: {task.withheld}" for task in self.tasks if task.withheld)

    @property
    def title(self) -> str:
        words = "mean over tasks" if self.name == ALL_TASKS else self.name
        return f"{words}, no verdicts" if self.withheld else words

    def level_rows(self) -> Iterator[dict[str, Any]]:
        """Yields a row of the download for each policy and level, the untreated cache among them."""
        for sweep in self.sweeps:
            middles, rises = sweep.rises
            for place, level in enumerate(sweep.levels):
                step = place - 1 if place else None
                yield {
                    "policy": sweep.policy,
                    "task": self.name,
                    "level_kind": level.kind,
                    "level": level.value,
                    "realised": float(sweep.realised[place]),
                    "hallucination": sweep.estimate(sweep.rate[:, place]),
                    "between": None if step is None else float(middles[step]),
                    "susceptibility": None if step is None else sweep.estimate(rises[:, step]),
                    "ger": float(sweep.plain_ger[0, place]),
                    "slot_coverage": float(sweep.coverage[place]),
                    "not_mastered": self.withheld or None,
                }

    def summary_rows(self) -> Iterator[dict[str, Any]]:
        """Yields a row of the download for each policy, and one for all of them, which has no cliff of its own."""
        for sweep in self.sweeps:
            correlations = {"r": sweep.correlation, "partial": sweep.partial}
            cliff = {"cliff": sweep.cliff, "is_clear": sweep.cliff and sweep.cliff_is_clear}
            yield self._summary(sweep.policy, correlations | cliff)
        over_all, given_level = together(self.sweeps)
        yield self._summary(
            EVERY_POLICY, {"r": over_all, "partial": given_level, "cliff": None, "is_clear": None}
        )

    def _summary(self, policy: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "policy": policy,
            "task": self.name,
            **numbers,
            "not_mastered": self.withheld or None,
        }


def swept_tasks(study_input: StudyInput) -> list[SweptTasks]:
    """Returns the mean over the tasks that the model can do, over all where it can do none, then each task by itself;
    tasks with one level, and those whose answers are not judged so, are left out."""
    tasks = _judged_tasks(study_input)
    alone = [one for one in (SweptTasks.of(task.name, [task]) for task in tasks) if one.sweeps]
    shown = [one.tasks[0] for one in alone]
    mastered = [task for task in shown if not task.withheld]
    if len(alone) > 1:
        whole = SweptTasks.of(ALL_TASKS, mastered or shown)
        return [whole, *alone] if whole.sweeps else alone
    return alone


def _judged_tasks(study_input: StudyInput) -> list[MeasuredTask]:
    """Returns the tasks of whose answers it is known whether they are made up and what is left of their evidence."""
    known = study_input.records[
        study_input.records[RATE].notna() & study_input.records[GER].notna()
    ]
    names = set(known["task"])
    return (
        [task for task in measured_tasks(study_input.records)[0] if task.name in names]
        if names
        else []
    )


def build_content(study_input: StudyInput) -> StudyContent:
    found = swept_tasks(study_input)
    if not found:
        return StudyContent(())
    policies = study_input.policies or tuple(map(str, study_input.records["policy"].unique()))
    styles = policy_styles(policies)
    sections = [_section(found, styles, study_input.number)]
    for number, other in enumerate(study_input.beside, start=1):
        if other.number > study_input.number:
            sections += _beside(
                study_input, other, len(styles), f"cliff-beside-{study_input.number}-{number}"
            )
    levels = [row for one in found for row in one.level_rows()]
    summaries = [row for one in found for row in one.summary_rows()]
    sheets = [
        Sheet.of("cliff", "Hallucination and GER over what is removed", levels, kinds=KINDS),
        Sheet.of(
            "cliff-summary",
            "Where hallucination rises, and whether GER goes with it",
            summaries,
            kinds=KINDS,
        ),
    ]
    return StudyContent(sections, sheets=sheets)


def _section(
    found: Sequence[SweptTasks], styles: Mapping[str, LineStyle], number: int
) -> StudySection:
    first = found[0]
    shown = tuple(styles[sweep.policy] for sweep in first.sweeps)
    pictures = [
        _over_realised(first, styles, "Hallucination rate", number),
        _susceptibility(first, styles, number),
        _over_realised(first, styles, "Global Eviction Ratio", number),
        _over_ger(first, styles, number),
    ]
    tables = [_summary_table(one) for one in found]
    text = f"{_answer(first)} {HOW} {_marks(first)}".strip()
    listings, details = tables[:1], [*tables[1:], *(_level_table(one) for one in found)]
    identifier = "cliff" if number == 1 else f"cliff-{number}"
    title = TITLE if first.name == ALL_TASKS else f"{TITLE}: {first.name}"
    return StudySection(
        identifier, title, text, shown, tuple(pictures), tuple(listings), tuple(details)
    )


HOW = (
    "Susceptibility is how fast the rate rises over the share of rows that is really removed. r is Pearson’s "
    "correlation of GER and the rate over ratios, the full cache among them, as the paper has it; two curves that both "
    "rise have a high one. The partial correlation is over contexts at one ratio."
)


def _answer(first: SweptTasks) -> str:
    """Says where made-up answers become more, and whether that is where GER is high."""
    places = [sweep.cliff.mean for sweep in first.sweeps if sweep.cliff and sweep.cliff_is_clear]
    where = range_text(f"{min(places):.2f}", f"{max(places):.2f}") if places else ""
    at = f"; fastest at a realised ratio of {where}" if places else ""
    rise = f"Made-up answers clearly become more for {len(places)} of {len(first.sweeps)} policies{at}."
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
    over = ", ".join(task.name for task in first.tasks)
    of_tasks = f"Mean over {over}." if first.name == ALL_TASKS else ""
    why = f"{first.withheld}: numbers are shown, verdicts are withheld." if first.withheld else ""
    return " ".join(filter(None, (of_tasks, why)))


def _over_realised(
    found: SweptTasks, styles: Mapping[str, LineStyle], title: str, number: int
) -> Picture:
    lines = []
    for sweep in found.sweeps:
        is_rate = title == "Hallucination rate"
        values = (
            [sweep.estimate(column) for column in sweep.rate.T]
            if is_rate
            else map(exactly, sweep.plain_ger[0])
        )
        lines.append(banded_line(styles[sweep.policy], zip(sweep.realised, values, strict=True)))
    return curve(
        title, f"share, {found.title}", lines, _axis(REALISED, found), f"cliff/{number}/{title}"
    )


def _susceptibility(found: SweptTasks, styles: Mapping[str, LineStyle], number: int) -> Picture:
    lines = []
    for sweep in found.sweeps:
        middles, rises = sweep.rises
        lines.append(
            banded_line(styles[sweep.policy], zip(middles, map(exactly, rises[0]), strict=True))
        )
    axis = _axis(REALISED, found)
    return curve(
        "Susceptibility", f"dH/dα, {found.title}", lines, axis, f"cliff/{number}/susceptibility"
    )


def _over_ger(found: SweptTasks, styles: Mapping[str, LineStyle], number: int) -> Picture:
    lines = []
    for sweep in found.sweeps:
        places = zip(sweep.plain_ger[0], map(exactly, sweep.plain_rate[0]), strict=True)
        lines.append(banded_line(styles[sweep.policy], places))
    axis = Axis.from_values("Global Eviction Ratio", [1.0])
    return curve(
        "Hallucination over GER", f"share, {found.title}", lines, axis, f"cliff/{number}/ger"
    )


def _axis(title: str, found: SweptTasks) -> Axis:
    return Axis.from_values(title, [float(sweep.realised[-1]) for sweep in found.sweeps])


def _summary_table(found: SweptTasks) -> Any:
    columns = {
        "policy": lambda row: row["policy"],
        "rises fastest at": _cliff_text,
        "r of GER and H, over ratios": lambda row: in_numbers(row["r"], CORRELATION),
        "partial, over contexts": lambda row: in_numbers(row["partial"], CORRELATION),
    }
    return list_rows(
        f"The cliff, and GER with hallucination: {found.title}", found.summary_rows(), columns
    )


def _cliff_text(row: Mapping[str, Any]) -> str:
    if row["policy"] == EVERY_POLICY:
        return ""
    if row["cliff"] is None:
        return "rises nowhere"
    text = in_numbers(row["cliff"])
    return text if row["is_clear"] else f"{text}, no clear rise"


def _level_table(found: SweptTasks) -> Any:
    columns = {
        "policy": lambda row: row["policy"],
        "level": lambda row: f"{row['level']:g}",
        "realised": lambda row: f"{row['realised']:.3f}",
        "hallucination, percent": lambda row: in_percent(row["hallucination"]),
        "susceptibility, from the level before": lambda row: in_numbers(row["susceptibility"]),
        "GER": lambda row: f"{row['ger']:.2f}",
        "slot coverage": lambda row: f"{row['slot_coverage']:.2f}",
    }
    return list_rows(f"Every level: {found.title}", found.level_rows(), columns)


def _beside(
    study_input: StudyInput, other: StudyInput, index: int, identifier: str
) -> list[StudySection]:
    """Shows hallucination and F1 of two models in the same pictures, on the questions that both were asked."""
    shared = shared_questions(study_input, other)
    if shared.empty:
        return []
    sides = [_by_name(only_shared(one, shared)) for one in (study_input, other)]
    name = next((name for name in sides[0] if name in sides[1]), None)
    if name is None:
        return []
    models = (study_input.model, other.model)
    # A line is found by the place of its policy on the page: models have places behind those of all policies.
    styles = [
        replace(style, index=index + place)
        for place, style in enumerate(named_styles(models).values())
    ]
    pictures = []
    of_other = {sweep.policy: sweep for sweep in sides[1][name].sweeps}
    for sweep in sides[0][name].sweeps:
        if sweep.policy in of_other:
            pictures += _of_two(
                (sweep, of_other[sweep.policy]), styles, sides[0][name].title, identifier
            )
    if not pictures:
        return []
    text = f"{models[0]} and {models[1]} on the same questions, {sides[0][name].title}, over the realised ratio. {MODELS}"
    title = f"Hallucination and F1 beside {other.model}"
    return [StudySection(identifier, title, text, tuple(styles), tuple(pictures))]


def _by_name(study_input: StudyInput) -> dict[str, SweptTasks]:
    return {found.name: found for found in swept_tasks(study_input)}


def _of_two(
    sweeps: Sequence[Sweep], styles: Sequence[LineStyle], where: str, identifier: str
) -> list[Picture]:
    measured: dict[str, list[FloatArray]] = {
        "hallucination rate": [sweep.rate for sweep in sweeps],
        "F1, percent": [sweep.mean("f1") for sweep in sweeps],
    }
    pictures = []
    axis = Axis.from_values(REALISED, [float(sweep.realised[-1]) for sweep in sweeps])
    policy = sweeps[0].policy
    for note, of_models in measured.items():
        lines = []
        for sweep, style, values in zip(sweeps, styles, of_models, strict=True):
            estimates = [sweep.estimate(column) for column in values.T]
            lines.append(banded_line(style, zip(sweep.realised, estimates, strict=True)))
        pictures.append(
            curve(policy, f"{note}, {where}", lines, axis, f"{identifier}/{policy}/{note}")
        )
    return pictures


CHAPTER = Chapter(
    "cliff",
    TITLE,
    (
        Definition(
            "Susceptibility, and the cliff",
            "How fast the hallucination rate H rises over the realised ratio α, by finite differences between "
            "neighbouring levels, the full cache among them. The cliff is the middle of the step over which it rises "
            "fastest; its interval is that of the middles in resamples of contexts. A rise is clear if the interval of "
            "the slope there, corrected over the steps, leaves out 0.",
            "χ = ΔH / Δα",
            "arXiv 2603.01426",
        ),
        Definition(
            "r over ratios, and partial over contexts",
            "r is Pearson’s correlation of GER and H over the levels of a policy, or of all, and the full cache. "
            "Both rise with the ratio, so that it is high also where neither causes the other. The partial correlation "
            "is over contexts, given task, policy and level: of what GER and the rate of a context are above their "
            "means there, of questions whose answer stands in the context.",
        ),
    ),
)
STUDY = Study(
    name="cliff",
    title=TITLE,
    lead="",
    takes=lambda study_input: any(is_swept(task.evidence) for task in _judged_tasks(study_input)),
    find=build_content,
    chapter=CHAPTER,
    is_on_front=True,
)
