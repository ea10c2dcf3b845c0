"""Runs as they are published: with names in place of the places that files have on the machine that made them."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from kvbench.publish.places import distinct_names, name_of_place, without_places
from kvbench.store.run_file import Identity, Job, RunFile
from kvbench.store.store import Store
from kvbench.store.tables import StoredTable
from leaderboards.aggregate.row import SummaryRow

# The columns that may name a place. Those of contexts, questions and answers are texts, and stay as they are.
COLUMNS = ("policy", "reason", "press_arguments")
PLACES = ("model", "data", "essays")  # of a job: options that are a path as a whole


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
            if field.name in COLUMNS and pa.types.is_string(field.type):
                texts = [text and without_places(text) for text in rows[field.name].to_pylist()]
                rows = rows.set_column(place, field, pa.array(texts, field.type))
        return rows


def published_stores(stores: Sequence[Store]) -> list[Store]:
    """Returns the runs as they are published; two models whose folders have one name are told apart."""
    models = distinct_names(store.identity.model for store in stores)
    return [PublishedStore(store, models[store.identity.model]) for store in stores]


def published_records(records: pd.DataFrame) -> pd.DataFrame:
    """Returns records as they are published. Equal texts are read once: there are as many as policies and failures."""
    changed = {}
    for name in COLUMNS:
        if name in records:
            names = {
                text: without_places(text)
                for text in records[name].unique()
                if isinstance(text, str)
            }
            if any(text != shown for text, shown in names.items()):
                changed[name] = records[name].map(lambda text, names=names: names.get(text, text))
    return records.assign(**changed) if changed else records


def published_rows(rows: Iterable[SummaryRow]) -> list[SummaryRow]:
    """Returns rows of a summary as they are published."""
    return [
        row.model_copy(
            update={
                "policy": without_places(row.policy),
                "reason": row.reason and without_places(row.reason),
            }
        )
        for row in rows
    ]


def _published_run(run: RunFile, model: str) -> RunFile:
    return run.model_copy(
        update={
            "command": without_places(run.command),
            "reason": run.reason and without_places(run.reason),
            "job": run.job and _published_job(run.job),
            "identity": _published_identity(run.identity, model),
        }
    )


def _published_job(job: Job) -> Job:
    options: dict[str, Any] = {
        name: without_places(value)
        for name, value in job
        if isinstance(value, str) and "/" in value
    }
    options |= {
        name: name_of_place(value) for name in PLACES if (value := getattr(job, name)) is not None
    }
    return job.model_copy(update=options)


def _published_identity(identity: Identity, model: str) -> Identity:
    policies = []
    for policy in identity.policies:
        arguments = {
            name: without_places(value) if isinstance(value, str) else value
            for name, value in policy.arguments.items()
        }
        policies.append(
            policy.model_copy(update={"name": without_places(policy.name), "arguments": arguments})
        )
    options = {name: without_places(text) for name, text in identity.options.items()}
    return identity.model_copy(
        update={"model": model, "policies": tuple(policies), "options": options}
    )
