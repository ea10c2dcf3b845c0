"""GER against hallucination: r, ρ and p of a small case, what is counted, and what is left out."""

import pytest
from scipy.stats import pearsonr, rankdata

from leaderboards.aggregate.row import HALLUCINATION, SummaryRow
from leaderboards.figures.gallery import correlation_text, scatter
from leaderboards.rendering.drawing import Plot
from leaderboards.statistics.bootstrap import Blank
from tests.support.records.synthetic_records import summary_row

GER = (0.0, 0.1, 0.3, 0.2, 0.35, 0.38)
RATE = (0.1, 0.2, 0.3, 0.3, 0.5, 0.4)


def row(policy: str, ratio: float, ger: float | None, rate: float | None, reason: str | None = None) -> SummaryRow:
    return summary_row(policy, ratio, n=40, reason=reason, ger=ger, hallucination_rate=rate)


def small() -> list[SummaryRow]:
    policies = ("snapkv", "snapkv", "snapkv", "tova", "tova", "tova")
    ratios = (0.3, 0.6, 0.9) * 2
    methods = [row(*one) for one in zip(policies, ratios, GER, RATE, strict=True)]
    return [row("full", 0.0, 0.0, 0.9), *methods, row("oracle", 0.9, 0.0, 0.05), row("random", 0.9, 0.4, 0.0)]


def found_of(rows: list[SummaryRow]) -> Plot:
    found = scatter(rows, "base", "agnostic", HALLUCINATION)
    assert isinstance(found, Plot)
    return found


def test_the_correlation_is_that_of_a_hand_over_the_methods_alone() -> None:
    # By hand: the products of the differences from the means come to 0.098, their squares to 0.112083 and 0.1.
    r = 0.098 / (0.1120833 * 0.1) ** 0.5
    ranks = pearsonr(rankdata(GER), rankdata(RATE))
    text = f"r = {r:.2f} (p = 0.008), ρ = {ranks.statistic:.2f} (p = {ranks.pvalue:.3f}), 6 points"
    assert text in found_of(small()).note
    assert text in correlation_text(list(zip(GER, RATE, strict=True)))


def test_every_policy_and_level_is_a_point_with_its_numbers() -> None:
    plot = found_of(small())
    assert len(plot.spots) == 9
    (spot,) = [spot for spot in plot.spots if plot.names[spot.index] == "tova" and spot.level == "0.6"]
    assert (spot.x, spot.y) == (0.35, 50)
    assert spot.lines == ("Global Eviction Ratio 0.350", "Hallucination rate 50.0", "40 questions")


def test_what_has_no_ger_is_not_drawn_and_says_why() -> None:
    rewrites = [row("merging", ratio, None, 0.5, "it rewrites the cache") for ratio in (0.3, 0.6)]
    found = found_of([*small(), *rewrites])
    assert "Not drawn: merging at 0.3, 0.6 (it rewrites the cache)" in found.note
    assert len(found.spots) == 9
    assert scatter(rewrites, "base", "agnostic", HALLUCINATION) == Blank("it rewrites the cache")


def test_of_two_points_there_is_no_correlation() -> None:
    assert "no correlation: fewer than three levels" in found_of(small()[:3]).note


def test_axes_reach_as_far_as_points_do() -> None:
    frame = found_of(small()).drawing.frame
    assert frame.horizontal.ticks == pytest.approx((0, 0.1, 0.2, 0.3, 0.4))
    assert frame.vertical.ticks == pytest.approx((0, 20, 40, 60, 80, 100))
