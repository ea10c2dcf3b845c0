"""The study of treatments: what is kept of the full cache's answers where the cache is damaged, rounded or shrunk, and
what eviction, fewer bits and both keep at equal bytes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pandas import DataFrame

from leaderboards.aggregate.row import DELTA_NLL
from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Chapter, Definition
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, policy_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import NONE, banded_line, curve, in_numbers, in_percent, level_table
from leaderboards.studies.treatments.bands import band_cells, band_section, bands_sheet
from leaderboards.studies.treatments.beside import beside_section, beside_sheet, pair_models
from leaderboards.studies.treatments.bytes import bytes_sheet, equal_bytes, has_families
from leaderboards.studies.treatments.damage import (
    KEPT_TITLE,
    Damage,
    DamageGroup,
    compared_faults,
    damages,
    group_damages,
)
from leaderboards.studies.treatments.tasks import OUTCOMES, RISE, MeasuredTask, measured_tasks
from policies.declaration.levels import Level
from policies.declaration.names import FULL
from policies.faults.options import FaultOptions


def policies_in(records: DataFrame) -> Sequence[str]:
    return tuple(map(str, records["policy"].unique()))


@dataclass(frozen=True)
class Quantity:
    """What a section shows of each treatment."""

    note: str  # beside the title of its picture
    heading: str  # of its table by rate, to which the task is added
    unit: str
    untreated: float  # what the full cache has, from which curves begin
    of: Callable[[MeasuredTask, str, Level], Estimate | None]
    text: Callable[[Estimate | None], str]


KEPT = Quantity("share kept", "Share kept by rate", "percent", 1.0, MeasuredTask.kept, in_percent)
RISEN = Quantity(
    f"rise in {DELTA_NLL.unit}",
    f"{DELTA_NLL.title} by rate",
    DELTA_NLL.unit,
    0.0,
    MeasuredTask.rise,
    in_numbers,
)
LONG = (
    "treatment",
    "level",
    "share kept, percent",
    *(f"{name}, percent" for name in OUTCOMES.values()),
)
BANDS = "on the same questions; bands and brackets are 95 % intervals over contexts."


def _kept(tasks: Sequence[MeasuredTask], group: DamageGroup, dtype: str) -> StudySection:
    """Shows what is kept over the share of numbers changed: faults of bits and of rows change others at one rate."""
    found = group.members
    compared = {task.name: compared_faults(task, found) for task in tasks}
    shown = {one.policy for of_task in compared.values() for one in of_task}
    styles = policy_styles([one.policy for one in found if one.policy in shown])
    listings, details = list[Listing](), list[Listing]()
    for task in tasks:
        faults = compared[task.name]
        if faults:
            listings.append(_by_rate(KEPT, task, faults, dtype))
        (details if faults else listings).append(_every_cell(task, found))
    pictures = [
        _over_changed(KEPT, task, compared[task.name], styles, dtype)
        for task in tasks
        if compared[task.name]
    ]
    text = f"{group.text}What is kept of what the full cache has, {BANDS}"
    drawn = (tuple(styles.values()), tuple(pictures))
    return StudySection(
        f"kept{group.identifier}",
        group.title,
        text,
        *drawn,
        listings=tuple(listings),
        details=tuple(details),
    )


def _risen(tasks: Sequence[MeasuredTask], group: DamageGroup, dtype: str) -> StudySection:
    """Shows by how much the right answer becomes less likely where the model cannot do the task."""
    found = group.members
    shown = [task for task in tasks if task.shows_rise]
    compared = {task.name: compared_faults(task, found) for task in shown}
    drawn = {one.policy for of_task in compared.values() for one in of_task}
    styles = policy_styles([one.policy for one in found if one.policy in drawn])
    pictures = [
        _over_changed(RISEN, task, compared[task.name], styles, dtype)
        for task in shown
        if compared[task.name]
    ]
    listings = [_by_rate(RISEN, task, compared[task.name] or found, dtype) for task in shown]
    return StudySection(
        f"rise{group.identifier}",
        DELTA_NLL.title
        if group.title == KEPT_TITLE
        else f"{DELTA_NLL.title}: {group.title.lower()}",
        f"{group.text}How much less likely the right answer becomes than with the full cache, in nats a token, {BANDS} "
        "It moves before answers do, and comes first where the model cannot do the task: nothing is judged there.",
        tuple(styles.values()),
        tuple(pictures),
        listings=tuple(listings),
    )


def _over_changed(
    quantity: Quantity,
    task: MeasuredTask,
    faults: Sequence[Damage],
    styles: Mapping[str, LineStyle],
    dtype: str,
) -> Picture:
    """Draws a line for each fault over the share of numbers changed, from the full cache on."""
    start = Estimate(
        quantity.untreated, quantity.untreated, quantity.untreated, task.evidence.contexts
    )
    lines = []
    for fault in reversed(faults):
        levels = [level for level in task.evidence.levels(fault.policy) if level.amount]
        places = [fault.changed(level.value, dtype) for level in levels]
        estimates = [quantity.of(task, fault.policy, level) for level in levels]
        points = [
            (place, one) for place, one in zip(places, estimates, strict=True) if one is not None
        ]
        if points:
            lines.append(banded_line(styles[fault.policy], [(0.0, start), *points]))
    axis = Axis.from_values(
        "share of numbers changed", [x for line in lines for x, _ in line.places]
    )
    return curve(task.label, quantity.note, lines, axis, f"{quantity.note}/{task.name}")


def _by_rate(
    quantity: Quantity, task: MeasuredTask, compared: Sequence[Damage], dtype: str
) -> Listing:
    """Lists what comes of each fault at each rate, and how many numbers that is where it is another share."""
    cells = {}
    for one in compared:
        for level in task.evidence.levels(one.policy):
            changed = one.changed(level.value, dtype)
            numbers = "" if changed == level.value else f", {100 * changed:.3g} % of numbers"
            cells[one.policy, level] = (
                f"{quantity.text(quantity.of(task, one.policy, level))}{numbers}"
            )
    return level_table(
        f"{quantity.heading}, {task.label}, {quantity.unit}", cells, first="treatment"
    )


def _every_cell(task: MeasuredTask, found: Sequence[Damage]) -> Listing:
    rows = []
    for row in (
        task.row(one.policy, level) for one in found for level in task.evidence.levels(one.policy)
    ):
        ends = (NONE if row[name] is None else f"{100 * row[name]:.0f}" for name in OUTCOMES)
        rise = (in_numbers(row[RISE]),) if task.shows_rise else ()
        rows.append(
            (row["policy"], f"{row['level']:g}", *rise, in_percent(row["share_kept"]), *ends)
        )
    columns = (*LONG[:2], "NLL rise, nats", *LONG[2:]) if task.shows_rise else LONG
    return Listing(f"Every treatment, {task.label}", columns, tuple(rows))


def _full_cache_fact(task: MeasuredTask) -> str:
    """Says what the full cache has of a task, and what follows where that is little."""
    if task.withheld:
        return f"{task.withheld}: numbers are shown, verdicts are withheld"
    return f"{task.title} {task.evidence.mean(FULL, None, task.column)[0]:.3g}"


def build_content(study_input: StudyInput) -> StudyContent:
    tasks, unknown = measured_tasks(study_input.records)
    policies = policies_in(study_input.records)
    found = damages(policies)
    dtype = next(
        (run["identity"]["dtype"] for run in study_input.runs if "identity" in run), "float32"
    )
    cells_of_bands = band_cells(tasks, found)
    groups = group_damages(found)
    parts = [_risen(tasks, group, dtype) for group in groups]
    parts += [_kept(tasks, group, dtype) for group in groups]
    parts += [*band_section(cells_of_bands), *equal_bytes(tasks, policies)]
    # Two models stand beside one another once, on the page of the first.
    pairs = [
        pair_models(study_input, other)
        for other in study_input.beside
        if other.number > study_input.number
    ]
    sections = [
        beside_section(of_model, found, number) for number, of_model in enumerate(pairs, start=1)
    ]
    parts += [one for one in sections if one is not None]
    cells = [
        task.row(one.policy, level)
        for task in tasks
        for one in found
        for level in task.evidence.levels(one.policy)
    ]
    sheets = (
        Sheet.of("treatments-kept", "What is kept with each treatment", cells),
        bands_sheet(cells_of_bands),
        bytes_sheet(tasks, policies),
        beside_sheet([pair for of_model in pairs for pair in of_model], found),
    )
    facts = [
        *((f"Full cache, {task.name}", _full_cache_fact(task)) for task in tasks),
        (
            "Contexts",
            ", ".join(f"{task.evidence.contexts} of {task.name}" for task in tasks) or "none",
        ),
        ("Draws of each", str(1 + int(study_input.records["repeat"].max()))),
        *(("Tells nothing", reason) for reason in unknown),
    ]
    shown = [
        part
        for part in parts
        if part.pictures or part.maps or any(one.rows for one in part.listings)
    ]
    return StudyContent(shown, facts, [sheet for sheet in sheets if sheet.rows])


def _takes(study_input: StudyInput) -> bool:
    """Takes runs of the full cache and a fault at two rates, errors beside fewer bits, or both ways to fewer bytes."""
    policies = policies_in(study_input.records)
    levels = (
        study_input.records[study_input.records["level"] > 0]
        .groupby("policy", observed=True)["level"]
        .nunique()
    )
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
            "Rise of the right answer’s NLL, of a treatment",
            "By how many nats a token the right answer becomes less likely than with the full cache, mean over the "
            "answers that did not fail. It comes first where the model cannot do the task, where nothing is put in "
            "order, and no front is drawn.",
            "rise = mean(gold_nll | treated − gold_nll | full cache)",
        ),
        Definition(
            "Where a treatment acts",
            "A fault hits a share of the entries of a place alone. An entry is a row, which one head of one layer "
            "stores for one token, or with unit=value a single number of a row. Layers: Q1 to Q4 are quarters of the "
            "layers from the input on, H1 and H2 the halves. Tokens: evidence is the tokens of the sentences that the "
            "answer follows from, answer those of the answer itself, other all but the evidence, random as many tokens "
            "as carry evidence, of those that do not.",
        ),
        Definition(
            "When a treatment acts",
            "Replaced while answers are written (phase=every_step, persistence=transient): anew before every pass, by "
            "a draw of its own, and clean again behind it. Once as written (phase=write): every row of context, "
            "question and answer as it enters the cache, so that all reads see it. Damaged once (phase=resident): "
            "before the question is read, for good.",
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
    find=build_content,
    chapter=CHAPTER,
)
