"""Tests whether cache on is right more often than cache off: table 1 of arXiv 2604.15409."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.statistics.corrections import as_family
from leaderboards.statistics.intervals import difference_interval
from leaderboards.statistics.paired_difference import MeanDifference
from leaderboards.statistics.standard_tests import mcnemar
from leaderboards.studies.declaration import StudyContent, StudySection
from leaderboards.studies.numerics.walked import TABLE, drop_overflows, free_pairs, sorted_groups
from leaderboards.studies.parts import P_FORMS, listing_of_fields

TITLE = "Is the cached answer right as often?"


@dataclass(frozen=True)
class Accuracy:
    """Compares the right answers of cache on and cache off, over one answer of each context."""

    task: str
    dtype: str
    sampling: str
    contexts: int
    right_on: float  # share
    right_off: float
    difference: MeanDifference  # cache on less cache off, in points
    only_on: int  # contexts whose answer is right with the cache alone
    only_off: int
    p: float | None = None  # of McNemar's exact test
    p_bonferroni: float | None = None
    p_bh: float | None = None


def compare_accuracies(pairs: DataFrame) -> list[Accuracy]:
    """Returns each task, dtype and way to choose; all of them are one family. ``pairs``: with
    contexts (``draw_id``).

    The draws of a context are not independent, and are all alike where tokens are chosen greedily:
    the first one is its answer."""
    cell = ["task", "dtype", "sampling"]
    rows = drop_overflows(free_pairs(pairs))
    judged = rows[rows["right"].notna() & rows["other_right"].notna()]
    first = judged.sort_values("draw", kind="stable").drop_duplicates([*cell, "draw_id"])
    compared = []
    for (task, dtype, way), group in sorted_groups(first, *cell):
        on = group["right"].to_numpy(dtype=bool)
        off = group["other_right"].to_numpy(dtype=bool)
        gains = (on & ~off).astype(np.float64)
        losses = (off & ~on).astype(np.float64)
        row = Accuracy(
            task,
            dtype,
            way,
            contexts=len(group),
            right_on=float(on.mean()),
            right_off=float(off.mean()),
            difference=_difference(gains, losses),
            only_on=int(gains.sum()),
            only_off=int(losses.sum()),
        )
        compared.append(row)
    family = as_family([mcnemar(row.only_on, row.only_off) for row in compared])
    return [replace(row, **vars(test)) for row, test in zip(compared, family, strict=True)]


def _difference(gains: FloatArray, losses: FloatArray) -> MeanDifference:
    """Returns cache on less cache off, in points; without an interval from a single context.
    Shapes: (contexts,)."""
    mean = 100 * float(gains.mean() - losses.mean())
    if len(gains) < 2:
        return MeanDifference(mean, None, None)
    low, high = difference_interval(gains, losses)
    return MeanDifference(mean, 100 * float(low), 100 * float(high))


def build_content(tables: Mapping[str, DataFrame]) -> StudyContent:
    rows = compare_accuracies(tables[TABLE])
    if not rows:  # nothing is asked
        return StudyContent(())
    forms: dict[str, str | Callable[[Any], str]] = {"right_on": ".0%", "right_off": ".0%"}
    forms |= P_FORMS
    forms["difference"] = lambda difference: difference.text
    listing = listing_of_fields(TITLE, rows, forms)
    text = (
        "Each path goes on from its own tokens; of several draws the first is counted, so that "
        "the contexts are independent. McNemar’s exact test looks at the answers that one path "
        "alone has right. All rows are one family."
    )
    sheet = Sheet.of("numerics-accuracy", TITLE, [*map(vars, rows)])
    return StudyContent(
        [StudySection("accuracy", TITLE, text, listings=(listing,))], sheets=[sheet]
    )
