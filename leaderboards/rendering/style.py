"""Gives each policy its style: the same colour, marker and dash in every curve and legend of every
page."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from hashlib import sha256
from itertools import pairwise, product

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
    # These two are left to policies that are none of the package.
    ("#5a4038", "#a67c58"),
    ("#c2185b", "#ff8ab5"),
)
COLOURS_OF_OTHERS = (len(SERIES_COLOURS) - 2, len(SERIES_COLOURS) - 1)


Corners = tuple[tuple[float, float], ...]


def _divided(corners: Corners, divisor: int) -> Corners:
    return tuple((x / divisor, y / divisor) for x, y in corners)


def _star(*shares: float) -> Corners:
    """Returns corners at equal angles, the first straight up, each at its share of the radius."""
    corners = []
    for turn, share in enumerate(shares):
        angle = turn * math.tau / len(shares)
        corners.append((-share * math.sin(angle), -share * math.cos(angle)))
    return tuple(corners)


ROOT_2 = math.sqrt(2)


# The corners of a plus in thirds of its arms, and of a cross in halves of them.
PLUS = (
    *((-1, 3), (1, 3), (1, 1), (3, 1), (3, -1), (1, -1)),
    *((1, -3), (-1, -3), (-1, -1), (-3, -1), (-3, 1), (-1, 1)),
)


CROSS = (
    *((-1, 2), (0, 1), (1, 2), (2, 1), (1, 0), (2, -1)),
    *((1, -2), (0, -1), (-1, -2), (-2, -1), (-1, 0), (-2, 1)),
)
CONTROL_COLOUR = ("#7d7b75", "#94928c")
INK_COLOUR = ("#6f6d67", "#9b9993")

MARKERS = ("o", "s", "^", "D", "v", "P", "p", "X")  # of methods, in turn
# The corners of markers in halves of their size, downwards, as matplotlib has them. A circle has
# none.
CORNERS: dict[str, Corners] = {
    "s": ((-1, 1), (1, 1), (1, -1), (-1, -1)),
    "^": ((0, -1), (-1, 1), (1, 1)),
    "v": ((0, 1), (1, -1), (-1, -1)),
    "D": ((0, ROOT_2), (ROOT_2, 0), (0, -ROOT_2), (-ROOT_2, 0)),
    "P": _divided(PLUS, 3),
    "X": _divided(CROSS, 2),
    "p": _star(1, 1, 1, 1, 1),
    "*": _star(*(1, 0.381966) * 5),
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
    def label(self) -> str:
        """Names the policy in a printed legend."""
        if self.adapted:
            return f"{self.policy} (adapted)"
        return self.policy

    @property
    def marker_outline(self) -> str:
        """Returns the outline of the marker in the legend of a page, as an SVG path."""
        if not self.marker:
            return ""
        return marker_path(self.marker, LEGEND_MARKER)

    @property
    def dash_array(self) -> str:
        """Writes the dashes as SVG does, in pixels."""
        lengths = [dash * self.width for dash in self.dashes]
        return " ".join(f"{length:g}" for length in lengths)


def line_styles(rows: Sequence[SummaryRow]) -> dict[str, LineStyle]:
    """Returns the styles of the policies of some rows."""
    return policy_styles(row.policy for row in rows)


def policy_styles(policies: Iterable[str]) -> dict[str, LineStyle]:
    """Returns a style for each policy, in order of first appearance: the same on every page, of
    every site, and in print. Defaults have a colour each, what somebody brings has one of its own,
    and what is made of a policy of the package, such as ``snapkv+int4``, has its colour."""
    names = list(dict.fromkeys(policies))
    looks = _looks([name for name in names if name not in CONTROLS])
    styles = {}
    for index, name in enumerate(names):
        if name in CONTROLS:
            styles[name] = _control_style(name, index)
        else:
            styles[name] = _method_style(name, index, looks[name])
    return styles


def with_adapted(styles: Mapping[str, LineStyle], adapted: Collection[str]) -> dict[str, LineStyle]:
    """Marks the styles of policies that ran with other arguments than their papers'."""
    return {name: replace(style, adapted=name in adapted) for name, style in styles.items()}


def named_styles(names: Sequence[str]) -> dict[str, LineStyle]:
    """Returns the styles of names that are no policies, by their places."""
    styles = {}
    for index, name in enumerate(names):
        styles[name] = _method_style(name, index, _look(index, len(SERIES_COLOURS)))
    return styles


Look = tuple[int, int, int]  # which colour, which marker, which dashes


def _look(place: int, colours: int) -> Look:
    """Returns the look of a place in some order: colours in turn, then again by other markers and
    dashes."""
    repeat, colour = divmod(place, colours)
    return colour, (colour + repeat) % len(MARKERS), repeat % len(REPEAT_DASHES)


