"""The page and the tables that show the verdicts of a comparison."""

import pandas as pd
import pytest

from leaderboards.aggregate.duels import duels
from leaderboards.aggregate.outcomes import join_outcomes
from leaderboards.aggregate.pooled import pool_levels
from leaderboards.pages.comparison import build_comparison
from leaderboards.terminal.result_table import ResultTable
from leaderboards.terminal.verdicts import outcome_tables, verdict_table
from tests.support.browsing.pages import printed
from tests.support.records.synthetic_records import frame, realistic_records, record
from tests.support.wording import assert_says


def printed_line(table: ResultTable) -> str:
    """Returns what people see of a table, in one line."""
    return " ".join(printed(table).split())


@pytest.fixture(scope="module")
def verdict_records() -> pd.DataFrame:
    return realistic_records(
        policies=["full", "snapkv", "knorm", "random"], ratios=[0.3, 0.6, 0.9], contexts=20
    )


def test_the_page_tells_every_verdict_and_repeats_exactly(verdict_records: pd.DataFrame) -> None:
    found = duels(verdict_records, "snapkv", ["knorm", "random"])
    assert {duel.verdict for duel in found} == {"better", "not distinguished"}
    page = build_comparison("<model>", found)
    assert page == build_comparison("<model>", found)
    assert "&lt;model&gt;" in page
    assert "<model>" not in page
    assert page.count('class="verdict better"') >= sum(duel.verdict == "better" for duel in found)
    for duel in found:
        assert all(part in page for part in duel.lead.difference.text.split(" ", 1))
    for other in ("knorm", "random"):
        assert f"Against {other}" in page


@pytest.mark.parametrize(("contexts", "explained"), [(2, False), (12, True)])
def test_what_cannot_be_seen_is_explained_where_a_verdict_says_it(
    contexts: int, explained: bool
) -> None:
    """Of fewer than six contexts no difference can be seen at all, and no ± stands behind a
    verdict."""
    made = []
    for n in range(contexts):
        made += [
            record(example_id=f"{n}", policy=policy, ratio=0.5, f1=50.0 + n % 2)
            for policy in ("snapkv", "knorm")
        ]
        made[-1]["right"] = (50 + (n + 1) % 2) / 100
    _, table, areas = outcome_tables(
        join_outcomes(pool_levels(frame(made), "snapkv", ["knorm"]), [])
    )
    seen = printed_line(table)
    assert areas.is_empty, "one level is no curve"
    assert (table.plain()[0]["smallest"] is not None) is explained
    assert ("±: smaller true differences" in seen) is explained
    assert ("n = 2 is too few" in seen) is not explained


def test_cells_are_counted_by_opponent_and_told_one_by_one_to_programs() -> None:
    """Two opponents at two levels, a third at one alone."""
    made = []
    for n in range(12):
        for ratio in (0.5, 0.9):
            by_policy = {"mine": 80.0, "worse": 30.0 + 2 * n, "same": 80.0} | (
                {"short": 20.0} if ratio == 0.5 else {}
            )
            made += [
                record(example_id=f"{n}", policy=name, ratio=ratio, f1=f1)
                for name, f1 in by_policy.items()
            ]
    table = verdict_table(duels(frame(made), "mine", ["worse", "same", "short"]), {})
    counts = {
        "against worse": "better in 2, worse in 0, not distinguished in 0",
        "against same": "better in 0, worse in 0, not distinguished in 2",
        "against short": "better in 1, worse in 0, not distinguished in 0",
    }
    for line, (opponent, count) in zip(printed(table).splitlines(), counts.items(), strict=True):
        assert_says(line, opponent, *count.split(", "))
    first = table.plain()[0]
    assert (
        first["right_value"],
        first["right_other_value"],
        first["right_difference"],
    ) == pytest.approx((80, 41, 39))
