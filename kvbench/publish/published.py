"""Runs as they are published: with names in place of the places that files have on the machine that
made them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from kvbench.publish.places import distinct_names, name_of_place, without_places
from kvbench.store.run_file import Identity, Job, RunFile, TaskOptions
from kvbench.store.store import Store
from kvbench.store.tables import StoredTable
from leaderboards.aggregate.row import SummaryRow

# The columns that may name a place. Those of contexts, questions and answers are texts, and stay as
# they are.
CLEANED_COLUMNS = ("policy", "reason", "press_arguments")
PLACES = ("data", "essays")  # of a task: options that are a path as a whole


class PublishedStore(Store):
    """A run whose model, commands, policies and failures name no place."""

    def __init__(self, store: Store, model: str) -> None:
        super().__init__(store.folder, _published_run(store.run, model))
        self._store = store

    def frame(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        return published_records(self._store.frame(columns))

    def study_table(self, table: StoredTable) -> pa.Table:
        rows = self._store.study_table(table)
        for place, field in enumerate(rows.schema):
            if field.name in CLEANED_COLUMNS and pa.types.is_string(field.type):
                texts = list(map(_published_text, rows[field.name].to_pylist()))
                rows = rows.set_column(place, field, pa.array(texts, field.type))
        return rows


def published_stores(stores: Sequence[Store]) -> list[Store]:
    """Returns the runs as they are published; two models whose folders have one name are told
    apart."""
    models = distinct_names(store.identity.model for store in stores)
    return [PublishedStore(store, models[store.identity.model]) for store in stores]


def published_records(records: pd.DataFrame) -> pd.DataFrame:
    """Returns records as they are published. Equal texts are read once: there are as many as
    policies and failures."""
    changed = {}
    for name in CLEANED_COLUMNS:
        if name not in records:
            continue
        shown: dict[str, str] = {}  # of the texts that change
        for text in records[name].unique():
            if isinstance(text, str) and without_places(text) != text:
                shown[text] = without_places(text)
        if shown:
            changed[name] = records[name].map(lambda text, shown=shown: shown.get(text, text))
    return records.assign(**changed) if changed else records


def published_rows(rows: Iterable[SummaryRow]) -> list[SummaryRow]:
    """Returns rows of a summary as they are published."""
    published = []
    for row in rows:
        shown = {"policy": without_places(row.policy), "reason": _published_text(row.reason)}
        published.append(row.model_copy(update=shown))
    return published


def _published_text(text: str | None) -> str | None:
    return text and without_places(text)


def _published_run(run: RunFile, model: str) -> RunFile:
    shown = {
        "command": without_places(run.command),
        "reason": _published_text(run.reason),
        "job": run.job and _published_job(run.job),
        "identity": _published_identity(run.identity, model),
    }
    return run.model_copy(update=shown)


def _published_job(job: Job) -> Job:
    options: dict[str, Any] = {}
    for name, value in job:
        if name == "model":
            options[name] = name_of_place(value)
        elif name == "task_options":
            options[name] = _published_task_options(value)
        elif isinstance(value, str) and "/" in value:
            options[name] = without_places(value)
    return job.model_copy(update=options)


def _published_task_options(task_options: Mapping[str, TaskOptions]) -> dict[str, TaskOptions]:
    published = {}
    for word, options in task_options.items():
        names: dict[str, Any] = {}
        for option in PLACES:
            place = getattr(options, option)
            if place is not None:
                names[option] = Path(name_of_place(place))
        published[without_places(word)] = options.model_copy(update=names)
    return published


def _published_identity(identity: Identity, model: str) -> Identity:
    policies = []
    for policy in identity.policies:
        arguments = dict(policy.arguments)
        for name, value in arguments.items():
            if isinstance(value, str):
                arguments[name] = without_places(value)
        shown = {"name": without_places(policy.name), "arguments": arguments}
        policies.append(policy.model_copy(update=shown))
    options = {name: without_places(text) for name, text in identity.options.items()}
    changes = {"model": model, "policies": tuple(policies), "options": options}
    return identity.model_copy(update=changes)
