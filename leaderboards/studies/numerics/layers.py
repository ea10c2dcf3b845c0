"""Follows the residual streams of both paths through the layers at the first step at which cache on reads a token by
itself: figure 2 of arXiv 2604.15409."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Definition
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.statistics.series import as_family, mann_whitney, series_of
from leaderboards.statistics.text import p_text
from leaderboards.studies.declaration import Picture, StudyContent, StudySection
from leaderboards.studies.numerics.walked import DRIFT, numbers_by_step, sorted_groups
from leaderboards.studies.parts import NONE, banded_line, curve, in_powers, listing_of_fields

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
    p: float | None = (
        None  # of the test of Mann and Whitney: as far apart as behind the layer before
    )
    p_bonferroni: float | None = None
    p_bh: float | None = None


def measure_layers(drift: DataFrame) -> list[Layer]:
    """Returns every layer by task and dtype; all tests are one family. ``drift``: with contexts (``draw_id``)."""
    layers: list[Layer] = []
    p_values: list[float | None] = []
    for (task, dtype), group in sorted_groups(_with_step(drift), "task", "dtype"):
        distances, cosines = (_by_layer(group, column) for column in ("l2", "cosine"))
        contexts = group.drop_duplicates("question_id")["draw_id"].to_numpy(dtype=str)
        series = [series_of(values, contexts) for values in (distances, cosines, 1 - cosines)]
        for layer, (l2, cosine, turned) in enumerate(zip(*series, strict=True)):
            if l2 is None or cosine is None or turned is None:
                continue
            before = layers[-1].l2.mean if layer else 0.0
            times = l2.mean / before if before else None
            layers.append(Layer(task, dtype, layer, len(set(contexts)), l2, cosine, turned, times))
            p_values.append(
                mann_whitney(distances[:, layer], distances[:, layer - 1]) if layer else None
            )
    family = as_family(p_values)
    return [replace(one, **vars(test)) for one, test in zip(layers, family, strict=True)]


def _with_step(drift: DataFrame) -> DataFrame:
    """Returns the rows of answers that have the step, in all their layers, with distance and cosine there."""
    rows = drift.assign(
        l2=[
            one[STEP] if len(one) > STEP else np.nan for one in numbers_by_step(drift, "hidden_l2")
        ],
        cosine=[
            one[STEP] if len(one) > STEP else np.nan
            for one in numbers_by_step(drift, "hidden_cosine")
        ],
    )
    is_known = np.isfinite(rows["l2"]) & np.isfinite(rows["cosine"])
    whole = is_known.groupby([rows["task"], rows["dtype"], rows["question_id"]]).transform("all")
    return rows[whole]


def _by_layer(rows: DataFrame, column: str) -> FloatArray:
    """Returns a column as an array of shape (answers, layers)."""
    wide = rows.pivot_table(index="question_id", columns="layer", values=column, sort=False)
    values: FloatArray = wide.sort_index(axis=1).to_numpy(dtype=np.float64)
    return values


def build_content(tables: Mapping[str, DataFrame]) -> StudyContent:
    rows = measure_layers(tables[DRIFT]) if DRIFT in tables else []
    if not rows:
        return StudyContent(())
    styles = named_styles(list(dict.fromkeys(one.dtype for one in rows)))
    pictures: list[Picture] = []
    for task in dict.fromkeys(one.task for one in rows):
        pictures += list(_pictures(task, [one for one in rows if one.task == task], styles))
    forms: dict[str, str | Callable[[float | None], str]] = {
        "l2": ".2g",
        "turned": ".2g",
        "cosine": ".4f",
    }
    forms |= dict.fromkeys(
        ("p", "p_bonferroni", "p_bh"), lambda p: NONE if p is None else p_text(p)
    )
    listing = listing_of_fields("Distance and cosine by layer", rows, forms)
    text = (
        "The residual streams of the last token at step 1, the first at which cache on reads a token by itself, as "
        "powers of ten: their distance, and 1 less their cosine. A layer amplifies where its distance is above that of "
        "the layer before; all tests are one family."
    )
    section = StudySection(
        "layers", TITLE, text, tuple(styles.values()), tuple(pictures), details=(listing,)
    )
    return StudyContent([section], sheets=[Sheet.of("numerics-layers", TITLE, [*map(vars, rows)])])


def _pictures(
    task: str, rows: Sequence[Layer], styles: Mapping[str, LineStyle]
) -> Iterator[Picture]:
    axis = Axis.of_layers(1 + max(one.layer for one in rows))
    measures: Mapping[str, Callable[[Layer], Estimate]] = {
        "L2 distance": lambda one: one.l2,
        "1 − cosine": lambda one: one.turned,
    }
    for name, read in measures.items():
        lines = []
        for dtype, style in styles.items():
            points = in_powers((one.layer, read(one)) for one in rows if one.dtype == dtype)
            if points:
                lines.append(banded_line(style, points))
        if lines:
            yield curve(task, f"{name}, as a power of ten", lines, axis, f"layers {name} {task}")


DEFINITIONS = (
    Definition(
        "Distance and cosine by layer",
        "Of the residual streams of cache on and cache off behind a layer, of the last token at step 1. The test of "
        "Mann and Whitney asks whether the distance behind a layer is another than behind the layer before, which is "
        "what amplifying means; behind a layer of float32 it is smaller by orders of magnitude everywhere, which would "
        "tell no layer from another. The same contexts are on both sides, so that the test finds rather too little. "
        "Corrected over all layers, types of numbers and tasks by Benjamini and Hochberg.",
        "distance = ‖on − off‖; times = mean distance / that of the layer before",
    ),
)
