"""What has no levels, such as int8, is judged at the one point where it stands: safe or not, and at
how many bytes."""

from typing import Any

import pytest

from leaderboards.boards.board import Standing
from leaderboards.boards.safe_ratio import SAFE_RATIO
from leaderboards.pages.front import FRONT
from leaderboards.pages.gallery import tradeoff
from leaderboards.pages.results import Results
from leaderboards.pages.uses import use_matrix
from leaderboards.rendering.drawing import Plot
from leaderboards.rendering.style import line_styles
from leaderboards.statistics.safe_ratio import SafeRatio
from tests.support.browsing.pages import build_pages, results_of
from tests.support.records.synthetic_records import frame, record

TASKS = {"base": 72, "hops": 72}  # which show that nothing is lost where all agree
# By policy: the bytes that it holds of 1000, and what it loses of 80 % right in each of three
# contexts in turn.
QUANTISED = {"int8": (530, (0, 0, 0)), "int4": (280, (0, 12, 0)), "int2": (160, (30, 40, 35))}


def _records(contexts: dict[str, int]) -> list[dict[str, Any]]:
    made = []
    for task, count in contexts.items():
        for place in range(count):
            here = {"task": task, "example_id": f"{task}-{place}"}
            made.append(record(**here, f1=80.0))
            made += [
                record(
                    **here,
                    policy="snapkv",
                    ratio=ratio,
                    f1=80.0 - 20 * ratio,
                    kv_bytes=1000 - 1000 * ratio,
                )
                for ratio in (0.1, 0.5)
            ]
            made += [
                record(**here, policy=policy, f1=80.0 - losses[place % 3], kv_bytes=held)
                for policy, (held, losses) in QUANTISED.items()
            ]
    return made


def _safe(standing: Standing) -> SafeRatio:
    safe = standing[SAFE_RATIO]
    assert isinstance(safe, SafeRatio)
    return safe


@pytest.fixture(scope="module")
def quantised_results() -> Results:
    return results_of(frame(_records(TASKS)), "reference")


def test_it_is_safe_or_not_with_its_bytes_and_the_interval_of_its_loss(
    quantised_results: Results,
) -> None:
    of_base = {one.policy: one for one in quantised_results.standings["agnostic", "base"]}
    safe = {policy: _safe(of_base[policy]) for policy in QUANTISED}
    assert {policy: (one.outcome, one.held) for policy, one in safe.items()} == {
        "int8": ("safe", 53.0),
        "int4": ("open", 28.0),
        "int2": ("unsafe", 16.0),
    }
    downloaded = SAFE_RATIO.download(safe["int4"])
    difference = safe["int4"].levels[0].difference
    assert difference.mean == pytest.approx(-4)
    assert (downloaded["safe_ratio_outcome"], downloaded["safe_ratio_bytes_held"]) == ("open", 28.0)
    assert (downloaded["safe_ratio"], downloaded["safe_ratio_kind"]) == (None, None)
    ends = downloaded["safe_ratio_difference_low"], downloaded["safe_ratio_difference_high"]
    assert ends == (difference.low, difference.high)
    cell = SAFE_RATIO.board_cell(safe["int4"])
    needed = f"{safe['int4'].more} more contexts needed"
    assert (cell.text, cell.detail.split("\n")) == (
        "open",
        ["−4 [−7, −1]", "28 % of bytes", "n = 72", needed],
    )


def test_the_matrix_of_the_first_page_judges_it(quantised_results: Results) -> None:
    matrix = use_matrix(quantised_results)
    cells = {line.name: line.cells[0] for line in matrix.methods}
    assert [(cells[policy].text, cells[policy].tone_of_use) for policy in QUANTISED] == [
        ("safe", "safe"),
        ("open", "open"),
        ("unsafe", "unsafe"),
    ]
    assert [cells[policy].detail.split("\n") for policy in QUANTISED] == [
        ["0 [−4.99, +5]", "53 % of bytes"],
        ["−4 [−7, −1]", "28 % of bytes", "212 more contexts needed"],
        ["−35 [−37, −32]", "16 % of bytes"],
    ]


def test_it_stands_in_the_first_chart_at_its_bytes(quantised_results: Results) -> None:
    plot = tradeoff(
        quantised_results.rows, quantised_results.mastered, line_styles(quantised_results.rows)
    )
    assert isinstance(plot, Plot)
    places = {plot.names[spot.index]: (spot.x, spot.y) for spot in plot.spots}
    assert places["int8"] == pytest.approx((53.0, 100.0))
    assert places["int2"] == pytest.approx((16.0, 100 * 45 / 80))


def test_a_run_of_quantisations_alone_has_a_first_page() -> None:
    alone = [one for one in _records(TASKS) if one["policy"] != "snapkv"]
    page = build_pages([results_of(frame(alone), "reference")])[FRONT]
    assert "At ratio 0," not in page
    assert "53 % of bytes" in page
