"""The mean of tasks at each level: by hand, and that sentence, page, table for a paper and programs
say the same."""

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, t

from leaderboards.aggregate.duels import duels
from leaderboards.aggregate.outcomes import (
    OpponentVerdict,
    conditions,
    join_outcomes,
    write_clauses,
)
from leaderboards.aggregate.pooled import pool, pool_levels
from leaderboards.aggregate.summary import summarise
from leaderboards.downloads.print_tables import result_table
from leaderboards.downloads.tables import means_sheet, outcomes_sheet
from leaderboards.pages.comparison import build_comparison
from leaderboards.terminal.verdicts import outcome_tables
from tests.aggregate.test_duels import duel_records
from tests.statistics.test_null_simulation import two_policies
from tests.support.browsing.pages import printed
from tests.support.records.synthetic_profiles import value
from tests.support.records.synthetic_records import frame, record
from tests.support.wording import assert_says

SIX = (-100.0, -50.0, -50.0, 0.0, -50.0, -50.0)  # the mean is -50, the variance 1000
SIX_OTHERS = (0.0, 0.0, -50.0, -50.0, 0.0, -50.0)  # the mean is -25, the variance 750
BY_ONE_QUESTION = {-100.0: (0.0, 0.0), -50.0: (100.0, 0.0), 0.0: (100.0, 100.0)}


def losing(differences: Sequence[float], task: str, ratio: float) -> pd.DataFrame:
    """``mine`` against ``theirs``, which has all right: in each context of two questions by so many
    points."""
    mine = [score for difference in differences for score in BY_ONE_QUESTION[difference]]
    made = duel_records(mine=mine, theirs=[100.0] * len(mine))
    return made.assign(task=task, ratio=ratio, level=ratio, realised_ratio=ratio)


def two_tasks(by_ratio: Mapping[float, tuple[Sequence[float], Sequence[float]]]) -> pd.DataFrame:
    frames = [losing(one, "base", ratio) for ratio, (one, _) in by_ratio.items()]
    frames += [losing(other, "hops", ratio) for ratio, (_, other) in by_ratio.items()]
    return pd.concat(frames, ignore_index=True)


def test_the_mean_of_tasks_at_a_level_is_that_of_a_hand() -> None:
    (row,) = pool_levels(two_tasks({0.7: (SIX * 2, SIX_OTHERS * 2)}), "mine", ["theirs"])
    # Twelve contexts of each: the sums of squares are 10,000 and 7,500.
    variances = 10_000 / 11 / 12, 7_500 / 11 / 12
    error = sqrt(sum(variances)) / 2
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 11 + variances[1] ** 2 / 11)
    p = 2 * float(t.sf(37.5 / error, freedom))
    assert (row.difference.mean, *row.sides) == pytest.approx((-37.5, 62.5, 100))
    assert value(row.p) == pytest.approx(max(p, 2.0 ** (1 - 16))), (
        "never below the chance that all 16 fall on a side"
    )
    half = float(t.ppf(0.975, freedom)) * error
    assert (row.difference.low, row.difference.high) == pytest.approx((-37.5 - half, -37.5 + half))
    assert (row.verdict, str(row.level), row.tasks, row.contexts) == (
        "worse",
        "0.7",
        ("base", "hops"),
        24,
    )


