"""The sections of the page, download and definitions on why answers are wrong."""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration.definition import Definition, estimates
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import SHARE, Axis, Frame
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.marks import Band
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.routing.failures import FailureClass
from leaderboards.routing.reach import EPSILON
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.routing.classes import CONTEXT, chances, classify, shares
from leaderboards.studies.treatments.parts import in_percent
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

OPACITY = 0.85
DEFINED = (FailureClass.RIGHT, FailureClass.CONFUSED)  # by the names of metrics
# From below in a stack. Colours go by the order of STYLED.
STACKED = (
    *(FailureClass.RIGHT, FailureClass.BEYOND_MODEL, FailureClass.UNUSED, FailureClass.CONFUSED, FailureClass.SILENT),
    *(FailureClass.UNREACHABLE, FailureClass.ERASED, FailureClass.NOT_OBSERVED),
)
STYLED = (
    *(
        FailureClass.UNUSED,
        FailureClass.ERASED,
        FailureClass.RIGHT,
        FailureClass.CONFUSED,
        FailureClass.UNREACHABLE,
        FailureClass.SILENT,
    ),
    *(FailureClass.NOT_OBSERVED, FailureClass.BEYOND_MODEL),
)
Shares = dict[tuple[str, str, Level], dict[FailureClass, Estimate]]  # by task, policy and level


class Classes:
    """Holds the share of each class by task, policy and level: with edges of an epsilon at which to be reached tells
    something, and of 0.01."""

    def __init__(self, joined: DataFrame, telling: float) -> None:
        self._telling, self._chances = telling, chances(joined)
        self._by_epsilon = {epsilon: _shares(joined, epsilon) for epsilon in dict.fromkeys((telling, EPSILON))}

    def telling_parts(self) -> list[StudySection]:
        """Returns a section for each task, of routes that few tokens of a context have."""
        return self._parts(self._telling, _text(self._telling, self._chances))

    def other_parts(self) -> list[StudySection]:
        """Returns the same of routes as narrow as an edge may be, unless that is what tells."""
        return [] if self._telling == EPSILON else self._parts(EPSILON, _text_of_narrow(self._chances))

    def _parts(self, epsilon: float, text: str) -> list[StudySection]:
        found = self._by_epsilon[epsilon]
        return [_part(task, epsilon, found, text) for task in dict.fromkeys(task for task, _, _ in found)]

    def sheet(self) -> Sheet:
        rows = [
            {"task": task, "policy": policy, "level": level, "epsilon": epsilon, "outcome": str(outcome), "share": one}
            for epsilon, found in self._by_epsilon.items()
            for (task, policy, level), of_class in found.items()
            for outcome, one in of_class.items()
        ]
        return Sheet.of("routing-classes", "Classes of failures", rows, ("task", "policy", "level"))


def _shares(joined: DataFrame, epsilon: float) -> Shares:
    classified = with_levels(joined).assign(outcome=classify(joined, epsilon))
    groups = classified.groupby(["task", "policy", "level"], observed=True, sort=False)
    found = {key: shares(group["outcome"].tolist(), group[CONTEXT].tolist()) for key, group in groups}
    return {(str(task), str(policy), level): found[task, policy, level] for task, policy, level in found}


def _part(task: str, epsilon: float, found: Shares, text: str) -> StudySection:
    of_task = {(policy, level): one for (name, policy, level), one in found.items() if name == task}
    styles = named_styles([str(outcome) for outcome in STYLED])
    policies = [policy for policy in dict.fromkeys(policy for policy, _ in of_task) if policy != FULL]
    pictures = tuple(_stack(task, policy, epsilon, of_task, styles) for policy in policies)
    listing = Listing(
        "Answers of each class, percent",
        ("policy", "level", *map(str, STACKED)),
        tuple(
            (policy, str(level), *(in_percent(of_class[outcome]) for outcome in STACKED))
            for (policy, level), of_class in sorted(of_task.items(), key=lambda item: (item[0][0] != FULL, *item[0]))
        ),
    )
    return StudySection(
        f"classes-{task}-{epsilon:g}",
        f"Why answers are wrong: {task}, routes of at least {epsilon:g}",
        text,
        tuple(styles[str(outcome)] for outcome in STACKED),
        pictures,
        details=(listing,),
    )


