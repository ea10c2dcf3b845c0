"""Shows what rounding does to a model's own numbers: in one product by its length, and from layer to layer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Definition
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import named_styles
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, StudyContent, StudySection
from leaderboards.studies.parts import banded_line, curve, estimate_mean, listing_of_fields

TABLE = "numerics_rounding"  # of a store (kvbench.store.numerics)
PRODUCTS = {"scores": "query times keys", "outputs": "attention times values"}
ORDER = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class ProductError:
    """Holds the relative error of a product over so many tokens, mean over layers, heads and contexts."""

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
    values: dict[tuple[str, str, int], list[tuple[float, str]]] = {}
    for row in table.to_dict("records"):
        for column, product in PRODUCTS.items():
            for length, error in zip(row["lengths"], row[column], strict=True):
                if np.isfinite(error):
                    values.setdefault((row["dtype"], product, int(length)), []).append(
                        (error, row["draw_id"])
                    )
    found = []
    for (dtype, product, length), pairs in values.items():
        errors, contexts = zip(*pairs, strict=True)
        found.append(ProductError(dtype, product, length, estimate_mean(errors, contexts)))
    return sorted(found, key=lambda one: (ORDER.index(one.dtype), one.product, one.length))


def layer_errors(table: DataFrame) -> list[LayerError]:
    """Returns the errors by dtype and layer. ``table``: with the context of each row."""
    rows = table[np.isfinite(table["alone"]) & np.isfinite(table["propagated"])]
    found = []
    for (dtype, layer), group in rows.groupby(["dtype", "layer"]):
        estimates = (
            estimate_mean(group[name], group["draw_id"]) for name in ("alone", "propagated")
        )
        found.append(LayerError(dtype, int(layer), *estimates))
    return sorted(found, key=lambda one: (ORDER.index(one.dtype), one.layer))


def build_content(tables: Mapping[str, DataFrame]) -> StudyContent:
    if TABLE not in tables or tables[TABLE].empty:
        return StudyContent(())
    products, layers = product_errors(tables[TABLE]), layer_errors(tables[TABLE])
    parts, sheets = [], []
    if products:
        listing = listing_of_fields(PRODUCT_TITLE, products, {"error": ".2g"})
        parts.append(
            StudySection("products", PRODUCT_TITLE, PRODUCT_TEXT, details=(listing,), listings=())
        )
        sheets.append(Sheet.of("numerics-products", PRODUCT_TITLE, [*map(vars, products)]))
    if layers:
        styles, listing = (
            named_styles(MEASURES),
            listing_of_fields(LAYER_TITLE, layers, dict.fromkeys(MEASURES, ".2g")),
        )
        pictures, looks = tuple(_pictures(layers)), tuple(styles.values())
        parts.append(
            StudySection(
                "propagation", LAYER_TITLE, LAYER_TEXT, looks, pictures, details=(listing,)
            )
        )
        sheets.append(Sheet.of("numerics-propagation", LAYER_TITLE, [*map(vars, layers)]))
    return StudyContent(parts, sheets=sheets)


MEASURES = ("propagated", "alone")
PRODUCT_TITLE = "How the error of a product depends on its length"
PRODUCT_TEXT = (
    "Queries, keys and values of the model itself, over prompts, in one context of three: the product of the last "
    "query with all keys, and of its attention with all values, against float64 from the same rounded numbers. An "
    "error that does not grow with the tokens comes from the size of a head."
)
LAYER_TITLE = "How the error of one layer grows through the layers"
LAYER_TEXT = (
    "The residual stream of prompts against that of layers which compute in float64, with the same weights. Alone: the "
    "layer is given what the rounded layers before it put out; propagated: the layers before it are exact too."
)


def _pictures(layers: list[LayerError]) -> Iterator[Picture]:
    styles = named_styles(MEASURES)
    for dtype in dict.fromkeys(one.dtype for one in layers):
        rows = [one for one in layers if one.dtype == dtype]
        lines = [
            banded_line(style, [(row.layer, getattr(row, name)) for row in rows])
            for name, style in styles.items()
        ]
        yield curve(
            dtype, "relative error", lines, Axis.of_layers(len(rows)), f"propagation {dtype}"
        )


DEFINITIONS = (
    Definition(
        "Error of rounding",
        "How far a result is from what float64 gives from the same rounded numbers: of a product over its row of keys "
        "or of the head’s output, mean over heads, layers and contexts; of the residual stream behind a layer, mean "
        "over the tokens of the prompt. Norms are computed in float32 in either, as transformers does.",
        "error = ‖rounded − exact‖ / ‖exact‖",
    ),
)
