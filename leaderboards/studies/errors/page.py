"""Puts together the page on errors."""

from collections.abc import Sequence

from markupsafe import Markup

from leaderboards.downloads.sheets import Sheet
from leaderboards.figures.panels import BandedLine, fitted, panel
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.statistics.resampling import Estimate
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.errors.tables import contradictions, of_control, outcomes, pairs_of_errors, tensors
from leaderboards.studies.errors.treatments import BOTH, ErrorTreatment, treatments_among
from leaderboards.studies.treatments.measured import (
    OUTCOMES,
    MeasuredTask,
    facts_of,
    kept_cells,
    measured_tasks,
    policies_in,
)
from leaderboards.studies.treatments.parts import KEPT

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
