"""Follows the divergence of both paths over the steps of decoding: figure 1 of arXiv 2604.15409."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Definition
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.series import series_of
from leaderboards.studies.declaration import Picture, StudyContent, StudySection
from leaderboards.studies.numerics.walked import (
    CACHE,
    FORCED,
    FREE,
    TABLE,
    numbers_by_step,
    padded,
    sorted_groups,
)
from leaderboards.studies.parts import banded_line, curve, in_powers, listing_of_fields

TITLE = "Divergence over the steps"
MEASURES = {"kl": "KL", "js": "Jensen-Shannon"}


@dataclass(frozen=True)
class StepDivergence:
    """Holds how far the next-token distributions of cache on and cache off are apart at one step."""

    task: str
    dtype: str
    sampling: str
    regime: str
    step: int  # counted from 0, at which both read the prompt
    contexts: int  # whose answers have that step
    kl: Estimate  # mean, in nats
    js: Estimate | None  # None of runs before it was measured


def measure_steps(pairs: DataFrame) -> list[StepDivergence]:
    """Returns every step by task, dtype, way to choose and regime. ``pairs``: with contexts (``draw_id``)."""
    rows = pairs[pairs["pair"] == CACHE]
    steps: list[StepDivergence] = []
    for (task, dtype, way, regime), group in sorted_groups(
        rows, "task", "dtype", "sampling", "regime"
    ):
        contexts = group["draw_id"].to_numpy(dtype=str)
        values = padded(numbers_by_step(group, "kl"))
        divergences = series_of(values, contexts)
        shannon = series_of(padded(numbers_by_step(group, "js")), contexts)
        shannon += [None] * (len(divergences) - len(shannon))
        for step, (kl, js) in enumerate(zip(divergences, shannon, strict=True)):
            if kl is not None:
                reached = np.unique(contexts[np.isfinite(values[:, step])])
                steps.append(StepDivergence(task, dtype, way, regime, step, len(reached), kl, js))
    return steps


def build_content(tables: Mapping[str, DataFrame]) -> StudyContent:
    steps = measure_steps(tables[TABLE])
    if not steps:  # every logit overflows
        return StudyContent(())
    styles = named_styles(list(dict.fromkeys(map(_line_name, steps))))
    pictures = []
    for task in dict.fromkeys(one.task for one in steps):
        for regime in (FORCED, FREE):
            shown = [one for one in steps if (one.task, one.regime) == (task, regime)]
            pictures += list(_pictures(task, regime, shown, styles))
    few = [one for one in steps if one.step & (one.step - 1) == 0]
    listing = listing_of_fields("At steps 0, 1, 2, 4 and so on", few, {"kl": ".2g", "js": ".2g"})
    text = (
        "Means over contexts at each step, as powers of ten. Behind the same tokens rounding alone parts both paths; "
        "free-running, whatever is behind the first token that differs compares two texts. At step 0 both read the "
        "prompt at once, and are equal."
    )
    section = StudySection(
        "steps", TITLE, text, tuple(styles.values()), tuple(pictures), details=(listing,)
    )
    sheet = Sheet.of("numerics-steps", TITLE, [*map(vars, steps)], kinds={"js": Estimate})
    return StudyContent([section], sheets=[sheet])


def _line_name(step: StepDivergence) -> str:
    return step.dtype if step.sampling == "greedy" else f"{step.dtype}, {step.sampling}"


def _pictures(
    task: str, regime: str, steps: Sequence[StepDivergence], styles: Mapping[str, LineStyle]
) -> Iterator[Picture]:
    """Draws a line for each dtype, and free-running for each way to choose too: behind the same tokens all ways walk
    alike."""
    if regime == FORCED:
        ways = dict.fromkeys(one.sampling for one in steps)
        steps = [one for one in steps if one.sampling == next(iter(ways))]
    read: Mapping[str, Callable[[StepDivergence], Estimate | None]] = {
        "kl": lambda one: one.kl,
        "js": lambda one: one.js,
    }
    for measure, name in MEASURES.items():
        lines = []
        for line, style in styles.items():
            points = in_powers(
                (one.step, read[measure](one)) for one in steps if _line_name(one) == line
            )
            if points:
                lines.append(banded_line(style, points))
        if lines:
            axis = Axis.counted("step", 1 + max(one.step for one in steps))
            title, note = f"{task}, {regime}", f"{name}, nats, as a power of ten"
            yield curve(title, note, lines, axis, f"steps {measure} {title}")


DEFINITIONS = (
    Definition(
        "Divergence of Jensen and Shannon",
        "The mean divergence of both paths’ distributions from their mean, in nats: the same in both directions, and "
        "at most ln 2 = 0.69, where KL has no bound.",
        "JS = (KL(p, m) + KL(q, m)) / 2 with m = (p + q) / 2",
    ),
)