def _text(epsilon: float, chances_of: Mapping[float, float]) -> str:
    return (
        "Each answer to a question whose answer stands in the context is in one class, stacked over the asked level, "
        f"from the full cache on. Every step of a route takes at least {epsilon:g} of some head’s attention"
        f"{_told(epsilon, chances_of)}. Narrower routes lead from more tokens, and tell less: see the curve over the "
        "least attention below."
    )


def _text_of_narrow(chances_of: Mapping[float, float]) -> str:
    return (
        f"The same where a route may be as narrow as {EPSILON:g} of a head’s attention in each step"
        f"{_told(EPSILON, chances_of)}. Where nearly all tokens do, to be reached tells nothing, and hardly any answer "
        "is unreachable."
    )


def _told(epsilon: float, chances_of: Mapping[float, float]) -> str:
    if epsilon not in chances_of:
        return ""
    return f": with the full cache, {100 * chances_of[epsilon]:.0f} % of a context’s tokens reach the answer so"


def _stack(
    task: str,
    policy: str,
    epsilon: float,
    found: dict[tuple[str, Level], dict[FailureClass, Estimate]],
    styles: dict[str, LineStyle],
) -> Picture:
    """Draws the classes of one policy over its levels, from the full cache on."""
    axis = Axis.over([level for name, level in found if name == policy])
    own = {level: of_class for (name, level), of_class in found.items() if name == policy and level in axis}
    if axis.origin is not None and (FULL, UNTREATED) in found:
        own = {UNTREATED: found[FULL, UNTREATED], **own}
    ordered = sorted((level.value if level != UNTREATED else axis.origin or 0.0, level) for level in own)
    places = tuple(value for value, _ in ordered)
    heights = np.array([[own[level][outcome].mean for outcome in STACKED] for _, level in ordered])
    tops = np.cumsum(heights, axis=1)
    marks = tuple(
        Band.between(styles[str(outcome)], places, tuple(top - height), tuple(top), OPACITY)
        for outcome, top, height in zip(STACKED, tops.T, heights.T, strict=True)
        if height.any()
    )
    title = f"{policy}: classes of answers over the {axis.title}, {task}, routes of at least {epsilon:g}"
    drawing = Drawing(Frame(axis, Axis.around("", SHARE)), marks, title, f"classes/{task}/{policy}/{epsilon:g}")
    return Picture(policy, "share of answers", Markup(drawing.svg()))


def counted(outcomes: Sequence[FailureClass]) -> str:
    """Tells how many answers went wrong unobserved."""
    missing = sum(outcome is FailureClass.NOT_OBSERVED for outcome in outcomes)
    return f"{missing} of {len(outcomes)} answers" if missing else "nothing"


DEFINITIONS = (
    Definition(
        "Class of an answer",
        "The first of these that holds, of questions whose answer stands in the context. Right. Wrong with the full "
        "cache too. Not observed: the press has a prefill of its own, merges or rewrites rows, or goes on cutting "
        "while it answers, or it failed. Erased: no row of the gold answer’s tokens is left in any layer and head, and "
        "no route leads from them. Unreachable: rows are left, and no route leads from them. With a route: silent, if "
        "the answer is empty or an abstention; confused, if it is a value that the context states for something else "
        "and a route leads from there too; else reached and unused. Right answers are right whatever is reached. On a "
        "board, unused counts all three with a route; routes have at least the attention there with which no more than "
        "a tenth of a context’s tokens reach the answer under the full cache.",
        "right + wrong with the full cache too + not observed + erased + unreachable + silent + confused + "
        "reached and unused = all answers",
        "storage, accessibility and use after arXiv 2603.01426",
        names=(
            *(str(one) for one in FailureClass if str(one) not in DEFINED),
            "outcome",
            "unused",
            *estimates("share"),
        ),
    ),
)
