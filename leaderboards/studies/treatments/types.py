"""Compares types of keys with types of values, as engines offer them: what is right, how far the next
tokens are from those of the full cache, and what is held."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from pandas import DataFrame

from leaderboards.aggregate.evidence import NoEvidenceError
from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import StudySection
from leaderboards.studies.parts import NONE, estimate_mean, in_percent
from leaderboards.studies.treatments.tasks import MeasuredTask
from policies.declaration.names import FULL
from policies.quantisation.registry import QUANTISATION_KINDS as FORMATS
from policies.treatments.spelling import EXACT, read_types

RECONSTRUCTION = "reconstruction"  # a table of a store (kvbench.studies.reconstruction)
Types = tuple[str, str]  # of keys, and of values
# Engines say f16 of what they leave as it is. A run may compute in other types of numbers.
UNCHANGED = "exact"


@dataclass(frozen=True)
class TypesCell:
    """Holds what was measured of one type of keys with one type of values on a task."""

    policy: str
    types: Types
    score: Estimate  # what leads the task, as a share of its highest value
    held: float  # bytes, in percent of the full cache's
    divergence: Estimate | None  # KL in nats from the full cache; None where it was not measured


def types_of_policies(policies: Sequence[str]) -> dict[str, Types]:
    """Maps the policies that only store keys and values to their types, the full cache too."""
    types: dict[str, Types] = {}
    for policy in policies:
        if policy == FULL:
            types[policy] = (UNCHANGED, UNCHANGED)
            continue
        pair = read_types(policy, FORMATS)
        if pair is not None:
            keys, values = pair
            types[policy] = (_plain_name(keys), _plain_name(values))
    return types


def _plain_name(name: str) -> str:
    return UNCHANGED if name in EXACT else name


def are_mixed(types: Mapping[str, Types]) -> bool:
    """Tells whether keys stand in another type than values somewhere: else there is no table."""
    return any(keys != values for keys, values in types.values())


def measure_types(
    tasks: Sequence[MeasuredTask], policies: Sequence[str], table: DataFrame | None
) -> dict[str, list[TypesCell]]:
    """Measures each task with each pair of types. ``table``: that of reconstruction, where a run
    has one."""
    types = types_of_policies(policies)
    if not are_mixed(types):
        return {}
    measured: dict[str, list[TypesCell]] = {}
    for task in tasks:
        full = task.evidence.mean(FULL, None, "kv_bytes")[0]
        cells: list[TypesCell] = []
        for policy, pair in types.items():
            try:
                held = task.evidence.mean(policy, None, "kv_bytes")[0]
                score = task.score(policy, None)
            except NoEvidenceError:  # this task was not asked with it
                continue
            divergence = _divergence(task.name, policy, table)
            cells.append(TypesCell(policy, pair, score, float(100 * held / full), divergence))
        measured[task.name] = cells
    return measured


def _divergence(task: str, policy: str, table: DataFrame | None) -> Estimate | None:
    if policy == FULL or table is None:
        return None
    rows = table[(table["task"] == task) & (table["policy"] == policy)]
    if rows.empty:
        return None
    # A row for each context, so that each is a context of its own.
    return estimate_mean(rows["kl"], rows["question_id"])


def types_section(
    tasks: Sequence[MeasuredTask], measured: Mapping[str, Sequence[TypesCell]]
) -> list[StudySection]:
    """Shows three tables a task: what is right, the divergence, and the bytes; nothing where no
    policy has two types."""
    listings: list[Listing] = []
    for task in tasks:
        cells = measured.get(task.name, ())
        if not cells:
            continue
        shown: list[tuple[str, Callable[[TypesCell], str]]] = [
            (f"{task.title}, percent", _score_text)
        ]
        if any(cell.divergence is not None for cell in cells):
            shown.append(("KL from the full cache, nats a token", _divergence_text))
        shown.append(("bytes, percent of the full cache", _bytes_text))
        for title, write in shown:
            listings.append(_by_types(f"{title}: {task.label}", cells, write))
    if not listings:
        return []
    text = (
        "A row for each type of keys, a column for each type of values. KL is the divergence of the "
        "next token from that of the full cache, behind the question and the tokens of its right "
        "answer. Where keys at few bits lose more than values at as few, the keys need the bits."
    )
    title = "Types of keys and values"
    return [StudySection("types", title, text, listings=tuple(listings))]


def _score_text(cell: TypesCell) -> str:
    return in_percent(cell.score)


def _divergence_text(cell: TypesCell) -> str:
    if cell.divergence is None:
        return NONE
    return f"{cell.divergence.mean:.2g}"


def _bytes_text(cell: TypesCell) -> str:
    return f"{cell.held:.1f}"


def _by_types(title: str, cells: Sequence[TypesCell], write: Callable[[TypesCell], str]) -> Listing:
    """Writes a table of types of keys by types of values, those that hold most bytes first."""
    by_types = {cell.types: cell for cell in cells}
    # A type alone, for keys and values, says how many bytes it takes.
    size = {keys: cell.held for (keys, values), cell in by_types.items() if keys == values}
    names = dict.fromkeys(chain.from_iterable(by_types))
    ordered = sorted(names, key=lambda name: -size.get(name, np.inf))
    rows: list[tuple[str, ...]] = []
    for keys in ordered:
        texts = [keys]
        for values in ordered:
            cell = by_types.get((keys, values))
            texts.append(write(cell) if cell else NONE)
        rows.append(tuple(texts))
    return Listing(title, ("keys \\ values", *ordered), tuple(rows))


def types_sheet(measured: Mapping[str, Sequence[TypesCell]]) -> Sheet:
    """Makes the download of the same numbers."""
    rows = []
    for task, cells in measured.items():
        for cell in cells:
            keys, values = cell.types
            row = {
                "task": task,
                "policy": cell.policy,
                "keys": keys,
                "values": values,
                "score": cell.score,
                "kl": cell.divergence,
                "held_percent": cell.held,
            }
            rows.append(row)
    return Sheet.of("treatments-types", "Types of keys and values", rows)