@cache
def _packaged_looks() -> Mapping[str, Look]:
    """Returns the looks of the policies of the package; the last colours are left to others."""
    defaults, others = [], []
    for policy in POLICIES.values():
        comes_first = policy.by_default and policy.name not in CONTROLS
        if comes_first:
            defaults.append(policy.name)
        else:
            others.append(policy.name)
    names = [*defaults, *others, *TREATMENTS]
    return {name: _look(place, COLOURS_OF_OTHERS[0]) for place, name in enumerate(names)}


def _looks(names: Sequence[str]) -> dict[str, Look]:
    """Returns the looks of policies. A name from outside of the package begins at a place of its
    own and takes the first look of its colour that is free, so that it depends on others only where
    their places are the same."""
    packaged = _packaged_looks()
    looks = {name: packaged[name] for name in names if name in packaged}
    # Sorted, so that a look does not depend on the order of the records.
    for name in sorted(set(names) - set(packaged)):
        looks[name] = _free_look(name, set(looks.values()))
    return looks


def _free_look(name: str, taken: Collection[Look]) -> Look:
    """Returns a look for a name from outside of the package: one that nobody has, or one that is
    not ``taken`` here."""
    packaged = _packaged_looks()
    # From a digest, as hash() differs from process to process.
    place = int.from_bytes(sha256(name.encode()).digest()[:4])
    base = kind_in(name.split("+")[0])
    colour = packaged[base][0] if base in packaged else _free_colour(place, taken)
    # All markers and dashes of the colour, from a place of its own on, so that two names seldom
    # meet.
    variants = list(product(range(len(REPEAT_DASHES)), range(len(MARKERS))))
    first = place % len(variants)
    fallback: Look | None = None
    for dashes, marker in variants[first:] + variants[:first]:
        look = (colour, marker, dashes)
        if look in taken:
            continue
        if look not in packaged.values():
            return look
        fallback = fallback or look
    dashes, marker = variants[first]
    return fallback or (colour, marker, dashes)


def _free_colour(place: int, taken: Collection[Look]) -> int:
    preferred = COLOURS_OF_OTHERS[place % len(COLOURS_OF_OTHERS)]
    taken_colours = {look[0] for look in taken}
    for colour in (preferred, *COLOURS_OF_OTHERS):
        if colour not in taken_colours:
            return colour
    return preferred


def _control_style(policy: str, index: int) -> LineStyle:
    colours, variable = CONTROL_COLOUR, "--control-curve"
    if policy == FULL:
        colours, variable = INK_COLOUR, "--ink-curve"
    dashes = CONTROL_DASHES[policy]
    return LineStyle(policy, index, variable, colours, "", dashes, width=1.2, control=True)


def _method_style(policy: str, index: int, look: Look) -> LineStyle:
    colour, marker, dashes = look
    return LineStyle(
        policy,
        index,
        variable=f"--series-{colour}",
        colours=SERIES_COLOURS[colour],
        marker=MARKERS[marker],
        dashes=REPEAT_DASHES[dashes],
        width=1.6,
        control=False,
    )


def marker_path(shape: str, size: float) -> str:
    """Returns the outline of a marker around (0, 0) as an SVG path."""
    (right, down), outline = _outline(shape, size)
    return f"M{pixel_text(right, 2)} {pixel_text(down, 2)}{outline}"


def markers_path(shape: str, size: float, places: Iterable[tuple[float, float]]) -> str:
    """Returns the outlines of a marker around all places, in tenths of a pixel, as one path."""
    (right, down), outline = _outline(shape, size)
    path = ""
    for x, y in places:
        path += f"M{pixel_text(x + right)} {pixel_text(y + down)}{outline}"
    return path


@lru_cache(maxsize=64)
def _outline(shape: str, size: float) -> tuple[tuple[float, float], str]:
    """Returns where the outline of a marker begins, from its middle, and how it goes on."""
    half = size / 2
    if shape not in CORNERS:
        radius = pixel_text(half)
        arc = f"a{radius} {radius} 0 1 0"
        return (-half, 0.0), f"{arc} {pixel_text(size)} 0{arc} {pixel_text(-size)} 0Z"
    corners = [(half * x, half * y) for x, y in CORNERS[shape]]
    outline = ""
    for (left, above), (x, y) in pairwise(corners):
        outline += f"l{pixel_text(x - left, 2)} {pixel_text(y - above, 2)}"
    return corners[0], outline + "Z"


def pixel_text(value: float, digits: int = 1) -> str:
    """Writes a number without what it does not need.

    >>> [pixel_text(value) for value in (12.34, 12.0, -0.04, 0.5)]
    ['12.3', '12', '0', '.5']
    """
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    if text == "-0":
        return "0"
    if abs(value) < 1 and len(text) > 1:
        return text.replace("0.", ".", 1)
    return text
