"""The tables of rounding average over layers and contexts, and leave out what overflows."""

import math
from typing import Any

import pytest
from pandas import DataFrame

from leaderboards.studies.numerics.rounding import build_content, layer_errors, product_errors


def rounding_row(context: str, layer: int, **more: Any) -> dict[str, Any]:
    lists = {"lengths": [16, 32], "scores": [1e-4, 3e-4], "outputs": [2e-4, 2e-4]}
    return (
        {"draw_id": context, "dtype": "float16", "layer": layer, "alone": 1e-4, "propagated": 2e-4}
        | lists
        | more
    )


ROWS = [
    rounding_row("a", 0),
    rounding_row("a", 1, scores=[3e-4, 5e-4], propagated=4e-4),
    rounding_row("b", 0, lengths=[16], scores=[5e-4], outputs=[2e-4], alone=3e-4),
    rounding_row("b", 1, lengths=[16], scores=[math.nan], outputs=[2e-4], alone=math.nan),
]


def test_products_by_length() -> None:
    found = {(one.product, one.length): one.error for one in product_errors(DataFrame(ROWS))}
    assert found["query times keys", 16].mean == pytest.approx(3e-4)
    assert (found["query times keys", 16].n, found["query times keys", 32].n) == (3, 2)
    assert found["query times keys", 32].mean == pytest.approx(4e-4)
    assert found["attention times values", 16].mean == pytest.approx(2e-4)


def test_layers() -> None:
    first, second = layer_errors(DataFrame(ROWS))
    assert (first.alone.mean, first.propagated.mean) == pytest.approx((2e-4, 2e-4))
    assert second.alone.n == 1
    assert second.propagated.mean == pytest.approx(4e-4)


def test_the_page_has_both_experiments_and_their_downloads() -> None:
    content = build_content({"numerics_rounding": DataFrame(ROWS)})
    assert [part.identifier for part in content.parts] == ["products", "propagation"]
    assert [sheet.name for sheet in content.sheets] == ["numerics-products", "numerics-propagation"]
    assert build_content({}).parts == ()
