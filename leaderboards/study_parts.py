"""Pictures and listings that a study's page is made of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from pandas import DataFrame

from leaderboards.asked import Asked
from leaderboards.frames import Axis
from leaderboards.obedience import Study
from leaderboards.panels import Path
from leaderboards.resampling import Estimate
from leaderboards.row import FULL
from leaderboards.style import LineStyle


@dataclass(frozen=True)
class Picture:
    title: str
    note: str
    drawing: Markup


@dataclass(frozen=True)
class Listing:
    """``columns``: the first is the name of a row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Part:
    identifier: str
    title: str
    text: str
    styles: tuple[LineStyle, ...] = ()
    pictures: tuple[Picture, ...] = ()
    listings: tuple[Listing, ...] = ()
    details: tuple[Listing, ...] = ()


def over_ratios(found: Study) -> Axis:
    kind = found.levels[0].kind if found.levels else "ratio"
    ticks = tuple(asked.value for asked in found.levels)
    return Axis.around(f"asked {kind}", (0.0, *ticks) if kind == "ratio" else ticks)


Cells = Mapping[tuple[str, Asked], Estimate]


def path_of(style: LineStyle, cells: Cells, policy: str, levels: Sequence[Asked]) -> Path:
    """The estimates of a policy, from the full cache at ratio 0 on."""
    whole = [(0.0, estimate) for (name, _), estimate in cells.items() if name == FULL]
    anchored = whole if levels and levels[0].kind == "ratio" else []
    own = [(asked.value, cells[policy, asked]) for asked in levels if (policy, asked) in cells]
    points = [(value, estimate) for value, estimate in (*anchored, *own)]
    has_band = all(estimate.low is not None for _, estimate in points)
    return Path(
        style,
        tuple((value, estimate.mean) for value, estimate in points),
        tuple(float(estimate.low or 0) for _, estimate in points) if has_band else (),
        tuple(float(estimate.high or 0) for _, estimate in points) if has_band else (),
    )


def cells_of(table: DataFrame, name: str) -> dict[tuple[str, Asked], Estimate]:
    return {(str(row["policy"]), row["asked"]): row[name] for _, row in table.iterrows() if row[name] is not None}


def written(estimate: Estimate | None) -> str:
    """In percent."""
    if estimate is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{100 * estimate.mean:.0f}"
    return f"{100 * estimate.mean:.0f} [{100 * estimate.low:.0f}–{100 * estimate.high:.0f}]"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}"


def table_of(title: str, found: Study, cells: Cells, policies: Iterable[str]) -> Listing:
    """A row for each policy, a column for each level, in percent; the full cache has the same in each."""
    return listed(title, found, {cell: written(estimate) for cell, estimate in cells.items()}, policies)


def listed(title: str, found: Study, texts: Mapping[tuple[str, Asked], str], policies: Iterable[str]) -> Listing:
    whole = next((text for (name, _), text in texts.items() if name == FULL), "–")
    rows = tuple(
        (policy, *(whole if policy == FULL else texts.get((policy, asked), "–") for asked in found.levels))
        for policy in policies
    )
    return Listing(title, ("policy", *map(str, found.levels)), rows)
