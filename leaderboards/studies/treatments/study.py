"""The study of treatments: what is kept of the full cache's answers where the cache is damaged, rounded or shrunk, and
what eviction, fewer bits and both keep at equal bytes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pandas import DataFrame

from leaderboards.aggregate.evidence import Evidence, TaskEvidence
from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics import METRICS
from leaderboards.metrics.declaration import Chapter, Definition
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Dots, Frame, PolicyLine
from leaderboards.rendering.style import named_styles, policy_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.studies.declaration import Picture, Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import NONE, curve, in_percent, level_table, line_of
from policies.composition import built_in, is_treatment
from policies.declaration.levels import Level
from policies.declaration.names import CONTROLS, FULL, plain_and_way
from policies.faults.options import FaultOptions
from policies.faults.registry import KINDS as FAULTS
from policies.quantisation.quantisation import QuantisationOptions
from policies.quantisation.registry import KINDS as FORMATS
from policies.treatments.options import TreatmentKind, is_one_of, kind_in, options_in

OUTCOMES = {"masked": "masked", "corrupted": "corrupted", "due": "DUE"}


@dataclass(frozen=True)
class Damage:
    """A treatment of what the full cache holds: a fault, an error of every number, or fewer bits."""

    policy: str
    options: FaultOptions | QuantisationOptions

    def changed(self, rate: float, dtype: str) -> float:
        """Returns the share of the numbers that a rate changes, by which faults of rows and of bits are compared."""
        return self.options.numbers_hit(rate, dtype) if isinstance(self.options, FaultOptions) else 1.0


def damages(policies: Iterable[str]) -> list[Damage]:
    """Returns the treatments of the full cache among some policies; others are left out, as are compositions."""
    kinds: dict[str, TreatmentKind[FaultOptions | QuantisationOptions]] = {**FAULTS, **FORMATS}
    return [Damage(one, options_in(one, kinds[kind_in(one)])) for one in policies if is_one_of(one, kinds)]


@dataclass(frozen=True)
class MeasuredTask:
    """One task that the model can do. All arrays have the shape (1 + resamples,) and are drawn with the same
    resamples of contexts, so that they can be subtracted; draws of a random treatment are averaged."""

    evidence: TaskEvidence
    column: str  # of the records: what leads the task

    @property
    def name(self) -> str:
        return self.evidence.task

    @property
    def title(self) -> str:
        return METRICS[self.column].measures[0].title

    def kept(self, policy: str, level: Level) -> Estimate:
        """Estimates what a treatment keeps of what the full cache has, as a share."""
        return self.estimate(self.evidence.share_kept(policy, level.value, self.column))

    def estimate(self, values: FloatArray) -> Estimate:
        """Makes an estimate of values as measured and as resampled; without an interval from a single context."""
        contexts = self.evidence.contexts
        return Estimate.of(float(values[0]), values[1:] if contexts > 1 else None, contexts)

    def row(self, policy: str, level: Level) -> dict[str, Any]:
        """Returns a row of a download: what is kept, and how answers end."""
        cell = {"task": self.name, "policy": policy, "level": level.value, "share_kept": self.kept(policy, level)}
        if self.evidence.records["masked"].isna().all():  # running text has no outcomes
            return {**cell, **dict.fromkeys(OUTCOMES)}
        return {**cell, **{name: float(self.evidence.mean(policy, level.value, name)[0]) for name in OUTCOMES}}


def measured_tasks(records: DataFrame) -> tuple[list[MeasuredTask], list[str]]:
    """Returns the tasks that the model can do with the full cache, and for each of the others why it tells nothing."""
    known, unknown = Evidence(records).mastered(_leading_column)
    return [MeasuredTask(task, _leading_column(task)) for task in known], unknown


def _leading_column(task: TaskEvidence) -> str:
    full = task.records[task.records["policy"] == FULL]
    return next((name for name in ("directives_obeyed", "next_token_accuracy") if full[name].notna().any()), "right")


def policies_in(records: DataFrame) -> Sequence[str]:
    return tuple(map(str, records["policy"].unique()))


KEPT = "share kept"
LONG = ("treatment", "level", "share kept, percent", *(f"{name}, percent" for name in OUTCOMES.values()))


def compared_faults(task: MeasuredTask, found: Sequence[Damage]) -> list[Damage]:
    """Returns the faults that were run at the rates of the most, two or more, the least harmful first."""
    usual = max((task.evidence.levels(one.policy) for one in found), key=len, default=())
    if len([level for level in usual if level.amount]) < 2:
        return []
    compared = [one for one in found if task.evidence.levels(one.policy) == usual]
    return sorted(compared, key=lambda one: -task.kept(one.policy, usual[-1]).mean)


def _kept(tasks: Sequence[MeasuredTask], found: Sequence[Damage], dtype: str) -> StudySection:
    """Shows what is kept over the share of numbers changed: faults of bits and of rows change others at one rate."""
    compared = {task.name: compared_faults(task, found) for task in tasks}
    shown = {one.policy for of_task in compared.values() for one in of_task}
    styles = policy_styles([one.policy for one in found if one.policy in shown])
    pictures, listings, details = list[Picture](), list[Listing](), list[Listing]()
    for task in tasks:
        if faults := compared[task.name]:
            lines = [line_of(styles[one.policy], _over_changed(task, one, dtype)) for one in reversed(faults)]
            axis = Axis.from_values("share of numbers changed", [x for line in lines for x, _ in line.places])
            pictures.append(curve(task.name, KEPT, lines, axis, f"kept/{task.name}"))
            listings.append(_by_rate(task, faults, dtype))
        (details if faults else listings).append(_every_cell(task, found))
    return StudySection(
        "kept",
        "How much is kept",
        "What is kept of what the full cache has, on the same questions; bands and brackets are 95 % intervals over "
        "contexts.",
        tuple(styles.values()),
        tuple(pictures),
        tuple(listings),
        tuple(details),
    )


def _over_changed(task: MeasuredTask, fault: Damage, dtype: str) -> list[tuple[float, Estimate]]:
    levels = [level for level in task.evidence.levels(fault.policy) if level.amount]
    whole = Estimate(1.0, 1.0, 1.0, task.evidence.contexts)  # the full cache, from which curves begin
    return [(0.0, whole), *((fault.changed(one.value, dtype), task.kept(fault.policy, one)) for one in levels)]


def _by_rate(task: MeasuredTask, compared: Sequence[Damage], dtype: str) -> Listing:
    """Lists what each fault keeps at each rate, and how many numbers that is where it is another share."""
    cells = {}
    for one in compared:
        for level in task.evidence.levels(one.policy):
            changed = one.changed(level.value, dtype)
            numbers = "" if changed == level.value else f", {100 * changed:.3g} % of numbers"
            cells[one.policy, level] = f"{in_percent(task.kept(one.policy, level))}{numbers}"
    return level_table(f"Share kept by rate, {task.name}, percent", cells, first="treatment")


def _every_cell(task: MeasuredTask, found: Sequence[Damage]) -> Listing:
    rows = []
    for row in (task.row(one.policy, level) for one in found for level in task.evidence.levels(one.policy)):
        ends = (NONE if row[name] is None else f"{100 * row[name]:.0f}" for name in OUTCOMES)
        rows.append((row["policy"], f"{row['level']:g}", in_percent(row["share_kept"]), *ends))
    return Listing(f"Every treatment, {task.name}", LONG, tuple(rows))


FAMILIES = EVICTION, QUANTISATION, BOTH = "eviction", "quantisation", "both"
AXIS = "bytes held, percent of the full cache"


@dataclass(frozen=True)
class FrontierPoint:
    policy: str
    family: str
    level: Level
    held: float  # bytes, in percent of the full cache's
    score: FloatArray  # what leads the task, as a share of its highest value, shape (1 + resamples,)

    @property
    def place(self) -> tuple[float, float]:
        return self.held, float(100 * self.score[0])


def family_of(policy: str) -> str:
    """Tells what a policy does to the full cache; empty for controls, faults, wrappers and what is not known."""
    plain, way = plain_and_way(policy)
    if policy in CONTROLS:
        return ""
    if is_one_of(policy, FORMATS):
        return QUANTISATION
    if is_one_of(way, FORMATS) and family_of(plain) == EVICTION:
        return BOTH
    known = built_in(policy)
    return EVICTION if known and not is_treatment(policy) and policy == plain and known.frees else ""


def has_families(policies: Sequence[str]) -> bool:
    """Tells whether something is evicted, something stored in fewer bits, and something both."""
    return set(FAMILIES) <= {family_of(policy) for policy in policies}


def points_of(task: MeasuredTask, policies: Sequence[str]) -> list[FrontierPoint]:
    full = task.evidence.mean(FULL, None, "kv_bytes")[0]
    highest = (METRICS[task.column].bounds or (0, 1))[1]
    return [
        FrontierPoint(
            policy,
            family,
            level,
            float(100 * task.evidence.mean(policy, level.value, "kv_bytes")[0] / full),
            task.evidence.mean(policy, level.value, task.column) / highest,
        )
        for policy in policies
        if (family := family_of(policy))
        for level in task.evidence.levels(policy)
    ]


def front(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """Returns the Pareto front: the highest score at each byte count, by bytes; of equal ones the first."""
    found: list[FrontierPoint] = []
    for point in sorted(points, key=lambda one: (one.held, -one.score[0])):
        if not found or point.score[0] > found[-1].score[0]:
            found.append(point)
    return found


def equal_bytes(tasks: Sequence[MeasuredTask], policies: Sequence[str]) -> list[StudySection]:
    """Shows the front of each family; nothing where one has no policy."""
    if not has_families(policies):
        return []
    styles = named_styles(FAMILIES)
    pictures, fronts = [], []
    frame = Frame(Axis.up_to(AXIS, 100), Axis.up_to("", 100), corner="↖ better")
    columns = ("on the front", "way", "bytes, percent", "score, percent")
    for task in tasks:
        points = points_of(task, policies)
        marks: list[Dots | PolicyLine] = []
        for family, style in styles.items():
            own = [point for point in points if point.family == family]
            marks.append(Dots(style, tuple(point.place for point in own)))
            marks.append(PolicyLine(style, tuple(point.place for point in front(own))))
        drawing = Drawing(frame, tuple(marks), f"{task.title} over {AXIS}: {task.name}", f"bytes/{task.name}")
        pictures.append(Picture(task.name, f"{task.title}, percent", drawing.svg()))
        rows = tuple(
            (
                f"{one.policy} at {one.level}" if one.level.amount else one.policy,
                *(one.family, f"{one.held:.1f}", in_percent(task.estimate(one.score))),
            )
            for one in front(points)
        )
        fronts.append(Listing(f"The front of all, {task.name}", columns, rows))
    return [
        StudySection(
            "front",
            "Answers over bytes",
            "A dot for each policy and level, by the bytes that keys and values take. The line of a family is its "
            "Pareto front.",
            tuple(styles.values()),
            tuple(pictures),
            tuple(fronts),
        )
    ]


def bytes_sheet(tasks: Sequence[MeasuredTask], policies: Sequence[str]) -> Sheet:
    rows = []
    for task in tasks if has_families(policies) else ():
        points = points_of(task, policies)
        best = {id(point) for point in front(points)}
        rows += [
            {
                "task": task.name,
                "policy": point.policy,
                "way": point.family,
                "level": point.level.value,
                "held_percent": point.held,
                "share_kept": task.kept(point.policy, point.level),
                "on_front": id(point) in best,
            }
            for point in points
        ]
    return Sheet.of("treatments-bytes", "Answers over bytes", rows)


def content_of(given: StudyInput) -> StudyContent:
    tasks, unknown = measured_tasks(given.records)
    policies = policies_in(given.records)
    found = damages(policies)
    dtype = next((run["identity"]["dtype"] for run in given.runs if "identity" in run), "float32")
    parts = [_kept(tasks, found, dtype), *equal_bytes(tasks, policies)]
    cells = [
        task.row(one.policy, level) for task in tasks for one in found for level in task.evidence.levels(one.policy)
    ]
    sheets = (Sheet.of("treatments-kept", "What is kept with each treatment", cells), bytes_sheet(tasks, policies))
    facts = [
        *((f"Full cache, {task.name}", f"{task.title} {task.evidence.clean(task.column)[0]:.3g}") for task in tasks),
        ("Contexts", ", ".join(f"{task.evidence.contexts} of {task.name}" for task in tasks) or "none"),
        ("Draws of each", str(1 + int(given.records["repeat"].max()))),
        *(("Tells nothing", reason) for reason in unknown),
    ]
    shown = [part for part in parts if part.pictures or any(one.rows for one in part.listings)]
    return StudyContent(shown, facts, [sheet for sheet in sheets if sheet.rows])


def _takes(given: StudyInput) -> bool:
    """Takes runs of the full cache and a fault at two rates, errors beside fewer bits, or both ways to fewer bytes."""
    policies = policies_in(given.records)
    levels = given.records[given.records["level"] > 0].groupby("policy", observed=True)["level"].nunique()
    found = damages(policies)
    faults = [one.policy for one in found if isinstance(one.options, FaultOptions)]
    at_rates = any(levels.get(policy, 0) > 1 for policy in faults)
    return FULL in policies and (at_rates or 0 < len(faults) < len(found) or has_families(policies))


CHAPTER = Chapter(
    "treatments",
    "Faults, errors and bytes",
    (
        Definition(
            "Share kept",
            "What a treatment keeps of what the full cache has: right answers, next tokens, or directives obeyed where "
            "a task has directives, as a share of the full cache’s on the same questions, averaged over the draws of a "
            "random treatment. Its interval resamples contexts, for treatment and full cache together.",
            "kept = mean(lead | treated) / mean(lead | full cache)",
        ),
        Definition(
            "Where a treatment acts",
            "A fault hits a share of the rows of a place alone. Layers: Q1 to Q4 are quarters of the layers from the "
            "input on, H1 and H2 the halves. Tokens: evidence is the tokens of the sentences that the answer follows "
            "from, answer those of the answer itself, other all but the evidence, random as many tokens as carry "
            "evidence, of those that do not.",
        ),
        Definition(
            "The front, at equal bytes",
            "Bytes: what keys and values take once the context is read, codes with their scales and zero points, in "
            "percent of the full cache. On the front is what nothing else exceeds in as few bytes.",
        ),
    ),
)
STUDY = Study(
    name="treatments",
    title="Treatments of the cache",
    lead="The cache holds noise, rounded numbers, wrong signs, or fewer tokens. How much of that does an answer "
    "survive, in which layers and tokens, and what keeps most in as many bytes?",
    takes=_takes,
    find=content_of,
    chapter=CHAPTER,
)
