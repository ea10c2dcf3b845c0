"""Shows what of the difference of both paths goes if a part of one is the other's: one layer, all
up to one, or all."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import named_styles
from leaderboards.statistics.bootstrap import RESAMPLES, Estimate, FloatArray, count_draws
from leaderboards.studies.declaration import Picture, StudyContent, StudySection
from leaderboards.studies.numerics.walked import ALL, IN_16_BITS
from leaderboards.studies.parts import banded_line, curve, estimate_mean, listing_of_fields

TABLE = "numerics_recovery"  # of a store (kvbench.studies.numerics)
EARLIER = "numerics_patches"  # of runs before, in one direction
INTO_ON, INTO_OFF = "off into on", "on into off"
ONE, UP_TO, EVERY = "one", "up to", "all"
HIGHEST = 30  # examples, those of the largest mean KL, that the text's direction is measured on
PATCHED_ROWS = {
    "recovered": Estimate,
    "median": Estimate,
    "recovered_after": Estimate,
    "median_after": Estimate,
}


@dataclass(frozen=True)
class Recovery:
    """Holds what of a divergence goes if a part of one path is the other's."""

    dtype: str
    direction: str
    place: str  # the step: a flip, the largest divergence, or the first that differs
    patched: str  # which part
    layers: str  # one, up to, all
    layer: int  # ALL: of all
    cases: int
    recovered: Estimate  # mean of 1 - KL patched / KL, at the step
    median: Estimate
    recovered_after: Estimate | None  # of the mean KL over the step and those behind it
    median_after: Estimate | None


def read_patches(tables: Mapping[str, DataFrame]) -> DataFrame | None:
    """Returns the rows of a run in the form of today; None where nothing was patched."""
    for name in (TABLE, EARLIER):
        # Tables of earlier runs stay readable, and are brought into the form of today.
        if name in tables and len(tables[name]):
            if name == TABLE:
                return tables[name]
            return _in_form_of_today(tables[name])
    return None


def _in_form_of_today(earlier: DataFrame) -> DataFrame:
    return earlier.assign(
        direction=INTO_ON,
        layers=np.where(earlier["layer"] == ALL, EVERY, ONE),
        place=np.where(earlier["at_flip"].astype(bool), "flip", "largest"),
        kl_after=np.nan,
        kl_after_patched=np.nan,
        kl_answer=np.nan,
    )


def highest(table: DataFrame) -> DataFrame:
    """Leaves out, in the text's direction, all examples of a dtype but those whose answers have the
    largest mean KL."""
    example = ["dtype", "task", "question_id"]
    is_text = (table["direction"] == INTO_OFF).to_numpy(dtype=bool)
    examples = table[is_text].drop_duplicates(example)
    in_order = examples.sort_values("kl_answer", ascending=False, kind="stable")
    chosen = in_order.groupby("dtype", sort=False).head(HIGHEST).set_index(example).index
    return table[~is_text | table.set_index(example).index.isin(chosen)]


def measure_recoveries(table: DataFrame) -> list[Recovery]:
    """Returns what each patch recovers, by dtype and direction, apart by the place of the step.
    ``table``: with the context of each row
    (:func:`leaderboards.studies.numerics.walked.with_draws`)."""
    # Where the two paths do not differ there is nothing to recover.
    rows = highest(table[(table["kl"] > 0) & np.isfinite(table["kl_patched"])])
    rows = rows.assign(
        at_step=1 - rows["kl_patched"] / rows["kl"],
        after=1 - rows["kl_after_patched"].astype(float) / rows["kl_after"].astype(float),
    )
    recoveries = []
    columns = ["dtype", "direction", "place", "rows", "layers", "layer"]
    for (dtype, direction, place, patched, layers, layer), group in rows.groupby(columns):
        contexts = group["draw_id"]
        at_step = group["at_step"].to_numpy(dtype=np.float64)
        after = group["after"].to_numpy(dtype=np.float64)
        finite = np.isfinite(after)
        recovered_after, median_after = None, None
        if finite.any():
            recovered_after = estimate_mean(after[finite], contexts[finite])
            median_after = estimate_median(after[finite], contexts[finite])
        recovery = Recovery(
            dtype,
            direction,
            place,
            patched,
            layers,
            int(layer),
            cases=len(group),
            recovered=estimate_mean(at_step, contexts),
            median=estimate_median(at_step, contexts),
            recovered_after=recovered_after,
            median_after=median_after,
        )
        recoveries.append(recovery)
    return sorted(recoveries, key=lambda row: (IN_16_BITS.index(row.dtype), row.direction))


