"""The registry of derived measures: add one by writing its file and naming it here. The board is laid out here too."""

from typing import Any

from leaderboards.boards.area import AREA
from leaderboards.boards.beats import BEATS
from leaderboards.boards.cliff import CLIFFS
from leaderboards.boards.correlation import CORRELATIONS
from leaderboards.boards.declaration import DerivedMeasure
from leaderboards.boards.rank import RANK
from leaderboards.boards.safe_ratio import SAFE_RATIO
from leaderboards.metrics.declaration.definition import Definition, definitions_in

# In the order of the columns of the download.
DERIVED: tuple[DerivedMeasure[Any], ...] = (RANK, AREA, SAFE_RATIO, *CLIFFS.values(), *CORRELATIONS.values(), *BEATS)
# In the order of the board, where the measures of single levels follow. The first two are in view on a phone.
FIRST_COLUMNS: tuple[DerivedMeasure[Any], ...] = (RANK, SAFE_RATIO, AREA, *BEATS, *CLIFFS.values())


def derived_definitions(chapter: str) -> tuple[Definition, ...]:
    """Returns the definitions of the derived measures that stand in a chapter, with the names that each explains."""
    declared = [(definition, names) for measure in DERIVED for definition, names in measure.definitions]
    return definitions_in(chapter, declared)
