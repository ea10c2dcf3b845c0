"""An interval on a line with the threshold of a claim."""

from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import STRIP, Axis, Frame
from leaderboards.rendering.marks import Dots, PolicyLine, Region
from leaderboards.rendering.style import INK_COLOUR, SERIES_COLOURS, LineStyle
from leaderboards.statistics.bootstrap import Estimate

MEASURED = LineStyle("measured", 0, "--series-0", SERIES_COLOURS[0], "o", (), 2.6, control=False)
INTERVAL = LineStyle("interval", 1, "--series-0", SERIES_COLOURS[0], "", (), 2.6, control=False)
THRESHOLD = LineStyle("threshold", 2, "--ink-curve", INK_COLOUR, "", (1.5, 1.5), 1.4, control=True)
STEPS = 4  # of the line, about
HALF = 0.5  # of the height


def interval_drawing(estimate: Estimate, threshold: float, side: str, axis: Axis, title: str, salt: str) -> str:
    """Draws an estimate on a line, as SVG for a page; the side of the threshold on which a claim holds is set off."""
    ends = {"at least": axis.last, "above": axis.last, "at most": axis.first, "below": axis.first}
    left, right = sorted((threshold, ends.get(side, threshold)))
    region = (Region((left, 0.0), (right, 1.0)),) if left < right else ()
    interval = (
        () if estimate.interval is None else (PolicyLine(INTERVAL, tuple((end, HALF) for end in estimate.interval)),)
    )
    marks = (
        *region,
        PolicyLine(THRESHOLD, ((threshold, 0.0), (threshold, 1.0))),
        *interval,
        Dots(MEASURED, ((estimate.mean, HALF),)),
    )
    frame = Frame(axis, Axis("", (), 0.0, 1.0), box=STRIP)
    return Drawing(frame, marks, title, salt).svg()


def axis_of(estimates: list[Estimate], threshold: float) -> Axis:
    """Returns a line that holds some estimates, their threshold and 0."""
    ends = [end for one in estimates for end in (one.mean, *(one.interval or ()))]
    return Axis.from_values("", [*ends, threshold], STEPS)