def test_all_levels_and_opponents_are_one_family_and_controls_another() -> None:
    by_ratio = {0.3: (SIX, SIX_OTHERS), 0.7: (SIX * 2, SIX_OTHERS * 2)}
    made = two_tasks(by_ratio)
    theirs = made[made["policy"] == "theirs"]
    made = pd.concat(
        [made, theirs.assign(policy="others"), theirs.assign(policy="random")], ignore_index=True
    )
    rows = pool_levels(made, "mine", ["theirs", "others", "random"])
    assert [(row.other, str(row.level)) for row in rows] == [
        (other, ratio) for other in ("theirs", "others", "random") for ratio in ("0.3", "0.7")
    ]
    assert [row.family for row in rows] == [4, 4, 4, 4, 2, 2]
    for place, row in enumerate(rows):
        alone = value(pool_levels(made[made["ratio"] == row.level.value], "mine", [row.other])[0].p)
        # Of Holm's method: the two smaller values of the four times 4, the two others times 2; of
        # the controls 2 and 1.
        factor = (2, 4, 2, 4, 1, 2)[place]
        smaller = value(rows[1].p) if place < 4 else value(rows[5].p)
        assert value(row.p) == pytest.approx(max(alone * factor, smaller))


@pytest.mark.parametrize(
    ("at_low", "at_high", "verdict", "level"),
    [
        ((SIX, SIX), ((0.0,) * 6, (0.0,) * 6), "worse", "0.3"),
        (((0.0,) * 6, (0.0,) * 6), ((0.0,) * 6, (0.0,) * 6), "not distinguished", "0.3"),
        ((SIX, SIX_OTHERS), (SIX, SIX), "worse", "0.7"),
    ],
)
def test_one_verdict_for_an_opponent_names_the_level_of_its_largest_difference(
    at_low: tuple[Sequence[float], Sequence[float]],
    at_high: tuple[Sequence[float], Sequence[float]],
    verdict: str,
    level: str,
) -> None:
    made = two_tasks({0.3: at_low, 0.7: at_high})
    (one,) = join_outcomes(pool_levels(made, "mine", ["theirs"]), [])
    assert (one.verdict, str(one.level)) == (verdict, level)
    (back,) = join_outcomes(pool_levels(made, "theirs", ["mine"]), [])
    assert back.verdict == {"worse": "better"}.get(verdict, verdict)
    assert back.difference.mean == pytest.approx(-one.difference.mean)


def test_what_is_worse_at_one_level_and_better_at_another_is_mixed() -> None:
    """A gate that looks for a loss finds it: the level and the difference are those of the loss."""
    low = losing(SIX * 2, "base", 0.3)
    swapped = low.assign(
        policy=low["policy"].map({"mine": "theirs", "theirs": "mine"}), ratio=0.7, level=0.7
    )
    (one,) = join_outcomes(
        pool_levels(pd.concat([low, swapped], ignore_index=True), "mine", ["theirs"]), []
    )
    assert (one.verdict, str(one.level)) == ("mixed", "0.3")
    assert one.difference.mean == pytest.approx(-50)
    assert one.sentence.startswith("right, on base: worse than theirs at ratio 0.3 (−50 [−")
    assert ", better at 0.7 (+50 [+" in one.sentence


def test_where_too_few_contexts_differ_for_a_test_the_interval_is_that_of_a_paired_loss() -> None:
    """Of twelve contexts that agree in all, at half the level for two rows: 1 - 0.0125 ** (1 / 12)
    is 31 points."""
    made = losing((0.0,) * 12, "base", 0.3)
    rows = pool_levels(
        pd.concat([made, made.assign(ratio=0.7, level=0.7)], ignore_index=True), "mine", ["theirs"]
    )
    for row in rows:
        assert (row.p, row.verdict, row.difference.mean) == (None, "not distinguished", 0)
        assert value(row.difference.high) == pytest.approx(100 * (1 - (0.05 / 2 / 2) ** (1 / 12)))
        assert value(row.difference.low) == pytest.approx(-value(row.difference.high))
    (five,) = pool_levels(losing((-100.0,) * 5 + (0.0,) * 5, "base", 0.3), "mine", ["theirs"])
    assert (five.p, five.difference.mean, five.difference.high) == (None, -50, 0), (
        "five on one side tell nothing"
    )


