"""Reads records as numpy columns: a board asks thousands of times for some rows of a few of
them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pandas import Categorical, DataFrame, factorize

from policies.declaration.levels import Level
from policies.declaration.names import FULL

Array = NDArray[Any]
FULL_PLACE = "full_place"


@dataclass(frozen=True)
class Columns:
    """Some of the records: all columns, each of shape (records,), and the places of these records
    in them."""

    columns: Mapping[str, Array]
    places: NDArray[np.intp]

    @classmethod
    def of(cls, frame: DataFrame) -> Self:
        """Takes all records of a frame."""
        return cls({name: frame[name].to_numpy() for name in frame.columns}, np.arange(len(frame)))

    def __getitem__(self, name: str) -> Array:
        return self.columns[name][self.places]

    @property
    def full(self) -> "Columns":
        """Returns the full cache's records of the same questions, in the order of these; see
        :func:`with_full`."""
        # Where the full cache has no such record, the place -1 reads the last record of all:
        # whoever asks has to leave those answers out.
        return Columns(self.columns, self.columns[FULL_PLACE][self.places])

    def __len__(self) -> int:
        return len(self.places)

    def where(self, mask: NDArray[np.bool_]) -> "Columns":
        """Selects some of these records. ``mask``: shape (len(self),)."""
        if mask.all():
            return self
        return Columns(self.columns, self.places[mask])

    def at(self, places: NDArray[np.intp]) -> "Columns":
        """Returns the records at some places of the columns, shape (places,)."""
        return Columns(self.columns, places)


def groups(
    frame: DataFrame, by: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], NDArray[np.intp]]]:
    """Yields by the values of some columns the places of the records that have them, shape
    (places,), in their order."""
    grouped = frame.groupby(list(by), sort=False, observed=True)
    for key, places in grouped.indices.items():
        # Of one column pandas gives the bare value as a key, of several a tuple.
        values = key if isinstance(key, tuple) else (key,)
        yield values, np.sort(places)


def with_full(frame: DataFrame) -> DataFrame:
    """Returns the records, each with the place of the full cache's record of the same question; -1:
    there is none."""
    # Without the draw and the level, of which the full cache has one each.
    by = ["task", "mode", "example_id", "question_id"]
    question = frame.groupby(by, sort=False, observed=True).ngroup().to_numpy()
    is_full = (frame["policy"] == FULL).to_numpy()
    places = np.full(len(frame), -1, dtype=np.intp)
    places[question[is_full]] = np.flatnonzero(is_full)
    return frame.assign(**{FULL_PLACE: places[question]})


def with_levels(records: DataFrame) -> DataFrame:
    """Returns the records whose column ``level`` holds :class:`Level` as a category, by which they
    are grouped."""
    kind_codes, kinds = factorize(records["level_kind"])
    value_codes, values = factorize(records["level"].astype(float))
    levels = {}
    # A level is made once for each distinct pair and not for each record: a run has a few levels
    # and many thousands of records.
    for row, column in set(zip(kind_codes.tolist(), value_codes.tolist(), strict=True)):
        levels[row, column] = Level(str(kinds[row]), float(values[column]))
    ordered = sorted(set(levels.values()))
    codes = np.zeros((len(kinds), len(values)), dtype=np.intp)  # by kind and value
    for place, level in levels.items():
        codes[place] = ordered.index(level)
    of_records = codes[kind_codes, value_codes]
    return records.assign(level=Categorical.from_codes(of_records, ordered, ordered=True))
