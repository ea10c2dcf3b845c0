"""Shows which heads attend otherwise with the cache than without it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.templating import HeatMap, Tile
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.series import average_columns
from leaderboards.studies.declaration import StudyContent, StudySection
from leaderboards.studies.numerics.walked import (
    DRIFT,
    IN_16_BITS,
    numbers_by_step,
    padded,
    sorted_groups,
)

TITLE = "Which heads attend otherwise?"


@dataclass(frozen=True)
class Head:
    """Holds how far the attention of a head with the cache is from that without it, at step 1."""

    task: str
    dtype: str
    layer: int
    head: int
    contexts: int
    kl: Estimate  # mean, in nats


def measure_heads(drift: DataFrame) -> list[Head]:
    """Returns every head by task and dtype. ``drift``: with contexts (``draw_id``)."""
    has_heads = [len(by_head) > 0 for by_head in numbers_by_step(drift, "attention_kl")]
    rows = drift[has_heads]
    heads: list[Head] = []
    for (task, dtype), group in sorted_groups(rows, "task", "dtype"):
        for layer, of_layer in group.groupby("layer"):
            values = padded(numbers_by_step(of_layer, "attention_kl"))
            contexts = of_layer["draw_id"].to_numpy(dtype=str)
            for head, kl in enumerate(average_columns(values, contexts)):
                if kl is not None:
                    # Contexts whose attention overflows are not among those compared.
                    compared = np.unique(contexts[np.isfinite(values[:, head])])
                    heads.append(Head(task, dtype, int(layer), head, len(compared), kl))
    return heads


def build_content(tables: Mapping[str, DataFrame]) -> StudyContent:
    """Maps how far the attention of each head is apart."""
    heads = measure_heads(tables[DRIFT]) if DRIFT in tables else []
    if not heads:
        return StudyContent(())
    by_map: dict[tuple[str, str], list[Head]] = {}
    for head in heads:
        by_map.setdefault((head.task, head.dtype), []).append(head)
    by_dtype: dict[str, list[HeatMap]] = {}
    for (task, dtype), of_map in by_map.items():
        if any(head.kl.mean for head in of_map):  # a step may leave no difference in coarse numbers
            by_dtype.setdefault(dtype, []).append(_heat_map(f"{task}, {dtype}", of_map))
    maps: list[HeatMap] = []
    # Of 16 bits, which the text is about; of other numbers only where these were not run.
    for dtype in [dtype for dtype in by_dtype if dtype in IN_16_BITS] or by_dtype:
        maps += by_dtype[dtype]
    text = (
        "KL of what each head attends to with the cache from what it attends to without it, of "
        "the last token at step 1, in percent of the head that is farthest apart. Maps are of 16 "
        "bits; the sheet has every type of numbers."
    )
    section = StudySection("heads", TITLE, text, maps=tuple(maps))
    sheet = Sheet.of("numerics-heads", TITLE, [*map(vars, heads)])
    return StudyContent([section] if maps else (), sheets=[sheet])


def _heat_map(name: str, heads: Sequence[Head]) -> HeatMap:
    largest = max(head.kl.mean for head in heads)
    tiles: dict[int, dict[int, Tile]] = {}
    for head in heads:
        share = head.kl.mean / largest
        tiles.setdefault(head.layer, {})[head.head] = Tile(f"{100 * share:.0f}", "", share)
    columns = range(1 + max(head.head for head in heads))
    rows = []
    for layer in sorted(tiles):
        of_layer = tiles[layer]
        rows.append((str(layer), tuple(map(of_layer.get, columns))))
    title = f"{name}: KL in percent of {largest:.1g} nats"
    names = tuple(map(str, columns))
    return HeatMap(title, "layer", names, tuple(rows), "head", "share of the largest")