def test_opponents_of_whom_the_same_is_said_share_a_clause_and_others_have_their_own() -> None:
    made = two_tasks({0.3: (SIX * 2, SIX * 2), 0.7: ((0.0,) * 12, (0.0,) * 12)})
    mine = made[made["policy"] == "mine"]
    made = pd.concat(
        [made, mine.assign(policy="one"), mine.assign(policy="two")], ignore_index=True
    )
    outcomes = join_outcomes(pool_levels(made, "mine", ["one", "theirs", "two"]), [])
    undecided, worse = write_clauses(outcomes)
    assert_says(undecided, "not distinguished", "one, two", "0.3, 0.7")
    assert_says(
        worse,
        "worse than theirs at ratio 0.3",
        outcomes[1].difference.text,
        "not distinguished at 0.7",
    )
    mean, contexts, same = conditions(outcomes)
    assert (mean, contexts) == ("mean of 2 tasks", "n = 24 (2 tasks x 12)")
    assert_says(
        same, "one at ratio 0.3, 0.7", "theirs at ratio 0.7", "two at ratio 0.3, 0.7", contexts
    )


RATIOS = (0.3, 0.5, 0.7)


@pytest.fixture(scope="module")
def falling() -> pd.DataFrame:
    """``mine`` loses at the highest ratio alone, in so many contexts that the level tells it and
    the area does not."""
    rng = np.random.default_rng(4)
    made = []
    for task in ("base", "hops"):
        for context in range(12):
            noise = rng.permutation([0.0, 0.0, 100.0, 100.0])
            for ratio in (0.0, *RATIOS):
                scores = {"full": 100.0} if not ratio else {"theirs": 100.0, "mine": 100.0}
                if ratio in (0.3, 0.5) and context % 2:
                    scores = {"theirs": noise[0], "mine": noise[3]}
                elif ratio == 0.7:
                    scores["mine"] = 0.0 if context % 3 == 0 else 100.0
                made += [
                    record(
                        task=task,
                        example_id=f"{task}-{context}",
                        policy=policy,
                        ratio=ratio,
                        f1=score,
                    )
                    for policy, score in scores.items()
                ]
    return frame(made)


@pytest.fixture(scope="module")
def outcome(falling: pd.DataFrame) -> OpponentVerdict:
    (one,) = join_outcomes(
        pool_levels(falling, "mine", ["theirs"]), pool(falling, "mine", ["theirs"])
    )
    return one


def test_a_loss_at_one_ratio_which_the_area_dilutes_is_told_first_and_everywhere_the_same(
    falling: pd.DataFrame, outcome: OpponentVerdict
) -> None:
    assert outcome.area is not None
    assert outcome.area.verdict == "not distinguished", "what the headline said before"
    assert [row.verdict for row in outcome.rows] == [
        "not distinguished",
        "not distinguished",
        "worse",
    ]
    assert outcome.difference.mean == pytest.approx(-100 / 3)
    text = outcome.difference.text
    sentence = f"right, on base, hops: worse than theirs at ratio 0.7 ({text}), not distinguished at 0.3, 0.5"
    assert outcome.sentence == sentence
    page = build_comparison("toy", duels(falling, "mine", ["theirs"]), outcomes=[outcome])
    assert sentence in page
    assert (
        page.index(sentence)
        < page.index("mean of base, hops, percent")
        < page.index("Area over all levels")
    )
    assert all(part in page for part in text.split(" ", 1))
    tables = outcome_tables([outcome])
    terminal = " ".join(" ".join(map(printed, tables)).split())
    assert sentence in terminal
    assert terminal.index("mean of tasks") < terminal.index("area over all levels")
    (plain,) = tables[0].plain()
    assert (plain["verdict"], plain["level"], plain["area_verdict"]) == (
        "worse",
        0.7,
        "not distinguished",
    )
    assert (plain["difference"], plain["difference_low"]) == (
        outcome.difference.mean,
        outcome.difference.low,
    )
    assert plain["sentence"] == sentence


