"""Draws what became of the lost answers of each policy: a stacked bar for each level."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from leaderboards.aggregate.lost_answers import ChangedAnswer, Fate, LostAnswers
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Band, Frame
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.studies.declaration import Picture, StudySection
from policies.declaration.levels import UNTREATED, Level

TITLE = "Does GER explain the errors?"
TEXT = "A bar holds the lost answers of a level, each in the first part of the legend that holds."
CHANGED = "Answers that changed, side by side"
SHOWN = 40  # of them, on a page
LONGEST = 300  # characters of an answer in a table
OPACITY = 0.85
HALF_BAR = 0.025  # of the width of the axis
NARROW = 0.05  # of a level, where equal steps of the axis are factors


def lost_section(policies: Sequence[LostAnswers]) -> StudySection | None:
    """Makes the section of some policies; None where none of them was asked what the full cache has
    right."""
    if not policies:
        return None
    present: set[Fate] = set()
    for lost in policies:
        present.update(*lost.by_level.values())
    styles = named_styles([*map(str, Fate)])
    styles = {name: style for name, style in styles.items() if name in present}
    pictures, sentences = [], []
    for lost in policies:
        sentences.append(lost.sentence)
        if set(lost.by_level) - {UNTREATED}:
            pictures.append(_bars(lost, styles))
    if pictures:
        sentences.append(TEXT)
    text = Markup("<br>").join(sentences)  # which escapes names of policies
    shown = tuple(styles.values()) if pictures else ()
    return StudySection("lost", TITLE, text, shown, tuple(pictures))


def _bars(lost: LostAnswers, styles: Mapping[str, LineStyle]) -> Picture:
    axis = Axis.over(list(lost.by_level))
    marks: list[Band] = []
    highest = 0
    for level in sorted(lost.by_level):
        if level not in axis:
            continue
        counts = lost.by_level[level]
        ends = _ends_of_bar(level, axis)
        top = 0
        for name, style in styles.items():
            height = counts.get(Fate(name), 0)
            below, top = top, top + height
            if height:
                marks.append(Band.between(style, ends, (below,) * 2, (top,) * 2, OPACITY))
        highest = max(highest, top)
    upright = Axis.from_values("", [float(highest)])
    title = f"{lost.policy}: lost answers by what became of them, over the {axis.title}"
    drawing = Drawing(Frame(axis, upright), tuple(marks), title, f"lost/{lost.policy}")
    return Picture(lost.policy, "lost answers", drawing)


def _ends_of_bar(level: Level, axis: Axis) -> tuple[float, float]:
    """Returns where the bar of a level begins and ends on the axis, which it does not leave."""
    half = HALF_BAR * (axis.last - axis.first)
    if axis.doubling:
        half = NARROW * level.value
    return max(axis.first, level.value - half), min(axis.last, level.value + half)


def changed_section(by_other: Mapping[str, Sequence[ChangedAnswer]]) -> StudySection | None:
    """Makes the section of the answers that became wrong or right; ``by_other``: by whom they are
    compared with. None where no answer changed."""
    listings = []
    sentences = []
    for other, answers in by_other.items():
        if not answers:
            continue
        lost = sum(answer.is_lost for answer in answers)
        sentences.append(f"Against {other}: {lost} lost, {len(answers) - lost} won.")
        rows = []
        for answer in answers[:SHOWN]:
            texts = (" / ".join(answer.golds), shortened(answer.before), shortened(answer.now))
            rows.append((answer.question, answer.task, *texts))
        columns = ("question", "task", "right would be", f"{other} wrote", "now")
        listings.append(Listing(f"against {other}", columns, tuple(rows)))
    if not listings:
        return None
    if any(len(answers) > SHOWN for answers in by_other.values()):
        sentences.append(f"The first {SHOWN} are shown.")
    return StudySection("changed", CHANGED, " ".join(sentences), listings=tuple(listings))


def shortened(text: str) -> str:
    """Returns the beginning of a long answer."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
