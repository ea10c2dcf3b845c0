"""How and where two policies fail differently, counted by hand; and the page and the table that show it."""

import pandas as pd
import pytest

from leaderboards.aggregate.answers import KINDS, answer_kinds
from leaderboards.aggregate.duels import duels
from leaderboards.aggregate.pooled import pool
from leaderboards.pages.comparison import build_comparison
from leaderboards.terminal.result_table import ResultTable
from leaderboards.terminal.verdicts import failure_table, pooled_table, verdict_table
from tests.support.browsing.pages import printed
from tests.support.records.synthetic_records import frame, realistic_records, record

QUESTIONS = 24


def answered(policy: str, kinds: list[str]) -> pd.DataFrame:
    """Records of a policy at ratio 0.5, two questions for each context, every other one reversed."""
    return frame(
        [
            record(
                policy=policy,
                ratio=0.5,
                example_id=f"base-{number // 2}",
                question_id=str(number),
                direction="reverse" if number % 2 else "forward",
                f1=100.0 * (kind == "right"),
                abstained=kind == "abstained",
                hallucinated=kind in ("confused", "fabricated"),
                hallucination_kind=kind if kind in ("confused", "fabricated") else None,
            )
            for number, kind in enumerate(kinds)
        ]
    )


def test_kinds_of_answers_are_counted_by_hand() -> None:
    mine = ["right"] * 12 + ["abstained"] * 6 + ["confused"] * 3 + ["fabricated"] * 2 + ["empty"]
    theirs = ["right"] * 18 + ["fabricated"] * 6
    found = answer_kinds(pd.concat([answered("mine", mine), answered("theirs", theirs)]), "mine", ["theirs"])
    how = {one.kind: one for one in found}
    assert tuple(how) == KINDS
    counts = {kind: (QUESTIONS * one.rate, QUESTIONS * one.other_rate) for kind, one in how.items()}
    assert {kind: (round(one), round(other)) for kind, (one, other) in counts.items()} == {
        "right": (12, 18),
        "abstained": (6, 0),
        "confused": (3, 0),
        "fabricated": (2, 6),
        "empty": (1, 0),
    }
    assert sum(one.rate for one in how.values()) == pytest.approx(1)
    lines = [line.split() for line in printed(failure_table(found)).splitlines() if line.startswith(("mine", "theirs"))]
    assert lines == [["mine", "24", "50", "25", "12", "8", "4"], ["theirs", "24", "75", "0", "0", "25", "0"]]


def told(table: ResultTable) -> str:
    """Returns what people see of a table, in one line."""
    return " ".join(printed(table).split())


@pytest.fixture(scope="module")
def records() -> pd.DataFrame:
    return realistic_records(policies=["full", "snapkv", "knorm", "random"], ratios=[0.3, 0.6, 0.9], contexts=20)


def test_the_page_tells_every_verdict_and_repeats_exactly(records: pd.DataFrame) -> None:
    found = duels(records, "snapkv", ["knorm", "random"])
    assert {duel.verdict for duel in found} == {"better", "not distinguished"}
    failures = answer_kinds(records, "snapkv", ["knorm", "random"])
    page = build_comparison("<model>", found, failures)
    assert page == build_comparison("<model>", found, failures)
    assert "&lt;model&gt;" in page
    assert "<model>" not in page
    assert page.count('class="verdict better"') >= sum(duel.verdict == "better" for duel in found)
    for duel in found:
        assert all(part in page for part in duel.lead.difference.text.split(" ", 1))
    for other in ("knorm", "random"):
        assert f"Against {other}" in page


@pytest.mark.parametrize(("contexts", "explained"), [(2, False), (12, True)])
def test_what_cannot_be_seen_is_explained_where_a_verdict_says_it(contexts: int, explained: bool) -> None:
    """Of fewer than six contexts no difference can be seen at all, and no ± stands behind a verdict."""
    made = []
    for n in range(contexts):
        made += [record(example_id=f"{n}", policy=policy, ratio=0.5, f1=50.0 + n % 2) for policy in ("snapkv", "knorm")]
        made[-1]["right"] = (50 + (n + 1) % 2) / 100
    table = pooled_table(pool(frame(made), "snapkv", ["knorm"]))
    seen = told(table)
    assert (table.plain()[0]["smallest"] is not None) is explained
    assert ("±: smaller true differences cannot be told from 0" in seen) is explained
    assert ("n = 2 is too few to tell any difference" in seen) is not explained


def test_every_cell_shows_what_each_has_and_the_sign_of_its_verdict() -> None:
    """Two opponents at two levels; a third that has one level alone has a dash at the other."""
    made = []
    for n in range(12):
        for ratio in (0.5, 0.9):
            by_policy = {"mine": 80.0, "worse": 30.0 + 2 * n, "same": 80.0} | ({"short": 20.0} if ratio == 0.5 else {})
            made += [record(example_id=f"{n}", policy=name, ratio=ratio, f1=f1) for name, f1 in by_policy.items()]
    table = verdict_table(duels(frame(made), "mine", ["worse", "same", "short"]), {})
    rows = [line.split() for line in printed(table).splitlines() if line.startswith("base")]
    assert rows == [
        ["base", "0.5", "80", "41", "(+39)", "▲", "80", "(+0)", "20", "(+60)", "▲"],
        ["base", "0.9", "80", "41", "(+39)", "▲", "80", "(+0)", "–"],
    ]
    first = table.plain()[0]
    assert (first["right_value"], first["right_other_value"], first["right_difference"]) == pytest.approx((80, 41, 39))
