"""Maps what is kept where a fault hits one band of layers alone: a row for each band, a column for each rate."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.templating import HeatMap, Tile
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import StudySection
from leaderboards.studies.parts import NONE
from leaderboards.studies.treatments.damage import Damage
from leaderboards.studies.treatments.tasks import MeasuredTask
from policies.declaration.levels import Level, names_of

FEWEST_BANDS = 2  # of a map: one band alone is a row of a table
ALL_LAYERS = "all layers"


@dataclass(frozen=True)
class BandCell:
    """What one fault at one rate leaves of a task where it hits one band."""

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
        """Returns a row of the download, with the score and that of the full cache, which the share is of."""
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
    """Returns the cells of all maps: those of faults that were run in two bands or more, and of the same fault in all
    layers at the rates of the bands."""
    by_fault: dict[str, list[Damage]] = {}
    for one in members:
        by_fault.setdefault(one.in_all_layers, []).append(one)
    cells = []
    for fault, of_fault in by_fault.items():
        bands = sorted((one for one in of_fault if one.band), key=_band_place)
        if len(bands) < FEWEST_BANDS:
            continue
        whole = [one for one in of_fault if not one.band]
        for task in tasks:
            rates = {level for one in bands for level in task.evidence.levels(one.policy)}
            for one in (*bands, *whole):
                levels = [
                    level
                    for level in task.evidence.levels(one.policy)
                    if level in rates and level.amount
                ]
                cells += [
                    BandCell(task, fault, one.band or ALL_LAYERS, one.policy, level)
                    for level in levels
                ]
    return cells


def _band_place(one: Damage) -> tuple[str, str]:
    """Puts quarters before halves, as text F does, and layers by number before both."""
    return {"Q": "1", "H": "2"}.get(one.band[0], "0"), one.band


def band_section(cells: Sequence[BandCell]) -> list[StudySection]:
    """Shows a map for each task and fault; nothing without cells."""
    if not cells:
        return []
    maps: dict[tuple[str, str], list[BandCell]] = {}
    for cell in cells:
        maps.setdefault((cell.task.label, cell.fault), []).append(cell)
    text = (
        "Percent of what the full cache has, where the fault hits these layers alone, with the 95 % interval over "
        "contexts. Q1 to Q4 are the quarters of the layers from the input on, H1 and H2 the halves."
    )
    drawn = tuple(_heat_map(f"{task}: {fault}", of_map) for (task, fault), of_map in maps.items())
    return [StudySection("bands", "Bands of layers", text, maps=drawn)]


def _heat_map(title: str, cells: Sequence[BandCell]) -> HeatMap:
    levels = sorted({cell.level for cell in cells}, key=lambda level: level.amount)
    by_place = {(cell.band, cell.level): cell.kept for cell in cells}
    bands = dict.fromkeys(cell.band for cell in cells)
    tiles = {place: _tile(kept) for place, kept in by_place.items()}
    rows = [(band, tuple(map(tiles.get, product([band], levels)))) for band in bands]
    names = names_of(levels)
    columns = tuple(names[level] for level in levels)
    return HeatMap(title, "layers", columns, tuple(rows), levels[0].declared.axis, "share kept")


def _tile(kept: Estimate | None) -> Tile | None:
    if kept is None:
        return None
    ends = (
        "" if kept.interval is None else " to ".join(f"{100 * end:z.0f}" for end in kept.interval)
    )
    return Tile(f"{100 * kept.mean:z.0f}", ends or NONE, min(1.0, max(0.0, kept.mean)))


def bands_sheet(cells: Sequence[BandCell]) -> Sheet:
    return Sheet.of(
        "treatments-bands",
        "What is kept with a fault in a band of layers",
        [cell.row for cell in cells],
    )
