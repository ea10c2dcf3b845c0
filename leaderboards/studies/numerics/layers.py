"""Follows the residual streams of both paths through the layers at the first step at which cache on
reads a token by itself: figure 2 of arXiv 2604.15409."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.statistics.corrections import as_family
from leaderboards.statistics.series import average_columns
from leaderboards.statistics.standard_tests import mann_whitney
from leaderboards.studies.declaration import Picture, StudyContent, StudySection
from leaderboards.studies.numerics.walked import DRIFT, numbers_by_step, sorted_groups
from leaderboards.studies.parts import P_FORMS, banded_line, curve, in_powers, listing_of_fields

TITLE = "Which layers amplify the difference?"
STEP = 1  # at step 0 both paths read the prompt at once


@dataclass(frozen=True)
class Layer:
    """Holds how far the streams of cache on and cache off are apart behind a layer, at step 1."""

    task: str
    dtype: str
    layer: int
    contexts: int
    l2: Estimate  # distance
    cosine: Estimate
    turned: Estimate  # 1 - cosine
    times: float | None  # the mean distance over that of the layer before; None of the first
    # Of the test of Mann and Whitney: as far apart as behind the layer before.
    p: float | None = None
    p_bonferroni: float | None = None
    p_bh: float | None = None


def measure_layers(drift: DataFrame) -> list[Layer]:
    """Returns every layer by task and dtype; all tests are one family. ``drift``: with contexts
    (``draw_id``)."""
    layers: list[Layer] = []
    p_values: list[float | None] = []
    for (task, dtype), group in sorted_groups(_with_step(drift), "task", "dtype"):
        distances = _by_layer(group, "l2")
        cosines = _by_layer(group, "cosine")
        # In the order in which questions first appear, as the rows of the two arrays are.
        contexts = group.drop_duplicates("question_id")["draw_id"].to_numpy(dtype=str)
        series = [average_columns(values, contexts) for values in (distances, cosines, 1 - cosines)]
        count = len(set(contexts))
        for layer, (l2, cosine, turned) in enumerate(zip(*series, strict=True)):
            if l2 is None or cosine is None or turned is None:
                continue
            times, p = None, None
            if layer:
                p = mann_whitney(distances[:, layer], distances[:, layer - 1])
                before = layers[-1].l2.mean
                times = l2.mean / before if before else None
            layers.append(Layer(task, dtype, layer, count, l2, cosine, turned, times))
            p_values.append(p)
    results = []
    for row, test in zip(layers, as_family(p_values), strict=True):
        results.append(replace(row, **vars(test)))
    return results


def _with_step(drift: DataFrame) -> DataFrame:
    """Returns the rows of answers that have the step, in all their layers, with distance and cosine
    there."""
    rows = drift.assign(l2=_at_step(drift, "hidden_l2"), cosine=_at_step(drift, "hidden_cosine"))
    is_finite = np.isfinite(rows["l2"]) & np.isfinite(rows["cosine"])
    answers = is_finite.groupby([rows["task"], rows["dtype"], rows["question_id"]])
    # An answer counts in all layers or in none: layers are compared on the same answers.
    return rows[answers.transform("all")]


def _at_step(drift: DataFrame, column: str) -> list[float]:
    """Returns the number of each row at the step; NaN of a row that ends before."""
    values = []
    for by_step in numbers_by_step(drift, column):
        value = np.nan
        if len(by_step) > STEP:
            value = by_step[STEP]
        values.append(value)
    return values


def _by_layer(rows: DataFrame, column: str) -> FloatArray:
    """Returns a column as an array of shape (answers, layers)."""
    wide = rows.pivot_table(index="question_id", columns="layer", values=column, sort=False)
    values: FloatArray = wide.sort_index(axis=1).to_numpy(dtype=np.float64)
    return values


def build_content(tables: Mapping[str, DataFrame]) -> StudyContent:
    """Draws how far the streams are apart behind each layer."""
    rows = measure_layers(tables[DRIFT]) if DRIFT in tables else []
    if not rows:
        return StudyContent(())
    styles = named_styles(list(dict.fromkeys(row.dtype for row in rows)))
    by_task: dict[str, list[Layer]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    pictures: list[Picture] = []
    for task, of_task in by_task.items():
        pictures += _pictures(task, of_task, styles)
    forms: dict[str, str | Callable[[float | None], str]] = {
        "l2": ".2g",
        "turned": ".2g",
        "cosine": ".4f",
    }
    forms |= P_FORMS
    listing = listing_of_fields("Distance and cosine by layer", rows, forms)
    text = (
        "The residual streams of the last token at step 1, the first at which cache on reads a "
        "token by itself, as powers of ten: their distance, and 1 less their cosine. A layer "
        "amplifies where its distance is above that of the layer before; all tests are one family."
    )
    shown = tuple(styles.values())
    section = StudySection("layers", TITLE, text, shown, tuple(pictures), details=(listing,))
    return StudyContent([section], sheets=[Sheet.of("numerics-layers", TITLE, [*map(vars, rows)])])


def _pictures(
    task: str, rows: Sequence[Layer], styles: Mapping[str, LineStyle]
) -> Iterator[Picture]:
    axis = Axis.for_layers(1 + max(row.layer for row in rows))
    measures = {"L2 distance": "l2", "1 − cosine": "turned"}
    for name, field in measures.items():
        lines = []
        for dtype, style in styles.items():
            of_dtype = [row for row in rows if row.dtype == dtype]
            points = in_powers((row.layer, getattr(row, field)) for row in of_dtype)
            if points:
                lines.append(banded_line(style, points))
        if lines:
            yield curve(task, f"{name}, as a power of ten", lines, axis, f"layers {name} {task}")
