"""Tells whether the answers of an example part at every draw, at some or at none, as over the five
seeds of arXiv 2604.15409."""

from collections.abc import Mapping
from dataclasses import dataclass

from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.shares import estimate_share
from leaderboards.studies.declaration import StudyContent, StudySection
from leaderboards.studies.numerics.walked import (
    TABLE,
    drop_overflows,
    find_flip,
    free_pairs,
    sorted_groups,
)
from leaderboards.studies.parts import listing_of_fields

TITLE = "Is it the example or the draw that parts?"


@dataclass(frozen=True)
class PartingShares:
    """Holds the shares of examples whose answers with and without the cache differ at all draws,
    some or none."""

    task: str
    dtype: str
    sampling: str
    draws: int  # of each example
    examples: int
    always: Estimate
    sometimes: Estimate
    never: Estimate


def measure_repeats(pairs: DataFrame) -> list[PartingShares]:
    """Returns each task, dtype and way to choose. ``pairs``: with contexts (``draw_id``). Examples
    of which a draw overflows are left out."""
    rows = drop_overflows(free_pairs(pairs))
    flips = map(find_flip, rows["tokens"], rows["other_tokens"])
    rows = rows.assign(parts=[flip is not None for flip in flips])
    repeats = []
    for (task, dtype, way), group in sorted_groups(rows, "task", "dtype", "sampling"):
        by_example = group.groupby("question_id", sort=False).agg(
            parted=("parts", "sum"), draws=("parts", "size"), context=("draw_id", "first")
        )
        draws = int(by_example["draws"].max())
        # An example that lacks a draw cannot have parted at all of them.
        whole = by_example[by_example["draws"] == draws]
        parted, contexts = whole["parted"], whole["context"]
        always, never = parted == draws, parted == 0
        shares = [estimate_share(flags, contexts) for flags in (always, ~always & ~never, never)]
        repeats.append(PartingShares(task, dtype, way, draws, len(whole), *shares))
    return repeats


def build_content(tables: Mapping[str, DataFrame]) -> StudyContent:
    rows = measure_repeats(tables[TABLE])
    if not rows:
        return StudyContent(())
    listing = listing_of_fields(TITLE, rows, {})
    text = (
        "Shares of examples, in percent, whose answers with and without the cache differ at every "
        "draw, at some, or at none. With one draw, as greedily, there is no sometimes."
    )
    sheet = Sheet.of("numerics-repeats", TITLE, [*map(vars, rows)])
    return StudyContent([StudySection("repeats", TITLE, text, listings=(listing,))], sheets=[sheet])
