"""Puts together the page on faults."""

from typing import Any

from leaderboards.downloads.sheets import Sheet
from leaderboards.statistics.resampling import Estimate
from leaderboards.studies.declaration import StudyContent, StudyInput
from leaderboards.studies.faults.kinds import areas, kinds, outcomes, without_aim
from leaderboards.studies.faults.places import aims, bands, figures_of_text, tensors
from leaderboards.studies.treatments.damage import Damage, damages
from leaderboards.studies.treatments.measured import (
    OUTCOMES,
    MeasuredTask,
    facts_of,
    kept_cells,
    measured_tasks,
    policies_in,
)


def content_of(given: StudyInput) -> StudyContent:
    """Computes all parts of the page, its downloads, and the numbers that are worth quoting."""
    tasks, unknown = measured_tasks(given.records)
    faults = damages(policies_in(given.records))
    dtype = next((run["identity"]["dtype"] for run in given.runs if "identity" in run), "float32")
    parts = kinds(tasks, faults, dtype)
    parts += [part for find in (bands, aims, tensors, outcomes, figures_of_text) for part in find(tasks, faults)]
    return StudyContent(
        parts=parts,
        facts=[("Faults", str(len(faults))), *facts_of(tasks, unknown, given.records)],
        sheets=_sheets(tasks, faults, dtype),
        quoted=_numbers_to_quote(tasks, faults, dtype),
    )


def _sheets(tasks: list[MeasuredTask], faults: list[Damage], dtype: str) -> list[Sheet]:
    cells = kept_cells(tasks, [fault.policy for fault in faults])
    of_kinds = [
        {"task": task.name, "policy": fault.policy, "area_over_changed": task.estimate(values)}
        for task in tasks
        for fault, values in areas(task, without_aim(faults), dtype)
    ]
    sheets = (
        Sheet.of("faults-kept", "What is kept with each fault", cells, ("task", "policy", "level", *OUTCOMES)),
        Sheet.of("faults-areas", "Areas of faults over the share of numbers changed", of_kinds, ("task", "policy")),
    )
    return [sheet for sheet in sheets if sheet.rows]


def _numbers_to_quote(tasks: list[MeasuredTask], faults: list[Damage], dtype: str) -> dict[str, Any]:
    return {
        "areas": [
            {"task": task.name, "policy": fault.policy, **_numbers(task.estimate(values))}
            for task in tasks
            for fault, values in areas(task, without_aim(faults), dtype)
        ]
    }


def _numbers(estimate: Estimate) -> dict[str, float | None]:
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
