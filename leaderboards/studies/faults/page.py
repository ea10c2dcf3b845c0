"""Puts together the page on faults."""

from typing import Any

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics import METRICS
from leaderboards.statistics.resampling import Estimate
from leaderboards.studies.declaration import StudyContent, StudyInput
from leaderboards.studies.faults.kinds import areas, kinds, outcomes, untargeted
from leaderboards.studies.faults.places import aims, bands, published, tensors
from leaderboards.studies.treatments.damage import Damage, damages
from leaderboards.studies.treatments.measured import OUTCOMES, MeasuredTask, measured_tasks, policies_in


def content_of(given: StudyInput) -> StudyContent:
    """Computes all parts of the page, its downloads, and the numbers that are worth quoting."""
    tasks, unknown = measured_tasks(given.records)
    faults = damages(policies_in(given.records))
    parts = [part for find in (kinds, bands, aims, tensors, outcomes, published) for part in find(tasks, faults)]
    return StudyContent(
        parts=parts,
        facts=[*_facts(tasks, faults, given), *(("Tells nothing", reason) for reason in unknown)],
        sheets=_sheets(tasks, faults),
        quoted=_quoted(tasks, faults),
    )


def _facts(tasks: list[MeasuredTask], faults: list[Damage], given: StudyInput) -> list[tuple[str, str]]:
    return [
        ("Faults", str(len(faults))),
        *(
            (f"Full cache, {task.name}", f"{METRICS[task.column].measures[0].title} {task.clean[0]:.3g}")
            for task in tasks
        ),
        ("Contexts", ", ".join(f"{task.evidence.contexts} of {task.name}" for task in tasks)),
        ("Draws of each", str(1 + int(given.records["repeat"].max()))),
    ]


def title_of(task: MeasuredTask) -> str:
    """Names what leads a task, as boards do."""
    return METRICS[task.column].measures[0].title


def _sheets(tasks: list[MeasuredTask], faults: list[Damage]) -> list[Sheet]:
    cells = [
        {
            "task": task.name,
            "policy": fault.policy,
            "level": level,
            "share_kept": task.estimate(task.kept(fault.policy, level)),
            **task.outcomes(fault.policy, level),
        }
        for task in tasks
        for fault in faults
        for level in task.levels(fault.policy)
    ]
    of_kinds = [
        {"task": task.name, "policy": fault.policy, "area_over_rates": task.estimate(values)}
        for task in tasks
        for fault, values in areas(task, untargeted(faults))
    ]
    sheets = (
        Sheet.of("faults-kept", "What is kept with each fault", cells, ("task", "policy", "level", *OUTCOMES)),
        Sheet.of("faults-areas", "Areas over the rates of a fault", of_kinds, ("task", "policy")),
    )
    return [sheet for sheet in sheets if sheet.rows]


def _quoted(tasks: list[MeasuredTask], faults: list[Damage]) -> dict[str, Any]:
    return {
        "areas": [
            {"task": task.name, "policy": fault.policy, **_numbers(task.estimate(values))}
            for task in tasks
            for fault, values in areas(task, untargeted(faults))
        ]
    }


def _numbers(estimate: Estimate) -> dict[str, float | None]:
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
