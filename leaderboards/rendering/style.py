"""Gives each policy its style: the same colour, marker and dash in every curve and legend of every
page."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from hashlib import sha256
from itertools import pairwise

from leaderboards.aggregate.row import SummaryRow
from policies.composition import TREATMENTS
from policies.declaration.names import CONTROLS, FULL, ORACLE, RANDOM, RECENCY
from policies.registry import POLICIES
from policies.treatments.options import kind_in

# (on light, on dark). Any two differ by more than 20 on light and 10 on dark in CIELAB, under
# protanopia and deuteranopia too (simulated after Machado et al., 2009), and stand out from the
# page by about 3 to 1.
SERIES_COLOURS = (
    ("#1858c8", "#3f7bea"),
    ("#a8380f", "#e07a2c"),
    ("#2a9d68", "#46d592"),
    ("#9c5c94", "#d97ab4"),
    ("#c97d00", "#f0e061"),
    ("#4a93d8", "#c9ecff"),
    ("#37206f", "#b3a3ff"),
    # this one and the next are left to policies that are none of the package
    ("#5a4038", "#a67c58"),
    ("#c2185b", "#ff8ab5"),
)
OWN = tuple(range(len(SERIES_COLOURS)))[-2:]
CONTROL_COLOUR = ("#7d7b75", "#94928c")
INK_COLOUR = ("#6f6d67", "#9b9993")

MARKERS = ("o", "s", "^", "D", "v", "P", "p", "X")  # of methods, in turn
# The corners of markers in halves of their size, downwards, as matplotlib has them. A circle has
# none.
CORNERS: dict[str, tuple[tuple[float, float], ...]] = {
    "s": ((-1, 1), (1, 1), (1, -1), (-1, -1)),
    "^": ((0, -1), (-1, 1), (1, 1)),
    "v": ((0, 1), (1, -1), (-1, -1)),
    "D": ((0, math.sqrt(2)), (math.sqrt(2), 0), (0, -math.sqrt(2)), (-math.sqrt(2), 0)),
    "P": tuple(
        (x / 3, y / 3)
        for x, y in (
            *((-1, 3), (1, 3), (1, 1), (3, 1), (3, -1), (1, -1)),
            *((1, -3), (-1, -3), (-1, -1), (-3, -1), (-3, 1), (-1, 1)),
        )
    ),
    "X": tuple(
        (x / 2, y / 2)
        for x, y in (
            *((-1, 2), (0, 1), (1, 2), (2, 1), (1, 0), (2, -1)),
            *((1, -2), (0, -1), (-1, -2), (-2, -1), (-1, 0), (-2, 1)),
        )
    ),
    "p": tuple(
        (-math.sin(turn * math.tau / 5), -math.cos(turn * math.tau / 5)) for turn in range(5)
    ),
    "*": tuple(
        (-share * math.sin(turn * math.tau / 10), -share * math.cos(turn * math.tau / 10))
        for turn, share in zip(range(10), (1, 0.381966) * 5, strict=True)
    ),
}
LEGEND_MARKER = 6.6  # pixels across
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
    def label(self) -> str:  # in a printed legend
        return f"{self.policy} (adapted)" if self.adapted else self.policy

    @property
    def marker_outline(self) -> str:  # for the legend of the page
        return marker_path(self.marker, LEGEND_MARKER) if self.marker else ""

    @property
    def dash_array(self) -> str:  # as SVG writes it, in pixels
        return " ".join(f"{dash * self.width:g}" for dash in self.dashes)


def line_styles(rows: Sequence[SummaryRow]) -> dict[str, LineStyle]:
    return policy_styles(row.policy for row in rows)


def policy_styles(policies: Iterable[str]) -> dict[str, LineStyle]:
    """Returns a style for each policy, in order of first appearance: the same on every page, of
    every site, and in print. Defaults have a colour each, what somebody brings has one of its own,
    and what is made of a known policy, such as ``snapkv+int4``, has its colour."""
    names = list(dict.fromkeys(policies))
    looks = _looks([name for name in names if name not in CONTROLS])
    return {
        name: _style(name, index, looks.get(name, (0, 0, 0))) for index, name in enumerate(names)
    }


def with_adapted(styles: Mapping[str, LineStyle], adapted: Collection[str]) -> dict[str, LineStyle]:
    """Marks the styles of policies that ran with other arguments than their papers'."""
    return {name: replace(style, adapted=name in adapted) for name, style in styles.items()}


