"""Relates the first token that differs to the mean divergence: the decision boundary of arXiv
2604.15409 (its table 3 and figure 4).

A mean over all steps holds those behind the flip, where two texts are compared. The earlier the
flip, the more of them there are, so that it is larger by construction. The mean up to the flip
stands beside it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Dots, Frame, Place
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.studies.declaration import Picture, StudyContent, StudySection
from leaderboards.studies.numerics.definitions import BOUNDARY
from leaderboards.studies.numerics.walked import (
    TABLE,
    drop_overflows,
    find_flip,
    free_pairs,
    sorted_groups,
    thirds,
)
from leaderboards.studies.parts import listing_of_fields
from policies.declaration.lazy import LazyModule

stats = LazyModule("scipy.stats")  # its import takes half a second, and few sites need it

FEWEST = 6  # contexts of a correlation: of fewer it is near 1 or -1 by chance
FEWEST_OF_A_THIRD = 3
ALL_STEPS, UP_TO_FLIP = "all steps", "up to the flip"


@dataclass(frozen=True)
class Boundary:
    """Holds how the flips of contexts go with their mean KL. What too few contexts tell is None,
    and ``reason`` says so."""

    task: str
    dtype: str
    sampling: str
    kl_over: str  # the steps that the mean KL is over
    contexts: int  # with a flip
    pearson: float | None
    pearson_p: float | None
    spearman: float | None
    spearman_p: float | None
    without_0: int  # contexts whose flip is behind the first step
    pearson_without_0: float | None
    without_boundary: int  # whose flip is behind the first few (BOUNDARY)
    pearson_without_boundary: float | None
    early_kl: float | None  # mean over the third that parts first
    late_kl: float | None
    welch_t: float | None
    welch_p: float | None
    reason: str


@dataclass(frozen=True)
class Flips:
    """Holds a number for each context that has a flip, the mean over its draws."""

    steps: FloatArray
    kl: FloatArray

    @property
    def varies(self) -> bool:
        if len(self.steps) < FEWEST:
            return False
        return len(np.unique(self.steps)) > 1 and len(np.unique(self.kl)) > 1

    def behind(self, step: int) -> "Flips":
        is_behind = self.steps > step
        return Flips(self.steps[is_behind], self.kl[is_behind])


def find_flips(pairs: DataFrame, kl_over: str) -> Flips:
    """Returns the flips of free-running pairs that differ. ``pairs``: with the context of each
    row."""
    rows = []
    for row in pairs.to_dict("records"):
        flip = find_flip(row["tokens"], row["other_tokens"])
        if flip is None:
            continue
        kl = row["kl"]
        # At the flip itself both still stand behind the same prefix.
        if kl_over == UP_TO_FLIP:
            kl = kl[: flip + 1]
        rows.append((row["draw_id"], float(flip), float(np.mean(kl))))
    table = DataFrame(rows, columns=["context", "flip", "kl"])
    means = table.groupby("context").mean().astype(np.float64)
    return Flips(means["flip"].to_numpy(), means["kl"].to_numpy())


def pearson_test(flips: Flips) -> tuple[float | None, float | None]:
    """Returns r and its p over contexts; None of too few, and where all are alike."""
    if not flips.varies:
        return None, None
    result = stats.pearsonr(flips.steps, flips.kl)
    return float(result.statistic), float(result.pvalue)


def spearman_test(flips: Flips) -> tuple[float | None, float | None]:
    if not flips.varies:
        return None, None
    result = stats.spearmanr(flips.steps, flips.kl)
    return float(result.statistic), float(result.pvalue)


def split_thirds(flips: Flips) -> tuple[FloatArray, FloatArray] | None:
    """Returns the KL of the contexts that part first, up to the 33rd percentile of the flip, and of
    those that part last, from the 67th, each of shape (contexts,); None where a third is too small,
    or a context would be in both."""
    if not len(flips.steps):
        return None
    is_early, is_late = thirds(flips.steps)
    if (is_early & is_late).any() or min(is_early.sum(), is_late.sum()) < FEWEST_OF_A_THIRD:
        return None
    return flips.kl[is_early], flips.kl[is_late]


def welch_test(early: FloatArray, late: FloatArray) -> tuple[float | None, float | None]:
    """Returns Welch's t and its two-sided p for the mean KL of early flips, shape (early,), and of
    late ones, shape (late,); None where no third varies."""
    # Without variance Welch's t would be a division by 0.
    if not early.std() and not late.std():
        return None, None
    result = stats.ttest_ind(early, late, equal_var=False)
    return float(result.statistic), float(result.pvalue)


def measure_boundary(task: str, dtype: str, sampling: str, kl_over: str, flips: Flips) -> Boundary:
    """Relates the flips of contexts to their mean KL, as far as there are enough."""
    behind_0, behind_boundary = flips.behind(0), flips.behind(BOUNDARY)
    reasons = []
    if not flips.varies:
        contexts = len(flips.steps)
        reasons.append(f"{contexts} contexts with a flip, a correlation needs {FEWEST} that differ")
    early_kl, late_kl, welch_t, welch_p = None, None, None, None
    thirds = split_thirds(flips)
    if thirds is None:
        reasons.append("no early and late third")
    else:
        early, late = thirds
        early_kl, late_kl = float(early.mean()), float(late.mean())
        welch_t, welch_p = welch_test(early, late)
    pearson, pearson_p = pearson_test(flips)
    spearman, spearman_p = spearman_test(flips)
    return Boundary(
        task,
        dtype,
        sampling,
        kl_over,
        contexts=len(flips.steps),
        pearson=pearson,
        pearson_p=pearson_p,
        spearman=spearman,
        spearman_p=spearman_p,
        without_0=len(behind_0.steps),
        pearson_without_0=pearson_test(behind_0)[0],
        without_boundary=len(behind_boundary.steps),
        pearson_without_boundary=pearson_test(behind_boundary)[0],
        early_kl=early_kl,
        late_kl=late_kl,
        welch_t=welch_t,
        welch_p=welch_p,
        reason="; ".join(reasons),
    )


def grouped_pairs(table: DataFrame) -> Iterator[tuple[tuple[str, ...], DataFrame]]:
    """Yields the free-running pairs of cache on and off by task, dtype and way to choose."""
    pairs = drop_overflows(free_pairs(table))
    yield from sorted_groups(pairs, "task", "dtype", "sampling")


def measure_boundaries(table: DataFrame) -> list[Boundary]:
    """Returns what flips tell. ``table``: with the context of each row."""
    boundaries = []
    for (task, dtype, sampling), group in grouped_pairs(table):
        for kl_over in (ALL_STEPS, UP_TO_FLIP):
            flips = find_flips(group, kl_over)
            boundaries.append(measure_boundary(task, dtype, sampling, kl_over, flips))
    return boundaries


def build_content(tables: Mapping[str, DataFrame]) -> StudyContent:
    """Draws the flips of contexts against their mean KL, and lists how the two go together."""
    table = tables[TABLE]
    boundaries = measure_boundaries(table)
    if not boundaries:
        return StudyContent(())
    parted = [row for row in boundaries if row.contexts]
    section = StudySection("boundary", TITLE, "No answer parts: there is no flip to compare.")
    if parted:
        correlations = ("pearson", "spearman", "pearson_without_0", "pearson_without_boundary")
        forms = dict.fromkeys(correlations, "+.2f") | {"welch_t": ".1f"}
        listing = listing_of_fields(TITLE, parted, forms)
        styles = tuple(named_styles(SAMPLINGS).values())
        pictures = tuple(_pictures(table))
        section = StudySection("boundary", TITLE, TEXT, styles, pictures, details=(listing,))
    sheet = Sheet.of("numerics-boundary", TITLE, [*map(vars, boundaries)])
    return StudyContent([section], sheets=[sheet])


SAMPLINGS = ("greedy", "top_k", "top_p")
TITLE = "Do answers that part early have the larger divergence?"
TEXT = (
    "A dot is a context whose answers part: the first token that differs, and the mean KL up to "
    "it. Over all steps, as the text has it, KL is larger the earlier the flip is, because more "
    "of its steps compare two texts. Correlations and thirds are over contexts, also without "
    f"flips at 0 and up to {BOUNDARY}; what too few contexts tell is left blank in the download, "
    "with the reason."
)


def _pictures(table: DataFrame) -> Iterator[Picture]:
    """Draws contexts of all tasks, a picture for each dtype."""
    styles = named_styles(SAMPLINGS)
    by_dtype: dict[str, dict[LineStyle, list[Place]]] = {}
    for (_, dtype, sampling), group in grouped_pairs(table):
        flips = find_flips(group, UP_TO_FLIP)
        if len(flips.steps):
            of_dtype = by_dtype.setdefault(dtype, {})
            places = of_dtype.setdefault(styles[sampling], [])
            places += zip(flips.steps.tolist(), flips.kl.tolist(), strict=True)
    for dtype, places_by_style in by_dtype.items():
        yield _scatter(dtype, places_by_style)


def _scatter(dtype: str, places: Mapping[LineStyle, list[Place]]) -> Picture:
    steps: list[float] = []
    heights: list[float] = []
    dots = []
    for style, of_style in places.items():
        for step, kl in of_style:
            steps.append(step)
            heights.append(kl)
        dots.append(Dots(style, tuple(of_style)))
    across = Axis.from_values("first token that differs", steps)
    frame = Frame(across, Axis.from_values("", heights))
    note = "mean KL up to the flip, in nats"
    words = f"{dtype}: {note} over the flip"
    return Picture(dtype, note, Drawing(frame, tuple(dots), words, f"boundary {dtype}"))
