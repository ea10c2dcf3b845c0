"""The study of treatments: what is kept of the full cache's answers where the cache is damaged,
rounded or shrunk, and what eviction, fewer bits and both keep at equal bytes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pandas import DataFrame

from leaderboards.aggregate.row import DELTA_NLL
from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, policy_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import NONE, banded_line, curve, in_numbers, in_percent, level_table
from leaderboards.studies.treatments.bands import band_cells, band_section, bands_sheet
from leaderboards.studies.treatments.beside import (
    ModelPair,
    beside_sections,
    beside_sheet,
    pair_models,
)
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
from leaderboards.studies.treatments.types import (
    RECONSTRUCTION,
    measure_types,
    types_section,
    types_sheet,
)
from policies.declaration.levels import Level
from policies.declaration.names import FULL
from policies.faults.options import FaultOptions


def policies_in(records: DataFrame) -> Sequence[str]:
    return tuple(map(str, records["policy"].unique()))


@dataclass(frozen=True)
class Quantity:
    """Describes what a section shows of each treatment."""

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
BANDS = "on the same questions; bands and brackets are 95 % intervals over contexts."


def _kept(tasks: Sequence[MeasuredTask], group: DamageGroup, dtype: str) -> StudySection:
    """Shows what is kept over the share of numbers changed: faults of bits and of rows change
    others at one rate."""
    compared = {task.name: compared_faults(task, group.members) for task in tasks}
    styles = _styles_of_compared(group, compared)
    pictures, listings, details = list[Picture](), list[Listing](), list[Listing]()
    for task in tasks:
        faults = compared[task.name]
        every_cell = _every_cell(task, group.members)
        if faults:
            pictures.append(_over_changed(KEPT, task, faults, styles, dtype))
            listings.append(_by_rate(KEPT, task, faults, dtype))
            details.append(every_cell)
        else:
            listings.append(every_cell)
    return StudySection(
        f"kept{group.identifier}",
        group.title,
        f"{group.text}What is kept of what the full cache has, {BANDS}",
        tuple(styles.values()),
        tuple(pictures),
        listings=tuple(listings),
        details=tuple(details),
    )


def _styles_of_compared(
    group: DamageGroup, compared: Mapping[str, Sequence[Damage]]
) -> dict[str, LineStyle]:
    """Returns a style for each treatment that some task draws, in the order of the group."""
    drawn: set[str] = set()
    for faults in compared.values():
        drawn.update(fault.policy for fault in faults)
    return policy_styles(member.policy for member in group.members if member.policy in drawn)


def _risen(tasks: Sequence[MeasuredTask], group: DamageGroup, dtype: str) -> StudySection:
    """Shows by how much the right answer becomes less likely where the model cannot do the task."""
    shown = [task for task in tasks if task.shows_rise]
    compared = {task.name: compared_faults(task, group.members) for task in shown}
    styles = _styles_of_compared(group, compared)
    pictures, listings = list[Picture](), list[Listing]()
    for task in shown:
        faults = compared[task.name]
        if faults:
            pictures.append(_over_changed(RISEN, task, faults, styles, dtype))
        listings.append(_by_rate(RISEN, task, faults or group.members, dtype))
    title = DELTA_NLL.title
    if group.title != KEPT_TITLE:
        title = f"{title}: {group.title.lower()}"
    text = (
        f"{group.text}How much less likely the right answer becomes than with the full cache, in "
        f"nats a token, {BANDS} It moves before answers do, and comes first where the model cannot "
        "do the task: nothing is judged there."
    )
    return StudySection(
        f"rise{group.identifier}",
        title,
        text,
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
    untreated = quantity.untreated
    start = Estimate(untreated, untreated, untreated, task.evidence.contexts)
    lines = []
    places: list[float] = []
    for fault in reversed(faults):
        points = []
        for level in task.evidence.levels(fault.policy):
            estimate = None
            # The untreated level is the start of every line already.
            if level.amount:
                estimate = quantity.of(task, fault.policy, level)
            if estimate is not None:
                place = fault.changed(level.value, dtype)
                points.append((place, estimate))
                places.append(place)
        if points:
            lines.append(banded_line(styles[fault.policy], [(0.0, start), *points]))
    axis = Axis.from_values("share of numbers changed", places)
    return curve(task.label, quantity.note, lines, axis, f"{quantity.note}/{task.name}")


def _by_rate(
    quantity: Quantity, task: MeasuredTask, compared: Sequence[Damage], dtype: str
) -> Listing:
    """Lists what comes of each fault at each rate, and how many numbers that is where it is another
    share."""
    texts = {}
    for fault in compared:
        for level in task.evidence.levels(fault.policy):
            text = quantity.text(quantity.of(task, fault.policy, level))
            changed = fault.changed(level.value, dtype)
            if changed != level.value:
                text = f"{text}, {100 * changed:.3g} % of numbers"
            texts[fault.policy, level] = text
    title = f"{quantity.heading}, {task.label}, {quantity.unit}"
    return level_table(title, texts, first="treatment")


def _every_cell(task: MeasuredTask, members: Sequence[Damage]) -> Listing:
    columns = ["treatment", "level"]
    if task.shows_rise:
        columns.append("NLL rise, nats")
    columns.append("share kept, percent")
    for name in OUTCOMES.values():
        columns.append(f"{name}, percent")
    lines = []
    for row in _rows(task, members):
        texts = [row["policy"], format(row["level"], "g")]
        if task.shows_rise:
            texts.append(in_numbers(row[RISE]))
        texts.append(in_percent(row["share_kept"]))
        for name in OUTCOMES:
            share = row[name]
            texts.append(NONE if share is None else f"{100 * share:.0f}")
        lines.append(tuple(texts))
    return Listing(f"Every treatment, {task.label}", tuple(columns), tuple(lines))


def _rows(task: MeasuredTask, members: Sequence[Damage]) -> Iterator[dict[str, Any]]:
    """Yields the row of each treatment at each of its levels."""
    for member in members:
        for level in task.evidence.levels(member.policy):
            yield task.row(member.policy, level)


def _full_cache_fact(task: MeasuredTask) -> str:
    """Says what the full cache has of a task, and what follows where that is little."""
    if task.withheld:
        return f"{task.withheld}: numbers are shown, verdicts are withheld"
    return f"{task.title} {task.evidence.mean(FULL, None, task.column)[0]:.3g}"


def build_content(study_input: StudyInput) -> StudyContent:
    """Shows what treatments keep: by phase, by band of layers, at equal bytes, and beside other
    models."""
    tasks, unknown = measured_tasks(study_input.records)
    policies = policies_in(study_input.records)
    members = damages(policies)
    dtype = _dtype(study_input)
    cells_of_bands = band_cells(tasks, members)
    groups = group_damages(members)
    # The rise first, as it says something also where the model cannot do the task.
    parts = [_risen(tasks, group, dtype) for group in groups]
    parts += [_kept(tasks, group, dtype) for group in groups]
    cells_of_types = measure_types(tasks, policies, study_input.tables.get(RECONSTRUCTION))
    parts += [*band_section(cells_of_bands), *types_section(tasks, cells_of_types)]
    parts += equal_bytes(tasks, policies)
    all_pairs: list[ModelPair] = []
    number = 0
    for other in study_input.beside:
        # Two models stand beside one another once, on the page of the first.
        if other.number > study_input.number:
            number += 1
            pairs = pair_models(study_input, other)
            parts += beside_sections(pairs, members, number)
            all_pairs += pairs
    rows: list[dict[str, Any]] = []
    for task in tasks:
        rows += _rows(task, members)
    sheets = (
        Sheet.of("treatments-kept", "What is kept with each treatment", rows),
        bands_sheet(cells_of_bands),
        types_sheet(cells_of_types),
        bytes_sheet(tasks, policies),
        beside_sheet(all_pairs, members),
    )
    shown = [part for part in parts if part.pictures or part.maps or _has_rows(part)]
    facts: list[tuple[str, str]] = []
    for task in tasks:
        facts.append((f"Full cache, {task.name}", _full_cache_fact(task)))
    facts.append(("Contexts", _contexts(tasks)))
    facts.append(("Draws of each", str(1 + int(study_input.records["repeat"].max()))))
    for reason in unknown:
        facts.append(("Tells nothing", reason))
    return StudyContent(shown, facts, [sheet for sheet in sheets if sheet.rows])


def _dtype(study_input: StudyInput) -> str:
    """Returns the dtype of the first run that says which."""
    for run in study_input.runs:
        if "identity" in run:
            return str(run["identity"]["dtype"])
    return "float32"


def _contexts(tasks: Sequence[MeasuredTask]) -> str:
    counts = [f"{task.evidence.contexts} of {task.name}" for task in tasks]
    return ", ".join(counts) or "none"


def _has_rows(part: StudySection) -> bool:
    return any(listing.rows for listing in part.listings)


def has_treatments(study_input: StudyInput) -> bool:
    """Tells whether results have a fault at two rates, errors beside fewer bits, or both ways to
    fewer bytes."""
    records = study_input.records
    policies = policies_in(records)
    treated = records[records["level"] > 0]
    # One rate is no curve, and a fault at rate 0 is none.
    levels = treated.groupby("policy", observed=True)["level"].nunique()
    members = damages(policies)
    faults = 0
    for member in members:
        if isinstance(member.options, FaultOptions):
            faults += 1
            if levels.get(member.policy, 0) > 1:
                return True
    return 0 < faults < len(members) or has_families(policies)
