"""Shows what rounding does to a model's own numbers: in one product by its length, and from layer
to layer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import named_styles
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, StudyContent, StudySection
from leaderboards.studies.numerics.walked import DTYPES
from leaderboards.studies.parts import banded_line, curve, estimate_mean, listing_of_fields

TABLE = "numerics_rounding"  # of a store (kvbench.studies.numerics)
PRODUCTS = {"scores": "query times keys", "outputs": "attention times values"}


@dataclass(frozen=True)
class ProductError:
    """Holds the relative error of a product over so many tokens, mean over layers, heads and
    contexts."""

    dtype: str
    product: str
    length: int
    error: Estimate


@dataclass(frozen=True)
class LayerError:
    """Holds the relative error of the residual stream behind a layer, over contexts."""

    dtype: str
    layer: int
    alone: Estimate  # that the layer adds to an exact input
    propagated: Estimate  # of all layers so far


def product_errors(table: DataFrame) -> list[ProductError]:
    """Returns the errors by dtype, product and length. ``table``: with the context of each row."""
    errors: dict[tuple[str, str, int], list[float]] = {}
    contexts: dict[tuple[str, str, int], list[str]] = {}
    for row in table.to_dict("records"):
        for column, product in PRODUCTS.items():
            for length, error in zip(row["lengths"], row[column], strict=True):
                # What overflows has no relative error, and would make every mean infinite.
                if np.isfinite(error):
                    cell = (row["dtype"], product, int(length))
                    errors.setdefault(cell, []).append(error)
                    contexts.setdefault(cell, []).append(row["draw_id"])
    results = []
    for cell, of_cell in errors.items():
        results.append(ProductError(*cell, estimate_mean(of_cell, contexts[cell])))
    return sorted(results, key=lambda row: (DTYPES.index(row.dtype), row.product, row.length))


def layer_errors(table: DataFrame) -> list[LayerError]:
    """Returns the errors by dtype and layer. ``table``: with the context of each row."""
    rows = table[np.isfinite(table["alone"]) & np.isfinite(table["propagated"])]
    results = []
    for (dtype, layer), group in rows.groupby(["dtype", "layer"]):
        alone = estimate_mean(group["alone"], group["draw_id"])
        propagated = estimate_mean(group["propagated"], group["draw_id"])
        results.append(LayerError(dtype, int(layer), alone, propagated))
    return sorted(results, key=lambda row: (DTYPES.index(row.dtype), row.layer))


def build_content(tables: Mapping[str, DataFrame]) -> StudyContent:
    """Lists the errors of products, and draws those of layers."""
    if TABLE not in tables or tables[TABLE].empty:
        return StudyContent(())
    products = product_errors(tables[TABLE])
    layers = layer_errors(tables[TABLE])
    parts, sheets = [], []
    if products:
        listing = listing_of_fields(PRODUCT_TITLE, products, {"error": ".2g"})
        parts.append(StudySection("products", PRODUCT_TITLE, PRODUCT_TEXT, details=(listing,)))
        sheets.append(Sheet.of("numerics-products", PRODUCT_TITLE, [*map(vars, products)]))
    if layers:
        listing = listing_of_fields(LAYER_TITLE, layers, dict.fromkeys(MEASURES, ".2g"))
        section = StudySection(
            "propagation",
            LAYER_TITLE,
            LAYER_TEXT,
            tuple(named_styles(MEASURES).values()),
            tuple(_pictures(layers)),
            details=(listing,),
        )
        parts.append(section)
        sheets.append(Sheet.of("numerics-propagation", LAYER_TITLE, [*map(vars, layers)]))
    return StudyContent(parts, sheets=sheets)


MEASURES = ("propagated", "alone")
PRODUCT_TITLE = "How the error of a product depends on its length"
PRODUCT_TEXT = (
    "Queries, keys and values of the model itself, over prompts, in one context of three: the "
    "product of the last query with all keys, and of its attention with all values, against "
    "float64 from the same rounded numbers. An error that does not grow with the tokens comes "
    "from the size of a head."
)
LAYER_TITLE = "How the error of one layer grows through the layers"
LAYER_TEXT = (
    "The residual stream of prompts against that of layers which compute in float64, with the "
    "same weights. Alone: the layer is given what the rounded layers before it put out; "
    "propagated: the layers before it are exact too."
)


def _pictures(layers: list[LayerError]) -> Iterator[Picture]:
    styles = named_styles(MEASURES)
    layers_by_dtype: dict[str, list[LayerError]] = {}
    for row in layers:
        layers_by_dtype.setdefault(row.dtype, []).append(row)
    for dtype, rows in layers_by_dtype.items():
        lines = []
        for name, style in styles.items():
            points = [(row.layer, getattr(row, name)) for row in rows]
            lines.append(banded_line(style, points))
        axis = Axis.for_layers(len(rows))
        yield curve(dtype, "relative error", lines, axis, f"propagation {dtype}")
