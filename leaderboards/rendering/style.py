"""Gives each policy its style: the same colour, marker and dash in every curve and in every legend of a page."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from leaderboards.aggregate.row import SummaryRow
from policies.declaration.names import CONTROLS, FULL, ORACLE, RANDOM, RECENCY
from policies.declaration.policy import Policy
from policies.registry import POLICIES

# (on light, on dark). Any two differ by more than 20 on light and 10 on dark in CIELAB, under protanopia and
# deuteranopia too (simulated after Machado et al., 2009), and stand out from the page by about 3 to 1.
SERIES_COLOURS = (
    ("#1858c8", "#3f7bea"),
    ("#a8380f", "#e07a2c"),
    ("#2a9d68", "#46d592"),
    ("#9c5c94", "#d97ab4"),
    ("#c97d00", "#f0e061"),
    ("#4a93d8", "#c9ecff"),
    ("#37206f", "#b3a3ff"),
    ("#5a4038", "#a67c58"),
)
CONTROL_COLOUR = ("#7d7b75", "#94928c")
INK_COLOUR = ("#6f6d67", "#9b9993")

# Outlines of the markers around (0, 0) for the legend of the page, as matplotlib draws them in the curves.
MARKERS = {
    "o": "M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0Z",
    "s": "M-2.9-2.9H2.9V2.9H-2.9Z",
    "^": "M0-3.4L3.4 3.2H-3.4Z",
    "D": "M0-3.9L3.9 0L0 3.9L-3.9 0Z",
    "v": "M0 3.4L3.4-3.2H-3.4Z",
    "P": "M-1.2-3.6H1.2V-1.2H3.6V1.2H1.2V3.6H-1.2V1.2H-3.6V-1.2H-1.2Z",
    "p": "M0-3.7L3.5-1.1L2.2 3H-2.2L-3.5-1.1Z",
    "X": "M-3.6-1.8L-1.8-3.6L0-1.8L1.8-3.6L3.6-1.8L1.8 0L3.6 1.8L1.8 3.6L0 1.8L-1.8 3.6L-3.6 1.8L-1.8 0Z",
}
SOLID: tuple[float, ...] = ()
CONTROL_DASHES = {
    FULL: (7.0, 3.0),
    ORACLE: SOLID,
    RANDOM: (1.0, 1.6),
    "random+ends": (1.0, 3.2),
    RECENCY: (4.0, 1.6, 1.0, 1.6),
}
REPEAT_DASHES = (SOLID, (4.0, 1.5), (1.2, 1.2))


@dataclass(frozen=True)
class LineStyle:
    """The look of the line of a policy."""

    policy: str
    index: int  # the place of the policy on the page, by which its line is found in the curves
    variable: str  # of the style sheet, that holds the colour
    colours: tuple[str, str]  # on light, on dark
    marker: str
    dashes: tuple[float, ...]  # on, off, … in line widths, or none
    width: float
    control: bool
    adapted: bool = False  # it ran with other arguments than its paper's

    @property
    def label(self) -> str:
        """Returns the name in a printed legend."""
        return f"{self.policy} (adapted)" if self.adapted else self.policy

    @property
    def marker_outline(self) -> str:
        return MARKERS.get(self.marker, "")

    @property
    def dash_array(self) -> str:
        """Returns the dashes as SVG writes them, in pixels."""
        return " ".join(f"{dash * self.width:g}" for dash in self.dashes)


def line_styles(rows: Sequence[SummaryRow]) -> dict[str, LineStyle]:
    """Returns a style for each policy, in order of first appearance. A policy looks the same on every page and site:
    only a colour that another policy of the site has already gives way, and then the next one is taken."""
    policies = list(dict.fromkeys(row.policy for row in rows))
    slots = _slots([policy for policy in policies if policy not in CONTROLS])
    return {policy: _style(policy, index, slots.get(policy, 0)) for index, policy in enumerate(policies)}


def with_adapted(styles: Mapping[str, LineStyle], adapted: Collection[str]) -> dict[str, LineStyle]:
    """Marks the styles of policies that ran with other arguments than their papers'."""
    return {name: replace(style, adapted=name in adapted) for name, style in styles.items()}


def named_styles(names: Sequence[str]) -> dict[str, LineStyle]:
    """Returns a style for each of some names that are no policies."""
    return {name: _style(name, index, index) for index, name in enumerate(names)}


def _slots(methods: Sequence[str]) -> dict[str, int]:
    """Returns a place for each method, by which it has a colour, a marker and dashes: the same whatever their order.
    Every colour is taken once before any is taken again, by other dashes."""
    known = {policy.name: place for place, policy in enumerate(sorted(POLICIES.values(), key=_defaults_first))}
    ordered = sorted(methods, key=lambda name: (known.get(name, len(known)), name))
    colours, slots = len(SERIES_COLOURS), {}
    taken: set[int] = set()
    for number, name in enumerate(ordered):
        preferred = known.get(name, number) % colours
        if number % colours == 0:
            taken = set()
        colour = next(one for one in (*range(preferred, colours), *range(preferred)) if one not in taken)
        taken.add(colour)
        slots[name] = number // colours * colours + colour
    return slots


def _defaults_first(policy: Policy) -> bool:
    return not policy.by_default or policy.name in CONTROLS


def _style(policy: str, index: int, slot: int) -> LineStyle:
    if policy in CONTROLS:
        colours = INK_COLOUR if policy == FULL else CONTROL_COLOUR
        variable = "--ink-curve" if policy == FULL else "--control-curve"
        return LineStyle(policy, index, variable, colours, "", CONTROL_DASHES[policy], 1.2, control=True)
    repeat, number = divmod(slot, len(SERIES_COLOURS))
    marker = list(MARKERS)[(number + repeat) % len(MARKERS)]
    dashes = REPEAT_DASHES[repeat % len(REPEAT_DASHES)]
    return LineStyle(policy, index, f"--series-{number}", SERIES_COLOURS[number], marker, dashes, 1.6, control=False)
