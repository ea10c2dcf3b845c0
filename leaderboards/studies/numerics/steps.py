"""Follows the divergence of both paths over the steps of decoding: figure 1 of arXiv 2604.15409."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.series import average_columns
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
    """Holds how far the next-token distributions of cache on and cache off are apart at one
    step."""

    task: str
    dtype: str
    sampling: str
    regime: str
    step: int  # counted from 0, at which both read the prompt
    contexts: int  # whose answers have that step
    kl: Estimate  # mean, in nats
    js: Estimate | None  # None of runs before it was measured


def measure_steps(pairs: DataFrame) -> list[StepDivergence]:
    """Returns every step by task, dtype, way to choose and regime. ``pairs``: with contexts
    (``draw_id``)."""
    cell = ("task", "dtype", "sampling", "regime")
    steps: list[StepDivergence] = []
    for (task, dtype, way, regime), group in sorted_groups(pairs[pairs["pair"] == CACHE], *cell):
        contexts = group["draw_id"].to_numpy(dtype=str)
        values = padded(numbers_by_step(group, "kl"))
        divergences = average_columns(values, contexts)
        shannon = average_columns(padded(numbers_by_step(group, "js")), contexts)
        # Runs from before it was measured have no such numbers at any step.
        shannon += [None] * (len(divergences) - len(shannon))
        for step, (kl, js) in enumerate(zip(divergences, shannon, strict=True)):
            if kl is not None:
                reached = np.unique(contexts[np.isfinite(values[:, step])])
                steps.append(StepDivergence(task, dtype, way, regime, step, len(reached), kl, js))
    return steps


def build_content(tables: Mapping[str, DataFrame]) -> StudyContent:
    """Draws the divergence of both paths step by step."""
    steps = measure_steps(tables[TABLE])
    if not steps:  # every logit overflows
        return StudyContent(())
    styles = named_styles(list(dict.fromkeys(map(_line_name, steps))))
    steps_by_part: dict[tuple[str, str], list[StepDivergence]] = {}
    for step in steps:
        steps_by_part.setdefault((step.task, step.regime), []).append(step)
    pictures: list[Picture] = []
    for task in dict.fromkeys(step.task for step in steps):
        for regime in (FORCED, FREE):
            shown = steps_by_part.get((task, regime), [])
            pictures += _pictures(task, regime, shown, styles)
    # A power of two has no bit in common with the number before it; nor has 0.
    few = [step for step in steps if step.step & (step.step - 1) == 0]
    listing = listing_of_fields("At steps 0, 1, 2, 4 and so on", few, {"kl": ".2g", "js": ".2g"})
    text = (
        "Means over contexts at each step, as powers of ten. Behind the same tokens rounding "
        "alone parts both paths; free-running, whatever is behind the first token that differs "
        "compares two texts. At step 0 both read the prompt at once, and are equal."
    )
    looks = tuple(styles.values())
    section = StudySection("steps", TITLE, text, looks, tuple(pictures), details=(listing,))
    sheet = Sheet.of("numerics-steps", TITLE, [*map(vars, steps)], kinds={"js": Estimate})
    return StudyContent([section], sheets=[sheet])


def _line_name(step: StepDivergence) -> str:
    if step.sampling == "greedy":
        return step.dtype
    return f"{step.dtype}, {step.sampling}"


def _pictures(
    task: str, regime: str, steps: Sequence[StepDivergence], styles: Mapping[str, LineStyle]
) -> Iterator[Picture]:
    """Draws a line for each dtype, and free-running for each way to choose too: behind the same
    tokens all ways walk alike."""
    if regime == FORCED and steps:
        first = steps[0].sampling
        steps = [step for step in steps if step.sampling == first]
    steps_by_line: dict[str, list[StepDivergence]] = {}
    for step in steps:
        steps_by_line.setdefault(_line_name(step), []).append(step)
    for measure, name in MEASURES.items():
        lines = []
        for line, style in styles.items():
            of_line = steps_by_line.get(line, [])
            points = in_powers((step.step, getattr(step, measure)) for step in of_line)
            if points:
                lines.append(banded_line(style, points))
        if lines:
            axis = Axis.counted("step", 1 + max(step.step for step in steps))
            title, note = f"{task}, {regime}", f"{name}, nats, as a power of ten"
            yield curve(title, note, lines, axis, f"steps {measure} {title}")
