"""Curves and listings over levels, from which the parts of the page are made."""

from collections.abc import Iterable, Mapping, Sequence

from pandas import DataFrame

from leaderboards.figures.panels import BandedLine
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import LineStyle
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.instructions.obedience import PromptRecords
from policies.declaration.levels import UNTREATED, Level, LevelKind
from policies.declaration.names import FULL


def over_levels(prompts: PromptRecords) -> Axis:
    kind = kind_of(prompts.levels)
    ticks = {level.value for level in prompts.levels} | ({kind.nothing} if kind.has_origin else set())
    return Axis.around(f"asked {kind.name}", tuple(sorted(ticks)))


def kind_of(levels: Sequence[Level]) -> LevelKind:
    """Returns the kind of some levels, or that of the untreated cache where there are none."""
    return (levels[0] if levels else UNTREATED).declared


Cells = Mapping[tuple[str, Level], Estimate]


def path_of(style: LineStyle, cells: Cells, policy: str, levels: Sequence[Level]) -> BandedLine:
    """Returns the estimates of a policy, from the full cache on, where that has a place."""
    kind = kind_of(levels)
    whole = [(kind.nothing, estimate) for (name, _), estimate in cells.items() if name == FULL]
    anchored = whole if levels and kind.has_origin else []
    pairs = [(level.value, cells[policy, level]) for level in levels if (policy, level) in cells]
    points = [(value, estimate) for value, estimate in (*anchored, *pairs)]
    has_band = all(estimate.low is not None for _, estimate in points)
    return BandedLine(
        style,
        tuple((value, estimate.mean) for value, estimate in points),
        tuple(float(estimate.low or 0) for _, estimate in points) if has_band else (),
        tuple(float(estimate.high or 0) for _, estimate in points) if has_band else (),
    )


def cells_of(table: DataFrame, name: str) -> dict[tuple[str, Level], Estimate]:
    return {(str(row["policy"]), row["level"]): row[name] for _, row in table.iterrows() if row[name] is not None}


def share_text(estimate: Estimate | None) -> str:
    """Writes the share in percent."""
    if estimate is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{100 * estimate.mean:z.0f}"
    return f"{100 * estimate.mean:z.0f} [{100 * estimate.low:z.0f}–{100 * estimate.high:z.0f}]"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}"


def table_of(title: str, prompts: PromptRecords, cells: Cells, policies: Iterable[str]) -> Listing:
    """Returns a row for each policy, a column for each level, in percent; the full cache has the same in each."""
    return level_listing(title, prompts, {cell: share_text(estimate) for cell, estimate in cells.items()}, policies)


def level_listing(
    title: str, prompts: PromptRecords, texts: Mapping[tuple[str, Level], str], policies: Iterable[str]
) -> Listing:
    whole = next((text for (name, _), text in texts.items() if name == FULL), "–")
    rows = tuple(
        (policy, *(whole if policy == FULL else texts.get((policy, level), "–") for level in prompts.levels))
        for policy in policies
    )
    return Listing(title, ("policy", *map(str, prompts.levels)), rows)