def estimate_median(values: FloatArray, contexts: object) -> Estimate:
    """Returns the median of the contexts' means, and resamples contexts. ``values``: shape
    (rows,)."""
    rows = DataFrame({"value": values, "context": np.asarray(contexts, dtype=str)})
    means = rows.groupby("context")["value"].mean().to_numpy()
    median = float(np.median(means))
    count = len(means)
    if count < 2:
        return Estimate(median, None, None, len(values))
    # A median needs the values and not their sums, so that contexts are drawn by their places.
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, count_draws(count)))
    medians = np.median(means[drawn], axis=1)
    return Estimate.of(median, medians, len(values))


def build_content(tables: Mapping[str, DataFrame]) -> StudyContent:
    """Draws what each patch recovers over the layers."""
    table = read_patches(tables)
    if table is None:
        return StudyContent(())
    recoveries = measure_recoveries(table)
    if not recoveries:
        return StudyContent(())
    layers = 1 + max(row.layer for row in recoveries)
    styles = named_styles(tuple(CURVES))
    pictures: list[Picture] = []
    for dtype in IN_16_BITS:
        pictures += _pictures(recoveries, dtype, layers)
    forms = {"layer": lambda layer: "all" if layer == ALL else str(layer)}
    listing = listing_of_fields(TITLE, recoveries, forms)
    shown = tuple(styles.values())
    section = StudySection("patches", TITLE, TEXT, shown, tuple(pictures), details=(listing,))
    sheet = Sheet.of("numerics-patches", TITLE, [*map(vars, recoveries)], kinds=PATCHED_ROWS)
    return StudyContent([section], sheets=[sheet])


# Curves by name: which layers are patched, and the field that is drawn.
CURVES: Mapping[str, tuple[str, str]] = {
    "one layer": (ONE, "median"),
    "all up to a layer": (UP_TO, "median"),
    "one layer, over the steps behind too": (ONE, "median_after"),
    "all up to a layer, over the steps behind too": (UP_TO, "median_after"),
}
PICTURES = (
    (INTO_OFF, "residual", "Residual stream of on into off"),
    (INTO_ON, "residual", "Residual stream of off into on"),
    (INTO_ON, "keys and values", "Keys and values of off into on"),
)
TITLE = "Where the difference lies"
TEXT = (
    "On into off, as the text patches: cache off reads the whole sequence with the residual "
    f"stream of cache on at the last token, at the first step that differs, of the {HIGHEST} "
    "answers of the largest KL. Cache off computes all anew at each step, so that nothing of a "
    "patch is left behind it but the token. Off into on, which repairs: the pass of cache on over "
    "one token has parts of cache off in it, at the first token that differs (flip), or at the "
    "step of the largest divergence where no answer parts. Recovery is the share of the "
    "divergence that goes. Logits come from the stream behind the last layer: at the step it "
    "recovers all. What a stream is given behind a layer hides what it was given before: at the "
    "step all layers up to one recover what that one does."
)


def _pictures(recoveries: Sequence[Recovery], dtype: str, layers: int) -> Iterator[Picture]:
    """Draws the median over layers, a picture for each direction and part."""
    styles = named_styles(tuple(CURVES))
    axis = Axis.for_layers(layers)
    of_dtype = [row for row in recoveries if row.dtype == dtype and row.place != "largest"]
    for direction, part, title in PICTURES:
        rows = [row for row in of_dtype if (row.direction, row.patched) == (direction, part)]
        lines = []
        for name, (extent, measure) in CURVES.items():
            points = _points(rows, extent, measure, layers)
            if points:
                lines.append(banded_line(styles[name], points))
        if lines:
            salt = f"patches {dtype} {title}"
            yield curve(f"{title}, {dtype}", "median recovery", lines, axis, salt)


def _points(
    rows: Sequence[Recovery], extent: str, measure: str, layers: int
) -> list[tuple[float, Estimate]]:
    """Returns the medians by layer. What is patched up to a layer begins with the first alone, and
    ends with all."""
    points: dict[int, Estimate] = {}
    for row in rows:
        value: Estimate | None = getattr(row, measure)
        is_first = row.layers == ONE and row.layer == 0
        is_end = extent == UP_TO and (row.layers == EVERY or is_first)
        if value is not None and (row.layers == extent or is_end):
            place = layers - 1 if row.layer == ALL else row.layer
            points[place] = value
    return sorted(points.items(), key=itemgetter(0))
