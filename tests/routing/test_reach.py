"""Routes through graphs of 3 layers and 5 tokens, by hand, and against a search along all paths."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from leaderboards.routing.reach import EPSILON, EPSILONS, Edges, chance_of_reach, widest

TOKENS, SINK = 5, 4  # the context is 0 to 3, the answer is written at 4
Matrix = npt.NDArray[np.float32]


def layer(*edges: tuple[int, int, float]) -> Edges:
    """Edges (query, key, attention) of a layer; all its heads agree."""
    attention = np.zeros((TOKENS, TOKENS), dtype=np.float32)
    for query, key, weight in edges:
        attention[query, key] = weight
    return Edges.of(attention)


# Token 3 reads 0 in layer 0, the answer reads 3 in layer 2 and 1 in layer 1; what reads 2 is read
# too late.
GRAPH = [layer((3, 0, 0.3)), layer((4, 1, 0.05)), layer((4, 3, 0.6), (3, 2, 0.9))]


def test_reach_by_hand() -> None:
    assert (widest(GRAPH, TOKENS, SINK) > 0).tolist() == [
        [True, True, False, True, True],
        [False, True, False, True, True],
        [False, False, False, True, True],
        [False, False, False, False, True],
    ]


def test_the_widest_path_by_hand() -> None:
    expected = [
        [0.3, 0.05, 0.0, 0.6, 1.0],
        [0.0, 0.05, 0.0, 0.6, 1.0],
        [0.0, 0.0, 0.0, 0.6, 1.0],
        [0.0] * 4 + [1.0],
    ]
    np.testing.assert_allclose(widest(GRAPH, TOKENS, SINK), expected, rtol=1e-6)
    wider = [layer((3, 0, 0.3), (1, 0, 0.5)), layer((4, 1, 0.4)), GRAPH[2]]
    assert widest(wider, TOKENS, SINK)[0, 0] == pytest.approx(0.4)


def test_the_chance_is_the_share_of_the_context_that_is_reached() -> None:
    width = widest(GRAPH, TOKENS, SINK)[0, :4]  # 0.3, 0.05, 0, 0.6
    assert chance_of_reach(width, (0.01, 0.05, 0.1, 0.5)) == [0.75, 0.75, 0.5, 0.25]
    assert EPSILONS[0] == EPSILON


graphs = st.lists(
    arrays(np.float32, (TOKENS, TOKENS), elements=st.sampled_from([0, 0, 0, 0.0625, 0.25, 0.5])),
    min_size=1,
    max_size=3,
)


def paths_to_sink(attention: Sequence[Matrix], source: int) -> list[float]:
    """The smallest edge of each path, one by one."""
    widths = []
    for inner in product(range(TOKENS), repeat=len(attention) - 1):
        nodes = [source, *inner, SINK]
        steps = zip(attention, nodes, nodes[1:], strict=False)
        widths.append(
            min(1.0 if key == query else float(of[query, key]) for of, key, query in steps)
        )
    return widths


@given(graphs)
def test_it_is_what_a_search_along_all_paths_finds(attention: list[Matrix]) -> None:
    layers = [Edges.of(one) for one in attention]
    width = widest(layers, TOKENS, SINK)
    for source in range(TOKENS):
        assert width[0, source] == max(paths_to_sink(attention, source))
    # What reaches late reaches early, by its residual stream.
    assert (width[:-1] >= width[1:]).all()


@given(graphs, st.sampled_from([0.1, 0.25, 0.3]))
def test_a_curve_over_epsilon_is_the_width(attention: list[Matrix], epsilon: float) -> None:
    layers = [Edges.of(one) for one in attention]
    strict = widest([Edges.of(one, epsilon) for one in attention], TOKENS, SINK)
    assert ((strict > 0) == (widest(layers, TOKENS, SINK) >= epsilon)).all()
