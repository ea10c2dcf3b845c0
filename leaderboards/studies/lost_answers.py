"""Draws what became of the lost answers of each policy: a stacked bar for each level."""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from leaderboards.aggregate.lost_answers import Fate, LostAnswers
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Band, Frame
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.studies.declaration import Picture, StudySection
from policies.declaration.levels import UNTREATED

TITLE = "Does GER explain the errors?"
TEXT = "A bar holds the lost answers of a level, each in the first part of the legend that holds."
OPACITY = 0.85
HALF_BAR = 0.025  # of the width of the axis
NARROW = 0.05  # of a level, where equal steps of the axis are factors


def lost_section(found: Sequence[LostAnswers]) -> StudySection | None:
    """Makes the section of some policies; None where none of them was asked what the full cache has right."""
    if not found:
        return None
    present = {fate for one in found for counts in one.by_level.values() for fate in counts}
    styles = {
        name: style for name, style in named_styles([*map(str, Fate)]).items() if name in present
    }
    pictures = tuple(
        _bars(one, styles) for one in found if any(level != UNTREATED for level in one.by_level)
    )
    sentences = [one.sentence for one in found]
    text = Markup("<br>").join(
        [*sentences, TEXT] if pictures else sentences
    )  # which escapes names of policies
    return StudySection("lost", TITLE, text, tuple(styles.values()) if pictures else (), pictures)


def _bars(lost: LostAnswers, styles: Mapping[str, LineStyle]) -> Picture:
    axis = Axis.over(list(lost.by_level))
    levels = [level for level in sorted(lost.by_level) if level in axis]
    heights = np.array(
        [[lost.by_level[level].get(Fate(name), 0) for name in styles] for level in levels]
    )
    tops = np.cumsum(heights, axis=1)
    upright = Axis.from_values("", [float(tops.max())])
    marks = []
    for level, of_level, tops_of_level in zip(levels, heights, tops, strict=True):
        beside = NARROW * level.value if axis.doubling else HALF_BAR * (axis.last - axis.first)
        ends = (max(axis.first, level.value - beside), min(axis.last, level.value + beside))
        for style, height, top in zip(styles.values(), of_level, tops_of_level, strict=True):
            if height:
                marks.append(Band.between(style, ends, (top - height,) * 2, (top,) * 2, OPACITY))
    title = f"{lost.policy}: lost answers by what became of them, over the {axis.title}"
    drawing = Drawing(Frame(axis, upright), tuple(marks), title, f"lost/{lost.policy}")
    return Picture(lost.policy, "lost answers", drawing)
