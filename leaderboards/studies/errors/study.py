"""The study of errors: what is left where every number of the cache is a little off, beside the tables of text E."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leaderboards.downloads.sheets import Sheet
from leaderboards.figures.panels import BandedLine, fitted, panel
from leaderboards.metrics.declaration.definition import Chapter, Definition
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.errors.published import (
    BIASED,
    CENTRED,
    FLIPPED,
    NORMALS,
    ROWS,
    SAME_SIGN,
    WIDE,
    ReportedFigures,
    remark_on_bits,
    remark_on_normal,
    remark_on_uniform,
)
from leaderboards.studies.errors.treatments import BITS, BOTH, ErrorTreatment, treatments_among
from leaderboards.studies.treatments.measured import (
    OUTCOMES,
    MeasuredTask,
    facts_of,
    kept_cells,
    measured_tasks,
    policies_in,
)
from leaderboards.studies.treatments.parts import KEPT, in_percent, in_points, is_clear
from leaderboards.studies.treatments.published import IFEVAL, NEXT_TOKEN, TEXT_E
from policies.declaration.levels import RATE, Level
from policies.declaration.names import FULL

AS_WIDE = "multiplicative_normal(std=0.87)"  # of the spread of uniform(-1.5, 1.5)
REMARKS = (f"E1: {remark_on_bits()}", f"E2: {remark_on_uniform()}", f"E5: {remark_on_normal()}")


@dataclass(frozen=True)
class TreatmentCell:
    """A treatment as a run has it."""

    treatment: ErrorTreatment
    level: float

    @property
    def name(self) -> str:
        at = f" at {Level(RATE.name, self.level)}" if self.level != 1 and self.treatment.sort != BITS else ""
        return f"{self.treatment.policy}{at}"


def cells_of(task: MeasuredTask, treatments: Sequence[ErrorTreatment]) -> list[TreatmentCell]:
    """Returns the treatments that a task was run with, at their levels."""
    known = [one for one in treatments if one.policy in task.evidence.policies]
    return [TreatmentCell(one, level) for one in known for level in task.levels(one.policy)]


def of_control(tasks: Sequence[MeasuredTask], treatments: Sequence[ErrorTreatment]) -> list[StudySection]:
    """Lists the percent of the control that each treatment keeps, beside the figures of text E."""
    listings = []
    for task in tasks:
        rows = []
        cells = [cell for cell in cells_of(task, treatments) if cell.treatment.tensor == BOTH]
        for cell in cells:
            treated = cell.level or cell.treatment.sort == BITS  # an error at rate 0 is none
            theirs = next((row for row in ROWS if treated and row.policy == cell.treatment.policy), None)
            kept = in_percent(task.estimate(task.share_kept(cell.treatment.policy, cell.level)))
            rows.append((cell.name, cell.treatment.sort, kept, str(task.evidence.contexts), *_figures_of_text(theirs)))
        run = {cell.treatment.policy for cell in cells}
        rows += [(row.policy, "–", "not run", "–", *_figures_of_text(row)) for row in ROWS if row.policy not in run]
        columns = ("our treatment", "error", "percent of the control", "contexts", IFEVAL, NEXT_TOKEN)
        listings.append(Listing(f"Percent of the control, {task.title.lower()}: {task.name}", columns, tuple(rows)))
    text = (
        "Text E asks IFEval and next tokens of Llama 3.2 1B; ours are directives, questions and running text, with "
        "the same treatments and 95 % intervals over contexts. Other models and other tasks: what can be compared is "
        "the order. Where the text’s own counts give another share than it prints, both are there."
    )
    return [StudySection("control", "Percent of the control", text, listings=tuple(listings))] if listings else []


def _figures_of_text(row: ReportedFigures | None) -> tuple[str, str]:
    if row is None:
        return "–", "–"
    next_tokens = ", ".join(
        f"{100 * one.printed:.0f}" + ("" if one.agrees else f" (by its counts {100 * (one.share or 0):.0f})")
        for one in row.next_token
    )
    return "–" if row.ifeval is None else f"{100 * row.ifeval:.0f}", next_tokens or row.words or "–"


def contradictions(tasks: Sequence[MeasuredTask], treatments: Sequence[ErrorTreatment]) -> list[StudySection]:
    """Tells where the numbers of text E contradict its words, with the arithmetic."""
    rows = tuple(
        (row.policy, f"{figure.printed:.2f}", figure.arithmetic, f"{figure.share - figure.printed:+.2f}")
        for row in ROWS
        for figure in row.next_token
        if figure.share is not None and not figure.agrees
    )
    listing = Listing(
        "Next tokens of text E", ("our treatment", "printed", "by its own counts", "counts − printed"), rows
    )
    return [StudySection("contradictions", "Where the text contradicts itself", " ".join(REMARKS), listings=(listing,))]


def tensors(tasks: Sequence[MeasuredTask], treatments: Sequence[ErrorTreatment]) -> list[StudySection]:
    """Sets keys against values."""
    listings = []
    for task in tasks:
        rows = tuple(_rows_by_tensor(task, treatments))
        columns = ("our treatment", "keys and values", "keys alone", "values alone", "K − V, points")
        listings.append(Listing(f"Share kept, percent: {task.name}", columns, rows))
    text = "The same error in keys, in values, and in both; the difference is paired by question."
    part = StudySection("tensors", "Keys against values", text, listings=tuple(one for one in listings if one.rows))
    return [part] if part.listings else []


def _rows_by_tensor(task: MeasuredTask, treatments: Sequence[ErrorTreatment]) -> Iterator[tuple[str, ...]]:
    cells = cells_of(task, treatments)
    by_tensor = {(cell.treatment.everywhere, cell.level, cell.treatment.tensor): cell for cell in cells}
    for cell in (one for one in cells if one.treatment.tensor == "K"):
        there = [by_tensor.get((cell.treatment.everywhere, cell.level, tensor)) for tensor in (BOTH, "K", "V")]
        kept = [None if one is None else task.share_kept(one.treatment.policy, one.level) for one in there]
        shares = ("–" if one is None else in_percent(task.estimate(one)) for one in kept)
        _, keys, values = kept
        against = "–" if keys is None or values is None else in_points(task.estimate(keys - values))
        name = cell.name.replace(cell.treatment.policy, cell.treatment.everywhere)
        yield (name, *shares, against)


# What claims E3 to E5 set against one another, and a normal error of the very spread of the uniform one.
PAIRS = ((BIASED, CENTRED), (FLIPPED, SAME_SIGN), (NORMALS[-1], WIDE), (AS_WIDE, WIDE))


def pairs_of_errors(tasks: Sequence[MeasuredTask], treatments: Sequence[ErrorTreatment]) -> list[StudySection]:
    """Sets errors against one another that differ in one thing: their bias, their signs, or their distribution."""
    names = {one.policy for one in treatments}
    pairs = [pair for pair in PAIRS if names.issuperset(pair)]
    listings = []
    for task in tasks:
        rows = []
        for one, other in pairs:
            level = max(task.levels(one))
            first, second = (task.share_kept(policy, level) for policy in (one, other))
            difference = task.estimate(first - second)
            shares = (in_percent(task.estimate(share)) for share in (first, second))
            verdict = "yes" if is_clear(difference) else "no"
            rows.append((f"{one} − {other}", *shares, in_points(difference), verdict))
        columns = ("pair", "first keeps", "second keeps", "difference of shares", "order is clear")
        listings.append(Listing(f"Errors set against one another, percent: {task.name}", columns, tuple(rows)))
    text = (
        "A biased error has the spread of the centred one. same_sign has the root mean square of sign_flip, and turns "
        "no sign. The normal errors stand against a uniform one of spread 0.87: of a smaller spread, as in text E, "
        "and of the same. Differences are paired by question; claims E3 to E5 judge them."
    )
    return (
        [StudySection("matched", "Errors of matched size", text, listings=tuple(listings))]
        if pairs and listings
        else []
    )


def outcomes(tasks: Sequence[MeasuredTask], treatments: Sequence[ErrorTreatment]) -> list[StudySection]:
    """Lists how answers end."""
    listings = []
    for task in (task for task in tasks if task.has_outcomes):
        rows = []
        for cell in cells_of(task, treatments):
            shares = task.outcomes(cell.treatment.policy, cell.level)
            rows.append((cell.name, *(f"{100 * shares[name]:.0f}" for name in OUTCOMES)))
        columns = ("our treatment", "masked, percent", "corrupted, percent", "DUE, percent")
        listings.append(Listing(f"How answers end: {task.name}", columns, tuple(rows)))
    text = (
        "Against the full cache’s own answer, right or wrong: masked is the same answer, corrupted another one, DUE "
        "one with infinity or NaN, or without an end."
    )
    return [StudySection("outcomes", "How answers end", text, listings=tuple(listings))] if listings else []


WHOLE = 1.0  # the rate at which every number is off


def content_of(given: StudyInput) -> StudyContent:
    """Computes all parts of the page, its download, and the numbers that are worth quoting."""
    tasks, unknown = measured_tasks(given.records)
    treatments = treatments_among(policies_in(given.records))
    finders = (of_control, contradictions, spreads, pairs_of_errors, tensors, outcomes)
    cells = kept_cells(tasks, [one.policy for one in treatments])
    columns = ("task", "policy", "level", *OUTCOMES)
    return StudyContent(
        parts=[part for find in finders for part in find(tasks, treatments)],
        facts=facts_of(tasks, unknown, given.records),
        sheets=[Sheet.of("errors-kept", "What is kept with each error", cells, columns)] if cells else [],
        quoted={"kept": [_numbers_to_quote(cell) for cell in cells]},
    )


def _numbers_to_quote(cell: dict[str, object]) -> dict[str, object]:
    kept = cell["share_kept"]
    assert isinstance(kept, Estimate)
    return {name: cell[name] for name in ("task", "policy", "level")} | {
        "kept": kept.mean,
        "low": kept.low,
        "high": kept.high,
    }


def spreads(tasks: Sequence[MeasuredTask], treatments: Sequence[ErrorTreatment]) -> list[StudySection]:
    """Draws what is kept over the spread of noise in every number, by its distribution."""
    noise = [one for one in treatments if one.spread is not None and one.tensor == BOTH]
    styles = named_styles(list(dict.fromkeys(map(_line, noise))))
    if not noise or not tasks:
        return []
    return [
        StudySection(
            "spreads",
            "Over the spread of the error",
            "Every number of keys and values is multiplied by 1 + an error; the spread is its standard deviation. A "
            "biased error is not 0 on average. Bands are 95 % intervals over contexts.",
            tuple(styles.values()),
            tuple(_picture(task, noise, styles) for task in tasks),
        )
    ]


def _line(treatment: ErrorTreatment) -> str:
    return treatment.sort if treatment.centred else f"{treatment.sort}, biased"


def _picture(task: MeasuredTask, noise: Sequence[ErrorTreatment], styles: dict[str, LineStyle]) -> Picture:
    paths = []
    for line, style in styles.items():
        own = sorted((one.spread or 0.0, one.policy) for one in noise if _line(one) == line)
        places = [(0.0, Estimate(1.0, 1.0, 1.0, task.evidence.contexts))]
        places += [(spread, task.estimate(task.share_kept(policy, WHOLE))) for spread, policy in own]
        has_band = all(one.low is not None for _, one in places)
        low, high = (
            tuple(float(getattr(one, end)) for _, one in places) if has_band else () for end in ("low", "high")
        )
        paths.append(BandedLine(style, tuple((spread, one.mean) for spread, one in places), low, high))
    horizontal = Axis.from_values("spread of the error", [spread for path in paths for spread, _ in path.places])
    title = f"{KEPT} over the spread of the error: {task.name}"
    drawing = panel(paths, horizontal, fitted(paths), title, f"spreads/{task.name}")
    return Picture(task.name, f"{KEPT}, {task.title.lower()}", Markup(drawing))


def _takes(given: StudyInput) -> bool:
    """Takes runs with the full cache, with numbers in fewer bits, and with an error of numbers."""
    policies = policies_in(given.records)
    sorts = {one.sort for one in treatments_among(policies)}
    return (
        FULL in policies and BITS in sorts and len(sorts) > 1 and all(run["status"] == "complete" for run in given.runs)
    )


CHAPTER = Chapter(
    "errors",
    "Errors of every number",
    (
        Definition(
            "Error of a number",
            "Fewer bits: numbers are stored with rounding. Uniform and normal: each is multiplied by 1 + a draw, of a "
            "range or of a normal distribution. Constant: each is shifted by the same, in spreads of its layer. Signs: "
            "some numbers change their sign, or are off by as much without. Two treatments that are set against one "
            "another answer the same questions, and their difference is resampled with both.",
            names=(
                *("error", "first keeps", "second keeps", "difference of shares"),
                *("keys and values", "keys alone", "values alone", "K − V, points"),
                *("masked, percent", "corrupted, percent", "DUE, percent"),
            ),
        ),
        Definition(
            "Counts against what is printed",
            "The text gives both how many next tokens are right and which share of the control that is. Where the two "
            "differ, both are shown.",
            "share by its counts = right next tokens / right next tokens of the control",
            TEXT_E,
            names=("printed", "by its own counts", "counts − printed"),
        ),
    ),
)
STUDY = Study(
    name="errors",
    title="Errors of the cache",
    lead="Every number of the cache is a little off: rounded, noisy, shifted, or of the wrong sign. How much of that "
    "does a model bear, and do keys bear what values do?",
    takes=_takes,
    find=content_of,
    chapter=CHAPTER,
)
