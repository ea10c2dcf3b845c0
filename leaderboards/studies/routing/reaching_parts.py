"""The section of the page, downloads and definitions on what reaches an answer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from markupsafe import Markup
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.figures.panels import BandedLine, fitted, panel
from leaderboards.metrics.declaration.definition import Definition, estimates
from leaderboards.rendering.frames import SHARE, Axis
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import LineStyle, named_styles, policy_styles
from leaderboards.routing.reach import EPSILON
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.routing.reaching import Reached, reach_curves
from leaderboards.studies.treatments.parts import in_percent
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

GOLD, ANY = "the gold answer", "as many tokens, drawn"
Cells = Mapping[tuple[str, Level], Estimate]


def columns_of(one: Any) -> dict[str, object]:
    """Returns the fields of a dataclass as columns of a download; estimates stay whole."""
    return {field.name: getattr(one, field.name) for field in fields(one)}


def styles_of(policies: Iterable[str]) -> dict[str, LineStyle]:
    """Returns a style for each policy, the same in every section, the full cache last."""
    return policy_styles(sorted(dict.fromkeys(policies), key=lambda policy: policy == FULL))


def over_levels(cells: Cells, styles: Mapping[str, LineStyle], title: str, note: str, salt: str) -> Picture:
    """Draws the shares of policies over their levels, from the full cache on."""
    axis = Axis.over([level for _, level in cells if level != UNTREATED])
    whole = [(axis.origin, cells[FULL, UNTREATED])] if axis.origin is not None and (FULL, UNTREATED) in cells else []
    paths = []
    for policy, style in styles.items():
        own = {level: one for (name, level), one in cells.items() if name == policy and level in axis}
        points = [(value, one) for value, one in whole if value is not None]
        points += [(level.value, own[level]) for level in sorted(own)]
        if own:
            paths.append(path_of(style, points))
    return Picture(title, note, Markup(panel(paths, axis, fitted(paths), f"{title}: {note}", salt)))


def path_of(style: LineStyle, points: Sequence[tuple[float, Estimate]]) -> BandedLine:
    """Makes a line with a band, where all its points have intervals."""
    ends = [one.interval for _, one in points]
    known = [interval for interval in ends if interval is not None]
    low, high = zip(*known, strict=True) if len(known) == len(ends) else ((), ())
    return BandedLine(style, tuple((value, one.mean) for value, one in points), low, high)


class Reaching:
    """Holds how often answers are reached, over epsilon and over levels."""

    def __init__(self, joined: DataFrame, telling: float) -> None:
        self.curves = list(reach_curves(joined))
        self._telling = telling

    def parts(self) -> list[StudySection]:
        return [self._part(task) for task in dict.fromkeys(one.task for one in self.curves)]

    def _pictures(self, task: str, curves: Sequence[Reached], styles: Mapping[str, LineStyle]) -> tuple[Picture, ...]:
        told = [one for one in curves if one.epsilon == self._telling]
        return (
            _over_epsilon(task, curves),
            over_levels(
                _cells(told, lambda one: one.reached),
                styles,
                f"Reached, routes of at least {self._telling:g}",
                "share of answers",
                f"reached/{task}",
            ),
            over_levels(
                _cells(told, lambda one: one.relayed),
                styles,
                "Reached, though none of it is left",
                "share of answers",
                f"relayed/{task}",
            ),
            over_levels(_cells(told, lambda one: one.right), styles, "Right", "share of answers", f"right/{task}"),
        )

    def _part(self, task: str) -> StudySection:
        curves = [one for one in self.curves if one.task == task]
        styles = styles_of(one.policy for one in curves)
        rows = tuple(
            (
                one.policy,
                str(one.level),
                f"{one.epsilon:g}",
                in_percent(one.reached),
                f"{100 * one.chance:.0f}",
                in_percent(one.relayed),
                in_percent(one.right),
                f"{one.width:.2f}",
            )
            for one in curves
            if one.epsilon in (EPSILON, self._telling)
        )
        columns = (
            "policy",
            "level",
            "epsilon",
            "reached",
            "reached by chance",
            "relayed",
            "right answers",
            "width",
        )
        listing = Listing("Of the questions that the full cache has right, percent; width: a share", columns, rows)
        return StudySection(
            f"reach-{task}",
            f"What reaches the answer: {task}",
            "Of the questions that the full cache has right: how often a route leads from the gold answer’s tokens to "
            "the place where the answer is written, over the least attention that each step of it has; beside it, how "
            "often one leads from as many tokens drawn from the context. What everything reaches tells nothing.",
            tuple(style for name, style in styles.items() if name != FULL),
            self._pictures(task, curves, styles),
            details=(listing,),
        )

    def sheets(self) -> list[Sheet]:
        return [
            Sheet.of("routing-reach", "How often answers are reached", list(map(columns_of, self.curves)), ("task",))
        ]


def _cells(curves: Iterable[Reached], estimate: Callable[[Reached], Estimate]) -> dict[tuple[str, Level], Estimate]:
    return {(one.policy, one.level): estimate(one) for one in curves}


def _over_epsilon(task: str, curves: Sequence[Reached]) -> Picture:
    """Draws reach over epsilon with the full cache, beside chance."""
    full = [one for one in curves if one.policy == FULL]
    styles = named_styles((GOLD, ANY))
    paths = [
        path_of(styles[GOLD], [(one.epsilon, one.reached) for one in full]),
        BandedLine(styles[ANY], tuple((one.epsilon, one.chance) for one in full)),
    ]
    drawing = panel(
        paths,
        Axis.around("least attention in each step", SHARE),
        Axis.around("", SHARE),
        f"Reached over epsilon, full cache: {task}",
        f"epsilon/{task}",
    )
    return Picture("Full cache", "reached by the gold; below, by as many tokens drawn", Markup(drawing))


DEFINITIONS = (
    Definition(
        "Reached, and by chance",
        "Nodes are tokens before and behind each layer. A layer leads from a token to one that gives it at least "
        "epsilon of some head’s attention, and from each token to itself. Context reads context as in the uncompressed "
        "prefill; the question and the first token of the answer read the context only where a row is left. An answer "
        "is reached if a path leads from a token of the gold to the last token of the question, or to the first token "
        "of the answer, behind the last layer. By chance: 1 − (1 − c)^n, where c is the share of the context’s tokens "
        "that reach the answer and n the tokens of the gold. Relayed: reached although no row of the gold is left, "
        "through tokens that read it in the prefill. Width: the least attention in the widest path, 0 where none has "
        "0.01 in each step; mean over answers.",
        "reached(ε) ⇔ max over paths of min over edges ≥ ε",
        "after arXiv 2603.01426, which gives no algorithm",
        names=(
            *("reached by chance", "epsilon", "right answers", "width"),
            *estimates("reached", "relayed"),
            "right_n",
        ),
    ),
)