def named_styles(names: Sequence[str]) -> dict[str, LineStyle]:
    return {
        name: _style(name, index, _look(index, len(SERIES_COLOURS)))
        for index, name in enumerate(names)
    }


Look = tuple[int, int, int]  # which colour, which marker, which dashes


def _look(place: int, colours: int) -> Look:
    """Returns the look of a place in some order: colours in turn, then again by other markers and
    dashes."""
    repeat, colour = divmod(place, colours)
    return colour, (colour + repeat) % len(MARKERS), repeat % len(REPEAT_DASHES)


@cache
def _known_looks() -> Mapping[str, Look]:
    """Returns the looks of the policies of the package; the last colours are left to others."""
    defaults_first = sorted(
        POLICIES.values(), key=lambda one: not one.by_default or one.name in CONTROLS
    )
    names = [policy.name for policy in defaults_first] + list(TREATMENTS)
    return {name: _look(place, OWN[0]) for place, name in enumerate(names)}


def _looks(names: Sequence[str]) -> dict[str, Look]:
    """Returns the looks of policies. A name that is not known begins at a place of its own and
    takes the first look of its colour that is free, so that it depends on others only where their
    places are the same."""
    known = _known_looks()
    looks = {name: known[name] for name in names if name in known}
    own = [
        (marker, dashes) for dashes in range(len(REPEAT_DASHES)) for marker in range(len(MARKERS))
    ]
    for name in sorted(set(names) - set(known)):
        base, place = (
            kind_in(name.split("+")[0]),
            int.from_bytes(sha256(name.encode()).digest()[:4]),
        )
        colour = known[base][0] if base in known else OWN[place % len(OWN)]
        taken = {look[0] for look in looks.values()}
        if base not in known and colour in taken:
            colour = next((one for one in OWN if one not in taken), colour)
        first = place % len(own)
        turned = [(colour, *look) for look in (*own[first:], *own[:first])]
        free = [look for look in turned if look not in looks.values()]
        unused = [look for look in free if look not in known.values()]
        looks[name] = next(iter((*unused, *free, *turned)))
    return looks


def _style(policy: str, index: int, look: Look) -> LineStyle:
    if policy in CONTROLS:
        colours = INK_COLOUR if policy == FULL else CONTROL_COLOUR
        variable = "--ink-curve" if policy == FULL else "--control-curve"
        return LineStyle(
            policy, index, variable, colours, "", CONTROL_DASHES[policy], 1.2, control=True
        )
    colour, marker, dashes = look
    marks = MARKERS[marker], REPEAT_DASHES[dashes]
    return LineStyle(
        policy, index, f"--series-{colour}", SERIES_COLOURS[colour], *marks, 1.6, control=False
    )


def marker_path(shape: str, size: float) -> str:
    """Returns the outline of a marker around (0, 0) as an SVG path."""
    (right, down), outline = _outline(shape, size)
    return f"M{pixel_text(right, 2)} {pixel_text(down, 2)}{outline}"


def markers_path(shape: str, size: float, places: Iterable[tuple[float, float]]) -> str:
    """Returns the outlines of a marker around all places, in tenths of a pixel, as one path."""
    (right, down), outline = _outline(shape, size)
    return "".join(f"M{pixel_text(x + right)} {pixel_text(y + down)}{outline}" for x, y in places)


@lru_cache(maxsize=64)
def _outline(shape: str, size: float) -> tuple[tuple[float, float], str]:
    """Returns where the outline of a marker begins, from its middle, and how it goes on."""
    half = size / 2
    if shape not in CORNERS:
        arc = f"a{pixel_text(half)} {pixel_text(half)} 0 1 0"
        return (-half, 0.0), f"{arc} {pixel_text(size)} 0{arc} {pixel_text(-size)} 0Z"
    corners = [(half * x, half * y) for x, y in CORNERS[shape]]
    steps = ((x - left, y - above) for (left, above), (x, y) in pairwise(corners))
    return corners[0], "".join(f"l{pixel_text(x, 2)} {pixel_text(y, 2)}" for x, y in steps) + "Z"


def pixel_text(value: float, digits: int = 1) -> str:
    """Writes a number without what it does not need.

    >>> [pixel_text(value) for value in (12.34, 12.0, -0.04, 0.5)]
    ['12.3', '12', '0', '.5']
    """
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    if text == "-0":
        return "0"
    return text.replace("0.", ".", 1) if abs(value) < 1 and len(text) > 1 else text
