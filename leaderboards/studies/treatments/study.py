"""The study of treatments: what is kept of the full cache's answers where the cache is damaged, rounded or shrunk."""

from collections.abc import Sequence

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Chapter, Definition
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import policy_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import NONE, curve, in_percent, level_table, line_of
from leaderboards.studies.treatments.equal_bytes import bytes_sheet, equal_bytes, has_families
from leaderboards.studies.treatments.measured import (
    OUTCOMES,
    Damage,
    MeasuredTask,
    damages,
    measured_tasks,
    policies_in,
)
from policies.declaration.names import FULL
from policies.faults.options import FaultOptions

KEPT = "share kept"
LONG = ("treatment", "level", "share kept, percent", *(f"{name}, percent" for name in OUTCOMES.values()))


def compared_faults(task: MeasuredTask, found: Sequence[Damage]) -> list[Damage]:
    """Returns the faults that were run at the rates of the most, two or more, the least harmful first."""
    usual = max((task.levels(one.policy) for one in found), key=len, default=())
    if len([level for level in usual if level.amount]) < 2:
        return []
    compared = [one for one in found if task.levels(one.policy) == usual]
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
    levels = [level for level in task.levels(fault.policy) if level.amount]
    whole = Estimate(1.0, 1.0, 1.0, task.evidence.contexts)  # the full cache, from which curves begin
    return [(0.0, whole), *((fault.changed(one.value, dtype), task.kept(fault.policy, one)) for one in levels)]


def _by_rate(task: MeasuredTask, compared: Sequence[Damage], dtype: str) -> Listing:
    """Lists what each fault keeps at each rate, and how many numbers that is where it is another share."""
    cells = {}
    for one in compared:
        for level in task.levels(one.policy):
            changed = one.changed(level.value, dtype)
            numbers = "" if changed == level.value else f", {100 * changed:.3g} % of numbers"
            cells[one.policy, level] = f"{in_percent(task.kept(one.policy, level))}{numbers}"
    return level_table(f"Share kept by rate, {task.name}, percent", cells, first="treatment")


def _every_cell(task: MeasuredTask, found: Sequence[Damage]) -> Listing:
    rows = []
    for row in (task.row(one.policy, level) for one in found for level in task.levels(one.policy)):
        ends = (NONE if row[name] is None else f"{100 * row[name]:.0f}" for name in OUTCOMES)
        rows.append((row["policy"], f"{row['level']:g}", in_percent(row["share_kept"]), *ends))
    return Listing(f"Every treatment, {task.name}", LONG, tuple(rows))


def content_of(given: StudyInput) -> StudyContent:
    tasks, unknown = measured_tasks(given.records)
    policies = policies_in(given.records)
    found = damages(policies)
    dtype = next((run["identity"]["dtype"] for run in given.runs if "identity" in run), "float32")
    parts = [_kept(tasks, found, dtype), *equal_bytes(tasks, policies)]
    cells = [task.row(one.policy, level) for task in tasks for one in found for level in task.levels(one.policy)]
    sheets = (Sheet.of("treatments-kept", "What is kept with each treatment", cells), bytes_sheet(tasks, policies))
    facts = [
        *((f"Full cache, {task.name}", f"{task.title} {task.clean[0]:.3g}") for task in tasks),
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
