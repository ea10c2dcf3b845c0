"""From the store to what people look at: summary.json and the page."""

import re
from collections.abc import Sequence
from pathlib import Path

from pandas import DataFrame

from kvbench.atomic import write_text_atomically
from kvbench.console import console
from kvbench.errors import KVBenchError
from kvbench.store import SUMMARY_FILE, Outline, Store
from leaderboards import (
    FRONT,
    Asked,
    Contrast,
    Duel,
    LeaderboardError,
    PlannedCells,
    SummaryRow,
    asked_in,
    boards_of,
    build_comparison,
    build_examples,
    build_instructions,
    build_pages,
    contrasts,
    duels,
    has_orders,
    summarise,
)

EXAMPLES_NAME = "examples-{}.html"
INSTRUCTIONS_NAME = "instructions.html"
RESULTS_FILE = "instructions.json"
COMPARISON_NAME = "compare-{}.html"


def planned_cells(outline: Outline) -> PlannedCells:
    """What a run set out to do, as its ``run.json`` says."""
    return PlannedCells(
        mode=outline.mode,
        contexts={task.name: task.contexts for task in outline.tasks},
        chances={task.name: task.chance for task in outline.tasks if task.chance > 0},  # without golds there is none
        policies={
            policy.name: [
                *(Asked("ratio", ratio) for ratio in policy.ratios),
                *(Asked("budget", tokens) for tokens in policy.budgets),
            ]
            for policy in outline.policies
        },
        covered={policy.name: policy.tasks for policy in outline.policies},
    )


def summary_rows(store: Store, records: DataFrame | None = None) -> list[SummaryRow]:
    """What the records of a store add up to: all of them, or those at hand."""
    try:
        return summarise(store.frame() if records is None else records, planned_cells(store.run.outline))
    except LeaderboardError as error:
        raise KVBenchError(f"{store.folder} cannot be summarised: {error}") from error


def publish_summary(store: Store, records: DataFrame) -> list[SummaryRow]:
    """Aggregates all records of a store and writes ``summary.json`` beside them."""
    rows = summary_rows(store, records)
    if store.run.status != "complete":
        state = store.run.reason or store.run.status
        console.print(
            f"warning: {store.folder} is not complete ({state}): what is missing is blank",
            style="yellow",
            soft_wrap=True,
        )
    store.write_json(SUMMARY_FILE, [row.model_dump() for row in rows])
    return rows


def publish_site(store: Store, records: DataFrame, folder: Path) -> tuple[list[Path], list[SummaryRow]]:
    """Writes the pages, each self-contained, and the summary, and, of system prompts that were compressed, the page on
    instructions; returns where to begin, and the rows."""
    rows = publish_summary(store, records)
    pages = build_pages(store.run.model_dump(), rows, boards_of(records, rows))
    first = [FRONT]
    is_study = store.run.identity["scope"] == "system" or has_orders(records)
    if is_study and store.run.status == "complete":  # its numbers are paired
        pages[INSTRUCTIONS_NAME], found = build_instructions(str(store.run.identity["model"]), records)
        store.write_json(RESULTS_FILE, found)
        first.append(INSTRUCTIONS_NAME)
    if INSTRUCTIONS_NAME not in pages:
        (folder / INSTRUCTIONS_NAME).unlink(missing_ok=True)  # of another run, or of this one before it went on
    for name, page in {**pages, **_examples(store, records)}.items():
        write_text_atomically(folder / name, page)
    return [folder / name for name in first], rows


def _examples(store: Store, records: DataFrame) -> dict[str, str]:
    """By name, the pages that the board leads to: one for each task."""
    model = str(store.run.identity["model"])
    by_task = records.groupby("task", sort=False)
    return {EXAMPLES_NAME.format(task): build_examples(model, str(task), own) for task, own in by_task}


def publish_comparison(
    store: Store, records: DataFrame, policy: str, others: Sequence[str], folder: Path
) -> tuple[Path, list[Duel], dict[str, list[Contrast]]]:
    """Writes the page of a policy against others; returns its path, the verdicts, and by opponent the failures."""
    try:
        found = duels(records, policy, others)
    except LeaderboardError as error:
        missing = _missing(records, (policy, *others))
        raise KVBenchError(f"{error}{f': {missing[0]}' if missing else ''}") from error
    failures = {other: contrasts(records, policy, other) for other in others}
    path = folder / COMPARISON_NAME.format(re.sub(r"[^A-Za-z0-9._+-]+", "-", policy).strip("-"))
    write_text_atomically(
        path, build_comparison(str(store.run.identity["model"]), found, failures, _missing(records, (policy, *others)))
    )
    return path, found, failures


def _missing(records: DataFrame, policies: Sequence[str]) -> list[str]:
    """Which cells of some policies failed, and why, a line each."""
    failed = records[(records["status"] != "ok") & records["policy"].isin(policies)]
    cells = failed.assign(asked=asked_in(failed)).groupby(["policy", "task", "asked"], sort=False, observed=True)
    return [f"{policy} at {asked.where} of {task}: {cell['reason'].iloc[0]}" for (policy, task, asked), cell in cells]
