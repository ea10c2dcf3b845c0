"""Records as numpy columns: a board asks thousands of times for some rows of a few of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

Array = NDArray[Any]


@dataclass(frozen=True)
class Columns:
    """Some of the records: all columns, each of shape (records,), and the places of these records in them."""

    columns: Mapping[str, Array]
    places: NDArray[np.intp]

    @classmethod
    def of(cls, frame: DataFrame) -> Self:
        return cls({name: frame[name].to_numpy() for name in frame.columns}, np.arange(len(frame)))

    def __getitem__(self, name: str) -> Array:
        return self.columns[name][self.places]

    def __len__(self) -> int:
        return len(self.places)

    def where(self, mask: NDArray[np.bool_]) -> "Columns":
        """Those of these that ``mask`` is true for."""
        return self if mask.all() else Columns(self.columns, self.places[mask])

    def at(self, places: NDArray[np.intp]) -> "Columns":
        """Others, by their places among all records."""
        return Columns(self.columns, places)


def groups(frame: DataFrame, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], NDArray[np.intp]]]:
    """By the values of some columns, the places of the records that have them, in their order."""
    for key, places in frame.groupby(list(by), sort=False, observed=True).indices.items():
        yield key if isinstance(key, tuple) else (key,), np.sort(places)