def test_a_table_for_a_paper_marks_what_the_comparison_tells(
    falling: pd.DataFrame, outcome: OpponentVerdict
) -> None:
    rows = summarise(falling, resamples=50)
    table = result_table(rows, "agnostic", (), "Model toy.", outcome.rows)
    marked = {
        (row[0], row[1]): row[-1] for row in table.rows[1:] if "▲" in row[-1] or "▼" in row[-1]
    }
    assert list(marked) == [("0.7", "theirs")]
    assert marked["0.7", "theirs"].startswith("100.0 ▲ ["), "theirs is better than mine"
    assert not any("○" in text for row in table.rows for text in row)
    assert not table.bold
    assert "▲, ▼: better, worse than mine" in table.caption
    assert_says(table.caption, "Student’s t", "Holm")


def test_of_one_ratio_there_is_no_area(falling: pd.DataFrame) -> None:
    """With a single ratio the mean there is the headline, and not half of it."""
    alone = falling[falling["ratio"].isin((0.0, 0.7))]
    (one,) = join_outcomes(pool_levels(alone, "mine", ["theirs"]), pool(alone, "mine", ["theirs"]))
    assert one.area is None
    assert_says(
        one.sentence,
        "right, on base, hops",
        "worse than theirs",
        "ratio 0.7",
        one.difference.text,
    )
    assert one.difference.mean == pytest.approx(-100 / 3)
    assert "rea over all levels" not in build_comparison(
        "toy", duels(alone, "mine", ["theirs"]), outcomes=[one]
    )
    _, means, areas = outcome_tables([one])
    assert (len(means.plain()), areas.plain(), areas.is_empty) == (1, [], True)


def test_the_area_is_named_in_the_sentence_where_it_alone_tells_something() -> None:
    """A loss at each of many levels that no level tells by itself."""
    rng = np.random.default_rng(0)
    made = []
    ratios = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    for context in range(10):
        for ratio in (0.0, *ratios):
            scores = (
                {"full": 100.0}
                if not ratio
                else {"theirs": 100.0, "mine": 100.0 * (rng.random() > 0.25)}
            )
            names = {"example_id": f"base-{context}", "ratio": ratio}
            made += [record(**names, policy=policy, f1=score) for policy, score in scores.items()]
    records_of = frame(made)
    (one,) = join_outcomes(
        pool_levels(records_of, "mine", ["theirs"]), pool(records_of, "mine", ["theirs"])
    )
    assert (one.verdict, value(one.area).verdict) == ("not distinguished", "worse")
    assert one.sentence.startswith(
        "right, on base: not distinguished from theirs at ratio 0.1, 0.2, 0.3, "
    )
    assert one.sentence.endswith(
        f", worse by the area over all of them ({value(one.area).difference.text})"
    )


def test_the_downloads_hold_the_numbers_of_the_rows(outcome: OpponentVerdict) -> None:
    means = means_sheet("means", outcome.rows)
    assert [dict(zip(means.columns, row, strict=True))["level"] for row in means.rows] == list(
        RATIOS
    )
    (row,) = outcomes_sheet("outcomes", [outcome]).rows
    named = dict(zip(outcomes_sheet("outcomes", [outcome]).columns, row, strict=True))
    assert (named["difference_low"], named["p"]) == (outcome.difference.low, outcome.deciding.p)


def test_equals_have_a_false_verdict_at_any_level_once_in_twenty_comparisons() -> None:
    """Two tasks, two levels, six contexts of four questions."""
    runs = 60
    false = 0
    for seed in range(runs):
        (one,) = join_outcomes(
            pool_levels(two_policies(seed, 6, (0.5, 0.5)), "mine", ["theirs"]), []
        )
        false += one.verdict != "not distinguished"
        assert all(
            (row.verdict != "not distinguished") == row.difference.is_clear for row in one.rows
        )
    assert false <= binom.ppf(0.999, runs, 0.05)
