"""What is kept is observed from what a press returns."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvbench.engine.treat.keep import PressError, Ranking, kept_highest, matched_rows, observe


def cache(
    tokens: int, heads: int = 2, size: int = 4, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(1, heads, tokens, size, generator=generator) for _ in range(2))  # type: ignore[return-value]


@given(st.integers(0, 1000), st.integers(1, 30), st.data())
def test_selected_rows_are_found_in_any_order(seed: int, tokens: int, data: st.DataObject) -> None:
    keys, values = cache(tokens, seed=seed)
    count = data.draw(st.integers(1, tokens))
    order = torch.stack([torch.randperm(tokens)[:count] for _ in range(2)])
    rows = order[None, :, :, None].expand(1, -1, -1, 4)
    seen = observe(keys, values, keys.gather(2, rows), values.gather(2, rows), None)
    expected = torch.zeros(2, tokens, dtype=torch.bool).scatter_(1, order, True)
    assert seen.keep is not None
    assert torch.equal(seen.keep, expected)
    assert seen.held_rows == seen.read_rows == 2 * count


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows_are_matched_by_their_bits(dtype: torch.dtype) -> None:
    keys = torch.randn(3, 50, 8).to(dtype)
    found = matched_rows(keys, keys.flip(1))
    assert found is not None
    assert torch.equal(found, torch.arange(49, -1, -1).expand(3, -1))
    nearly = keys.clone()
    nearly[1, 7, 3] *= 1.01
    assert matched_rows(keys, nearly) is None


def test_a_row_returned_twice_is_a_rewrite() -> None:
    keys, values = cache(6)
    twice = torch.tensor([0, 0, 1])
    assert observe(keys, values, keys[:, :, twice], values[:, :, twice], None).keep is None


def test_masked_rows_are_not_read_but_held() -> None:
    keys, values = cache(5)
    masked = (torch.tensor([0, 0, 0]), torch.tensor([0, 0, 1]), torch.tensor([1, 2, 4]))
    seen = observe(keys, values, keys, values, masked)
    assert seen.keep is not None
    assert seen.keep.tolist() == [[True, False, False, True, True], [True, True, True, True, False]]
    assert (seen.read_rows, seen.held_rows) == (7, 10)


def test_a_layer_may_keep_nothing() -> None:
    """Cut off, or masked: of one budget for all layers."""
    keys, values = cache(5)
    batch, head, token = torch.ones(keys.shape[:3]).nonzero(as_tuple=True)
    cut = observe(keys, values, keys[:, :, :0], values[:, :, :0], None)
    masked = observe(keys, values, keys, values, (batch, head, token))
    for seen, held in ((cut, 0), (masked, 10)):
        assert seen.keep is not None
        assert not seen.keep.any()
        assert (seen.read_rows, seen.held_rows, tuple(seen.tokens.shape)) == (0, held, (2, 0))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda k, v: (k[:, :, :2], v[:, :, :3]), "keys of shape"),
        (lambda k, v: (k[:, :1], v[:, :1]), "only the third dimension"),
        (lambda k, v: (k * float("nan"), v), "NaN"),
        (lambda k, v: (k, v * float("nan")), "NaN"),
    ],
)
def test_what_is_no_cache_is_refused(change, reason: str) -> None:  # type: ignore[no-untyped-def]
    keys, values = cache(6)
    kept_keys, kept_values = change(keys, values)
    with pytest.raises(PressError, match=reason):
        observe(keys, values, kept_keys, kept_values, None)


@given(
    st.integers(1, 3).flatmap(
        lambda heads: st.integers(1, 24).flatmap(
            lambda tokens: st.lists(
                st.lists(
                    st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, float("inf"), -1.0]),
                    min_size=tokens,
                    max_size=tokens,
                ),
                min_size=heads,
                max_size=heads,
            )
        )
    )
)
def test_one_sort_keeps_for_every_count_what_kvpress_keeps(rows: list[list[float]]) -> None:
    """Equal scores among them, which a sort would put in an order of its own."""
    scores = torch.tensor([rows])
    counts = range(scores.shape[-1] + 1)
    ranking = Ranking(scores, counts)
    for count in counts:
        assert torch.equal(ranking.kept(count), kept_highest(scores, count))
