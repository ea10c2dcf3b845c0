"""Defines what the study of published orders shows, for the page on method."""

from leaderboards.metrics.declaration import Chapter, Definition

APART = 5.0  # points on both models, in the same direction, from which on a pair is in the key
# A task tells nothing of two policies that are both below the one or above the other.
FLOOR, CEILING = 5.0, 95.0
CLEAN = 0.6  # of the golds, which the full cache must find
CHAPTER = Chapter(
    "published",
    "Published orders",
    (
        Definition(
            "Pair of the key",
            f"Two presses that Llama 3.1 8B and Qwen3 8B both put at least {APART:g} points apart "
            "in the same direction on kvpress’s public board, on the mean of RULER’s eight needle "
            "tasks at 4,096 tokens. Here both read the same contexts: the mean over tasks of what "
            "they find, with an interval that resamples contexts. A task counts where the full "
            f"cache finds {100 * CLEAN:g} % or more, and where not both are above {CEILING:g} or "
            f"below {FLOOR:g} %. Same order: the interval is above 0. Reversed: it is below 0. "
            "tau: Kendall’s tau-b of our means and the board’s, over the presses that both have.",
            source="kvpress’s leaderboard, kept in lapidoty/kvpress-centrality",
        ),
    ),
)
