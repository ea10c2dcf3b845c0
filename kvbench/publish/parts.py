"""Makes what the pages of runs show, and writes nothing: the results of each group of runs that may
be compared, with what studies read of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from pandas import DataFrame

from kvbench.models.names import title_of_model
from kvbench.publish.downloads import join_study_tables
from kvbench.publish.places import distinct_names
from kvbench.publish.published import published_records, published_rows, published_stores
from kvbench.store.merging import RunGroup
from kvbench.store.store import Store
from leaderboards.aggregate.row import SummaryRow
from leaderboards.pages.results import Results
from leaderboards.studies.declaration import Study, StudyInput, list_studies, studies


@dataclass(frozen=True)
class Part:
    """Holds runs that may be compared with their results, from which a board of a site is made."""

    group: RunGroup
    study_input: StudyInput
    studies: Sequence[Study]
    results: Results

    @property
    def labels(self) -> dict[str, str]:
        """Returns the columns of downloads that tell these results from others of the site."""
        return {"model": self.group.identity.model, "setting": self.group.setting}


def make_parts(
    groups: Sequence[RunGroup],
    records: Sequence[DataFrame],
    rows: Sequence[Sequence[SummaryRow]],
    tolerance: float,
) -> list[Part]:
    """Makes what is shown of each group, which names no place of this machine. ``records`` and
    ``rows``: of the groups, as they are stored."""
    shown = published_groups(groups)
    names = distinct_names(str(store.folder) for store in list_stores(shown))
    frames = [published_records(frame) for frame in records]
    return _parts(shown, frames, [published_rows(some) for some in rows], names, tolerance)


def _parts(
    groups: Sequence[RunGroup],
    records: Sequence[DataFrame],
    rows: Sequence[Sequence[SummaryRow]],
    names: Mapping[str, str],
    tolerance: float,
) -> list[Part]:
    """Joins each group with its records and rows. ``names``: of the runs, by their folders."""
    policies: dict[str, None] = {}  # each once, in the order of the front page
    for rows_of_group in rows:
        policies |= dict.fromkeys(row.policy for row in rows_of_group)
    inputs: list[StudyInput] = []
    for number, (group, frame) in enumerate(zip(groups, records, strict=True), start=1):
        made_from = _study_input(group, frame, names, number)
        # Lines of a page go by the places of policies, which are the same on the whole site.
        inputs.append(replace(made_from, policies=tuple(policies)))
    parts = []
    # A second pass: the other modes of a group are among the inputs of all groups.
    for group, made_from, rows_of_group in zip(groups, inputs, rows, strict=True):
        with_modes = replace(made_from, modes=_other_modes(made_from, inputs))
        parts.append(_part(group, with_modes, rows_of_group, names, tolerance))
    return parts


def _other_modes(study_input: StudyInput, inputs: Sequence[StudyInput]) -> list[StudyInput]:
    """Returns the results of the same model in other modes."""
    others = []
    for other in inputs:
        if other.model == study_input.model and other.mode != study_input.mode:
            others.append(other)
    return others


def list_stores(groups: Sequence[RunGroup]) -> list[Store]:
    """Lists the runs of all groups."""
    return list(chain.from_iterable(group.stores for group in groups))


def published_groups(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Returns the groups with their runs as they are published: models are told apart over all
    groups."""
    published = iter(published_stores(list_stores(groups)))
    shown = []
    for group in groups:
        stores = tuple(islice(published, len(group.stores)))
        shown.append(replace(group, stores=stores))
    return shown


def _run_contents(group: RunGroup, names: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
    """Returns what ``run.json`` of each run holds, by name. ``names``: of runs, by their
    folders."""
    contents: dict[str, Mapping[str, Any]] = {}
    for store in group.stores:
        contents[names[str(store.folder)]] = store.run.model_dump(mode="json", exclude={"job"})
    return contents


def _part(
    group: RunGroup,
    study_input: StudyInput,
    rows: Sequence[SummaryRow],
    names: Mapping[str, str],
    tolerance: float,
) -> Part:
    """Joins all that is shown of a group with the studies that have sections or pages of it."""
    identity = group.identity
    chosen = list_studies(study_input)
    pages = {}
    for study in chosen:
        if not study.is_on_front:
            pages[study.title] = study.file_name(study_input.number)
    title = title_of_model(identity.model, identity.model_in_words)
    results = Results.of(
        study_input.records,
        rows,
        _run_contents(group, names),
        identity.model,
        tolerance,
        setting=group.setting,
        families={policy.name: policy.family for policy in identity.policies},
        studies=pages,
        title=title.title,
        described=title.in_words,
    )
    return Part(group, study_input, chosen, results)


def _study_input(
    group: RunGroup, records: DataFrame, names: Mapping[str, str], number: int
) -> StudyInput:
    """Returns what studies read of a group, the ``number``-th of its site. ``names``: of runs, by
    their folders."""
    read_by_studies: set[str] = set()
    for study in studies().values():
        read_by_studies.update(study.tables)
    tables = join_study_tables(group.stores, read_by_studies)
    frames = {table.name: rows.to_pandas() for table, rows in tables.items()}
    runs = list(_run_contents(group, names).values())
    return StudyInput(group.identity.model, records, runs, frames, number=number)


def study_inputs(store: Store, other: Store | None = None) -> StudyInput:
    """Returns what studies of a run read, with the run beside it among the other models or
    modes."""
    stores = [store] if other is None else [store, other]
    groups = published_groups([RunGroup((single,)) for single in stores])
    names = distinct_names(str(published.folder) for published in list_stores(groups))
    inputs = []
    for number, group in enumerate(groups, start=1):
        inputs.append(_study_input(group, group.records(), names, number))
    study_input, *beside = inputs
    models = [other_input for other_input in beside if other_input.model != study_input.model]
    modes = _other_modes(study_input, beside)
    return replace(study_input, beside=models, modes=modes)
