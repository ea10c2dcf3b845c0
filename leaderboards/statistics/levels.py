"""Stores levels in tables of records, each in two columns: the kind and the value."""

import numpy as np
from pandas import Categorical, DataFrame, factorize

from policies.declaration.levels import Level


def with_levels(records: DataFrame) -> DataFrame:
    """Returns the records whose column ``level`` holds :class:`Level` as a category: they are grouped by it again and
    again."""
    (kinds, kind), (values, value) = factorize(records["level_kind"]), factorize(records["level"].astype(float))
    levels = {
        (row, column): Level(str(kind[row]), float(value[column]))
        for row, column in set(zip(kinds.tolist(), values.tolist(), strict=True))
    }
    ordered = sorted(set(levels.values()))
    codes = np.zeros((len(kind), len(value)), dtype=np.intp)
    for place, level in levels.items():
        codes[place] = ordered.index(level)
    return records.assign(level=Categorical.from_codes(codes[kinds, values], ordered, ordered=True))
