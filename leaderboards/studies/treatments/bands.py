"""Maps what is kept where a fault hits one band of layers alone: a row for each band, a column for
each rate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.templating import HeatMap, Tile
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import StudySection
from leaderboards.studies.parts import NONE
from leaderboards.studies.treatments.damage import Damage
from leaderboards.studies.treatments.tasks import MeasuredTask
from policies.declaration.levels import Level, name_levels

FEWEST_BANDS = 2  # of a map: one band alone is a row of a table
ALL_LAYERS = "all layers"


@dataclass(frozen=True)
class BandCell:
    """Holds what one fault at one rate leaves of a task where it hits one band."""

    task: MeasuredTask
    fault: str  # in all layers, which names the map
    band: str
    policy: str
    level: Level

    @property
    def kept(self) -> Estimate | None:
        return self.task.kept(self.policy, self.level)

    @property
    def row(self) -> dict[str, Any]:
        """Returns a row of the download, with the score and that of the full cache, which the share
        is of."""
        return {
            "task": self.task.name,
            "fault": self.fault,
            "band": self.band,
            "level": self.level.value,
            "share_kept": self.kept,
            "score": self.task.score(self.policy, self.level),
            "full_cache": self.task.full_score,
            "not_mastered": self.task.withheld or None,
        }


def band_cells(tasks: Sequence[MeasuredTask], members: Sequence[Damage]) -> list[BandCell]:
    """Returns the cells of all maps: those of faults that were run in two bands or more, and of the
    same fault in all layers at the rates of the bands."""
    by_fault: dict[str, list[Damage]] = {}
    for member in members:
        by_fault.setdefault(member.in_all_layers, []).append(member)
    cells: list[BandCell] = []
    for fault, of_fault in by_fault.items():
        bands, whole = [], []
        for member in of_fault:
            if member.band:
                bands.append(member)
            else:
                whole.append(member)
        bands.sort(key=_band_place)
        if len(bands) >= FEWEST_BANDS:
            for task in tasks:
                cells += _cells_of_map(task, fault, bands, whole)
    return cells


def _cells_of_map(
    task: MeasuredTask, fault: str, bands: Sequence[Damage], whole: Sequence[Damage]
) -> Iterator[BandCell]:
    rates: set[Level] = set()
    for member in bands:
        rates.update(task.evidence.levels(member.policy))
    for member in (*bands, *whole):
        for level in task.evidence.levels(member.policy):
            if level in rates and level.amount:
                yield BandCell(task, fault, member.band or ALL_LAYERS, member.policy, level)


def _band_place(member: Damage) -> tuple[str, str]:
    """Puts quarters before halves, as text F does, and layers by number before both."""
    kind = {"Q": "1", "H": "2"}.get(member.band[0], "0")
    return kind, member.band


def band_section(cells: Sequence[BandCell]) -> list[StudySection]:
    """Shows a map for each task and fault; nothing without cells."""
    if not cells:
        return []
    by_map: dict[tuple[str, str], list[BandCell]] = {}
    for cell in cells:
        by_map.setdefault((cell.task.label, cell.fault), []).append(cell)
    text = (
        "Percent of what the full cache has, where the fault hits these layers alone, with the 95 "
        "% interval over contexts. Q1 to Q4 are the quarters of the layers from the input on, H1 "
        "and H2 the halves."
    )
    maps = []
    for (task, fault), of_map in by_map.items():
        maps.append(_heat_map(f"{task}: {fault}", of_map))
    return [StudySection("bands", "Bands of layers", text, maps=tuple(maps))]


def _heat_map(title: str, cells: Sequence[BandCell]) -> HeatMap:
    tiles: dict[str, dict[Level, Tile | None]] = {}
    levels_shown: set[Level] = set()
    for cell in cells:
        tiles.setdefault(cell.band, {})[cell.level] = _tile(cell.kept)
        levels_shown.add(cell.level)
    levels = sorted(levels_shown, key=lambda level: level.amount)
    rows = []
    for band, by_level in tiles.items():
        rows.append((band, tuple(map(by_level.get, levels))))
    names = name_levels(levels)
    columns = tuple(names[level] for level in levels)
    return HeatMap(title, "layers", columns, tuple(rows), levels[0].declared.axis, "share kept")


def _tile(kept: Estimate | None) -> Tile | None:
    if kept is None:
        return None
    ends = NONE
    if kept.interval is not None:
        low, high = kept.interval
        ends = f"{100 * low:z.0f} to {100 * high:z.0f}"
    # By chance more may be kept than the full cache has; colours end at all of it.
    heat = min(1.0, max(0.0, kept.mean))
    return Tile(f"{100 * kept.mean:z.0f}", ends, heat)


def bands_sheet(cells: Sequence[BandCell]) -> Sheet:
    rows = [cell.row for cell in cells]
    return Sheet.of("treatments-bands", "What is kept with a fault in a band of layers", rows)
