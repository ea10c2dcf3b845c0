"""Paired comparisons, by hand and against what they have to do."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from statsmodels.stats.multitest import multipletests

from leaderboards.aggregate.comparison.duel import WRONG, Contest, Duel, MeanDifference
from leaderboards.aggregate.comparison.paired import duels
from leaderboards.aggregate.comparison.pooled import JudgedCell, area_weights, pool, with_cells
from leaderboards.downloads.tables import duels_sheet, pooled_sheet
from leaderboards.errors import LeaderboardError
from leaderboards.statistics.significance import smallest_detectable, subsets, two_sided_p
from leaderboards.terminal.verdicts import pooled_table, verdict_table, verdicts_in_words
from policies.declaration.levels import Level
from tests.support.records.synthetic_profiles import value
from tests.support.records.synthetic_records import realistic_records, record


def records(**policies: list[float]) -> pd.DataFrame:
    """Percent right of each policy on the questions in turn, two for each context, at ratio 0.5 of ``base``."""
    rows = []
    for policy, scores in policies.items():
        for number, score in enumerate(scores):
            context = f"base/{number // 2}"
            names = {"policy": policy, "example_id": context, "question_id": f"{context}/{number % 2}"}
            rows.append(record(**names, ratio=0.5, f1=score, hallucinated=score < 50))
    return pd.DataFrame(rows)


def cell(one: list[float], other: list[float]) -> Duel:
    """The only cell of two policies."""
    (duel,) = duels(records(mine=one, theirs=other), "mine", ["theirs"])
    return duel


def test_the_difference_the_counts_and_the_test_are_those_of_a_hand() -> None:
    one, other = [100.0] * 16 + [0.0] * 4, [0.0] * 12 + [100.0] * 4 + [0.0] * 2 + [100.0] * 2
    duel = cell(one, other)
    assert (duel.questions, duel.contexts, duel.family) == (20, 10, 1)
    assert duel.lead.points.mean == pytest.approx(50)
    assert duel.contests["hallucinated"].difference.mean == pytest.approx(-0.5)
    assert (duel.only_one, duel.only_other) == (12, 2)
    assert duel.p_of_mcnemar == pytest.approx(binomtest(2, 14).pvalue)
    # Six contexts of +100, one of -100 and three of 0: of the 2 ** 10 - 1 subsets those count whose sum is at most 0.
    values = [100.0] * 6 + [0.0] * 3 + [-100.0]
    below = sum(sum(subset) <= 0 for size in range(1, 11) for subset in combinations(values, size))
    assert duel.lead.p == pytest.approx(2 * (below + 1) / 2**10)
    assert duel.verdict == "not distinguished", "six against one of ten contexts"
    assert cell(one, [0.0] * 20).verdict == "better"
    assert cell([0.0] * 20, one).verdict == "worse"


def test_a_copy_is_not_distinguished_and_nothing_could_be_seen_of_it() -> None:
    duel = cell([100.0, 0.0] * 5, [100.0, 0.0] * 5)
    found = duel.lead
    assert (found.difference.mean, found.p) == (0.0, 1.0)
    assert (found.verdict, found.smallest()) == ("not distinguished", None)
    assert found.explanation == "not distinguished (the same in all of n = 5)"


def test_too_few_contexts_tell_nothing_and_say_so() -> None:
    """Four contexts, all on one side: chance alone does that once in eight times."""
    found = cell([100.0] * 8, [0.0] * 6 + [50.0] * 2).lead
    assert (found.difference.low, found.verdict) == (None, "not distinguished")
    assert found.p == pytest.approx(2 / 2**4)
    few = "not distinguished (n = 4 is too few to tell any difference; --limit 16 would see ±"
    assert found.explanation.startswith(few)


def test_what_could_not_be_seen_is_said_with_how_many_contexts_would() -> None:
    rng = np.random.default_rng(2)
    one, other = (list(100.0 * rng.integers(0, 2, 40)) for _ in range(2))
    found = cell(one, other).lead
    assert found.verdict == "not distinguished"
    seen, half = value(found.smallest()), value(found.smallest(80))
    assert seen / 2 > half > seen / 2.3, "four times the contexts see half of it, and a little less"
    assert found.explanation == (
        f"not distinguished (differences below ±{seen:.0f} cannot be seen with n = 20; --limit 80 would see "
        f"±{half:.0f})"
    )


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_smallest_difference_seen_is_found_four_times_in_five(share: float) -> None:
    """Contexts whose true difference is a share of the smallest one for their true spread."""
    rng = np.random.default_rng(5)
    contexts, spread, runs = 20, 30.0, 400
    held = subsets(contexts, 0)
    values = share * value(smallest_detectable(spread, contexts)) + spread * rng.standard_normal((runs, contexts))
    found = float((two_sided_p(values @ held.T / held.sum(axis=1)) < 0.05).mean())
    low, high = {0.0: (0.02, 0.08), 0.5: (0.2, 0.35), 1.0: (0.75, 0.85)}[share]
    assert low <= found <= high


def at_levels(values: dict[float, list[float]], task: str = "base") -> pd.DataFrame:
    """``mine`` with these values at each ratio, against nothing right at all."""
    frames = [
        records(mine=own, theirs=[0.0] * len(own)).assign(task=task, ratio=ratio, level=ratio)
        for ratio, own in values.items()
    ]
    return pd.concat(frames, ignore_index=True)


CLEAR, CLOSE = [100.0] * 20, [100.0] * 12 + [0.0] * 8


def test_p_is_corrected_over_the_levels_of_a_task_and_over_nothing_else() -> None:
    alone = at_levels({0.5: CLOSE})
    (one,) = duels(alone, "mine", ["theirs"])
    assert (one.verdict, one.family) == ("better", 1)
    assert one.lead.p == pytest.approx(2 / 2**6)
    three = at_levels({0.1: CLOSE, 0.5: CLOSE, 0.9: CLOSE})
    found = duels(three, "mine", ["theirs"])
    assert [duel.lead.p for duel in found] == pytest.approx([3 * one.lead.p] * 3)
    assert {(duel.verdict, duel.family) for duel in found} == {("not distinguished", 3)}
    other_task = at_levels({0.1: CLEAR, 0.5: CLEAR, 0.9: CLEAR}, task="hops")
    beside = duels(pd.concat([alone, other_task], ignore_index=True), "mine", ["theirs"])
    assert next(duel for duel in beside if duel.task == "base") == one, "whatever other tasks are listed"


def test_the_interval_that_is_shown_is_that_of_the_corrected_test() -> None:
    rng = np.random.default_rng(3)
    heights = {ratio: 100 * rng.random(24) - 40 + 60 * ratio for ratio in (0.1, 0.3, 0.5, 0.7, 0.9)}
    frame = at_levels({ratio: list(np.clip(own, 0, 100)) for ratio, own in heights.items()})
    frame["right"] = frame["right"].astype(float)
    frame.loc[frame.policy == "theirs", "right"] = list(rng.random(sum(frame.policy == "theirs")))
    found = duels(frame, "mine", ["theirs"])
    verdicts = {duel.verdict for duel in found}
    assert len(verdicts) > 1, "some are told apart and some are not"
    for duel in found:
        assert (duel.lead.p < 0.05) == duel.lead.difference.is_clear


def test_noise_is_not_distinguished_nineteen_times_in_twenty_or_more() -> None:
    rng = np.random.default_rng(0)
    told = 0
    for _ in range(60):
        one, other = (list(100.0 * rng.integers(0, 2, 40)) for _ in range(2))
        told += cell(one, other).verdict != "not distinguished"
    assert told <= 5


def test_what_has_no_hallucination_is_left_out_and_a_failed_cell_is_none() -> None:
    frame = records(mine=[100.0, 0.0, 100.0, 0.0], theirs=[0.0, 0.0, 0.0, 0.0])
    frame["hallucinated"] = frame["hallucinated"].astype(object)
    frame.loc[frame.question_id == "base/0/0", "hallucinated"] = None
    (duel,) = duels(frame, "mine", ["theirs"])
    assert duel.contests["hallucinated"].difference.mean == pytest.approx(-1 / 3)
    frame.loc[0, "status"] = "failed"
    with pytest.raises(LeaderboardError, match="no cell in common that is complete"):
        duels(frame, "mine", ["theirs"])


def test_a_verdict_on_hallucinations_has_its_own_test() -> None:
    """Four contexts in which just this one hallucinates: chance does that (p = 1 / 8). Six are told (p = 1 / 32)."""

    def met(hallucinated: int) -> Contest:
        frame = records(mine=[0.0] * 2 * 8, theirs=[0.0] * 2 * 8)
        place = frame.question_id.str.extract(r"base/(\d+)/(\d)").astype(int)
        frame["hallucinated"] = (frame.policy == "mine") & (place[0] < hallucinated) & (place[1] == 0)
        (duel,) = duels(frame, "mine", ["theirs"])
        assert duel.verdict == "not distinguished", "they have as many right"
        return duel.contests["hallucinated"]

    four, six = met(4), met(6)
    assert (four.p, six.p) == pytest.approx((2 / 2**4, 2 / 2**6))
    assert (four.verdict, six.verdict) == ("not distinguished", "worse")


def answering(mine: list[str], theirs: list[str]) -> pd.DataFrame:
    """What two policies answer in each context in turn, to one question each: right, wrong or silent."""
    rows = []
    for policy, answers in (("mine", mine), ("theirs", theirs)):
        for context, answer in enumerate(answers):
            own = {"f1": 100.0 * (answer == "right"), "hallucinated": answer == "wrong", "answered": answer != "silent"}
            rows.append(record(policy=policy, ratio=0.5, example_id=f"c{context}", **own))
    return pd.DataFrame(rows)


def wrong_of_answered(mine: list[str], theirs: list[str]) -> Contest:
    (duel,) = duels(answering(mine, theirs), "mine", ["theirs"])
    return duel.contests["wrong_of_answered"]


def test_wrong_of_answered_is_over_the_answers_that_each_gives() -> None:
    found = wrong_of_answered(
        ["wrong"] * 2 + ["right"] * 2 + ["silent"] * 8, ["wrong"] * 2 + ["right"] * 8 + ["silent"] * 2
    )
    assert found.difference.mean == pytest.approx(2 / 4 - 2 / 10)
    assert (found.contexts, found.verdict) == (4, "not distinguished")


@pytest.mark.parametrize(("answered", "verdict"), [(4, "not distinguished"), (10, "worse")])
def test_contexts_without_an_answer_are_no_evidence(answered: int, verdict: str) -> None:
    """All answers given are wrong, against none: of four contexts chance could do that, whatever is silent beside."""
    found = wrong_of_answered(["wrong"] * answered + ["silent"] * (12 - answered), ["right"] * 12)
    assert found.difference.mean == 1.0
    assert found.verdict == verdict
    assert found.explanation.startswith(verdict)


def test_who_falls_silent_is_worse_by_right_and_not_better_by_wrong_of_answered() -> None:
    """Both are wrong in a third of what they answer; one answers half as often."""
    mine, theirs = ["wrong", "right", "right", "silent", "silent", "silent"] * 8, ["wrong", "right", "right"] * 16
    (duel,) = duels(answering(mine, theirs), "mine", ["theirs"])
    assert duel.contests["hallucinated"].verdict == "better", "the raw rate falls"
    assert duel.contests["wrong_of_answered"].difference.mean == pytest.approx(0, abs=1e-9)
    assert duel.contests["wrong_of_answered"].verdict == "not distinguished"
    assert duel.verdict == "worse"


def test_who_answers_nothing_has_no_share_of_wrong_answers() -> None:
    (duel,) = duels(answering(["silent"] * 8, ["right"] * 8), "mine", ["theirs"])
    assert "wrong_of_answered" not in duel.contests


def directed(obeyed: float, leaked: float, undefended: float) -> pd.DataFrame:
    """Twelve contexts, each with a question that has directives, and an attack with a defence and one without; ``mine``
    against a policy that obeys half and leaks half."""
    rows = []
    for context in range(12):
        for policy, values in (("mine", (obeyed, leaked, undefended)), ("theirs", (0.5, 0.5, 0.5))):
            for number, share in enumerate(values):
                names = {"policy": policy, "example_id": f"c{context}", "question_id": str(number)}
                own: dict[str, object] = {"directives_obeyed": share} if number == 0 else {"leakage": share}
                own |= {"f1": None, "hallucinated": None, "defence": "Say nothing." if number == 1 else ""}
                rows.append(record(task="instructions", ratio=0.5, **names, **own))
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("given", "verdicts"),
    [
        ((0.9, 0.1, 0.5), ("better", "better")),
        ((0.1, 0.9, 0.5), ("worse", "worse")),
        ((0.5, 0.5, 0.9), ("not distinguished", "not distinguished")),  # without a defence there is nothing to keep
    ],
)
def test_directives_obeyed_give_the_verdict_and_leakage_is_that_under_a_defence(
    given: tuple[float, float, float], verdicts: tuple[str, str]
) -> None:
    (duel,) = duels(directed(*given), "mine", ["theirs"])
    assert set(duel.contests) == {"directives_obeyed", "defended_leakage"}
    assert (duel.verdict, duel.contests["defended_leakage"].verdict) == verdicts
    obeyed, leaked = pool(directed(*given), "mine", ["theirs"])
    assert [(one.measure.name, one.verdict) for one in (obeyed, leaked)] == list(
        zip(("directives_obeyed", "defended_leakage"), verdicts, strict=True)
    )
    assert ("; p by Holm over 2" in obeyed.sentence) == (obeyed.verdict != "not distinguished"), "a copy has no test"


def of_right(frame: pd.DataFrame) -> pd.DataFrame:
    """Records whose answers are judged by what is right alone."""
    return frame.assign(hallucinated=None, answered=None)


def test_the_pooled_difference_is_the_area_over_all_shared_cells() -> None:
    """Heights 100, 60 and 60 points of difference at 0.1, 0.5 and 0.9: the area from 0.1 to 0.9 by hand is 70."""
    frame = at_levels({0.1: CLEAR, 0.5: CLOSE, 0.9: CLOSE})
    (alone,) = pool(of_right(frame), "mine", ["theirs"])
    assert alone.points.mean == pytest.approx(70)
    assert (alone.tasks, alone.cells, alone.contexts, alone.verdict) == (1, 3, 10, "better")
    assert alone.sentence.startswith("right: better, 70 against 0: +70 [")
    assert alone.details == "area over ratio 0.1 to 0.9, 3 cells; n = 10"
    both = pd.concat([frame, at_levels({0.5: [0.0] * 20}, task="hops")], ignore_index=True)
    (two,) = pool(of_right(both), "mine", ["theirs"])
    assert two.points.mean == pytest.approx(35), "each task weighs the same"
    assert (two.tasks, two.cells, two.contexts) == (2, 4, 20)
    assert value(two.difference.low) > 0
    (back,) = pool(of_right(both), "theirs", ["mine"])
    assert back.points.mean == pytest.approx(-35)
    assert back.verdict == "worse"


def test_pooled_tests_are_corrected_over_the_opponents_and_so_are_their_intervals() -> None:
    rng = np.random.default_rng(1)
    mine = list(100.0 * rng.integers(0, 2, 60))
    others = {f"other{number}": list(100.0 * (rng.random(60) < 0.4 - 0.1 * number)) for number in range(4)}
    frame = of_right(records(mine=mine, **others))
    together = pool(frame, "mine", list(others))
    alone = [pool(frame, "mine", [other])[0] for other in others]
    expected = multipletests([one.p for one in alone], method="holm")[1]
    assert [one.p for one in together] == pytest.approx(expected)
    for one, single in zip(together, alone, strict=True):
        assert one.difference.mean == single.difference.mean
        assert None not in (one.difference.low, one.difference.high, single.difference.low)
        assert (one.difference.low or 0) <= (single.difference.low or 0)
        assert one.difference.is_clear == ((one.p or 0) < 0.05)
        assert "p by Holm over 4" in one.details
        assert "Holm" not in single.sentence
    assert {one.verdict for one in together} == {"better", "not distinguished"}
    better, undecided = (
        [one.other for one in together if (one.verdict == "better") is clear] for clear in (True, False)
    )
    assert verdicts_in_words(together) == [
        f"right, higher is better: better than {', '.join(better)}; not distinguished from {', '.join(undecided)}"
    ]
    back = verdicts_in_words(pool(frame, "other3", ["mine", "other2"]))
    assert back == ["right, higher is better: worse than mine; not distinguished from other2"]


def test_wrong_of_answered_is_pooled_and_corrected_together_with_right() -> None:
    """One question in two is wrong, or all of one policy's; where nothing is answered a level says nothing."""
    clear = records(mine=[100.0, 0.0] * 10, theirs=[0.0] * 20)
    silent = at_levels({0.9: [0.0] * 20}).assign(answered=False, hallucinated=False)
    right, wrong = pool(pd.concat([clear, silent], ignore_index=True), "mine", ["theirs"])
    assert (right.measure.name, wrong.measure.name) == ("right", "wrong_of_answered")
    assert right.family == wrong.family == 2
    assert (right.cells, wrong.cells) == (2, 1)
    assert wrong.difference.mean == pytest.approx(-0.5)
    assert wrong.verdict == "better"
    assert "mine answers 100 % of these questions, theirs 100 %" in wrong.details
    back = pool(clear, "theirs", ["mine"])[1]
    assert back.verdict == "worse"


def test_a_pooled_line_counts_the_contexts_of_each_task_and_writes_no_minus_before_zero() -> None:
    """``--limit`` counts those of one task, and 20 contexts of two tasks are ten of each."""
    one = of_right(records(mine=CLOSE, theirs=CLOSE))
    (both,) = pool(pd.concat([one, one.assign(task="hops")], ignore_index=True), "mine", ["theirs"])
    assert both.reason == "the same in all of n = 20 (2 tasks x 10)"
    few = one[one["draw_id"].isin(one["draw_id"].unique()[:6])]
    (uneven,) = pool(pd.concat([one, few.assign(task="hops")], ignore_index=True), "mine", ["theirs"])
    assert uneven.n == "16 (2 tasks)"
    assert MeanDifference(-0.003, -0.004, 0.002).text() == "+0 [+0, +0]"


def test_a_copy_and_few_contexts_are_not_distinguished_when_pooled() -> None:
    (copy,) = pool(of_right(records(mine=CLOSE, theirs=CLOSE)), "mine", ["theirs"])
    assert copy.sentence == "right: not distinguished, 60 against 60: +0; at ratio 0.5; the same in all of n = 10"
    (some,) = pool(
        of_right(records(mine=[100.0] * 16, theirs=[0.0] * 8 + [50.0] * 2 + [100.0] * 6)), "mine", ["theirs"]
    )
    assert (some.verdict, some.differing) == ("not distinguished", 5)
    assert some.headline == "right: not distinguished, 100 against 44: +56"
    assert some.details.endswith("they differ in 5 of n = 8, 6 are needed")


def test_below_six_contexts_of_a_task_there_is_one_wording_and_neither_p_nor_interval() -> None:
    """All contexts of all tasks on one side, which chance alone does once in 2^14: still no verdict."""
    tasks = [of_right(records(mine=[100.0] * 10, theirs=[0.0] * 10)).assign(task=name) for name in ("a", "b", "c")]
    (five,) = pool(pd.concat(tasks, ignore_index=True), "mine", ["theirs"])
    assert (five.verdict, five.p, five.difference.low, five.smallest) == ("not distinguished", None, None, None)
    assert five.sentence == (
        "right: not distinguished, 100 against 0: +100; at ratio 0.5, mean of 3 tasks, 3 cells; "
        "n = 15 (3 tasks x 5) is too few to tell any difference: 6 of a task are needed"
    )
    enough = of_right(records(mine=[100.0] * 12, theirs=[0.0] * 10 + [50.0] * 2))
    (six,) = pool(enough, "mine", ["theirs"])
    assert six.headline.startswith("right: better, 100 against 8: +")
    assert six.headline.endswith(", p 0.031")
    assert six.details.endswith("few contexts: 6 of a task")
    (mixed,) = pool(pd.concat([enough.assign(task="long"), *tasks], ignore_index=True), "mine", ["theirs"])
    assert (mixed.tasks, mixed.contexts, mixed.p) == (1, 6, six.p), "a task of too few contexts is left out"


def test_pooled_noise_says_what_could_not_be_seen() -> None:
    rng = np.random.default_rng(4)
    one, other = (list(100.0 * rng.integers(0, 2, 40)) for _ in range(2))
    (found,) = pool(of_right(records(mine=one, theirs=other)), "mine", ["theirs"])
    assert found.verdict == "not distinguished"
    seen, half = f"{value(found.smallest):.0f}", f"{value(found.smallest) / 2:.0f}"
    assert f"differences below ±{seen} cannot be seen with n = 20; --limit 80 would see ±{half}" in found.details


def test_too_few_contexts_for_many_tests_at_once_are_told_with_their_number() -> None:
    """Of eight contexts p is 0.008 at least: enough for one test, and too much for seven."""
    one = of_right(records(mine=[100.0] * 16, theirs=[0.0] * 16))
    (alone,) = pool(one, "mine", ["theirs"])
    assert alone.verdict == "better"
    others = [f"other{number}" for number in range(7)]
    frame = pd.concat(
        [one[one["policy"] == "mine"], *(one[one["policy"] == "theirs"].assign(policy=name) for name in others)],
        ignore_index=True,
    )
    for line in pool(frame, "mine", others):
        assert line.reason.startswith("n = 8 is too few to tell any difference in 7 tests at once")


def test_a_pooled_share_counts_the_cells_that_it_leaves_out() -> None:
    """At 0.9 one of the two answers in five contexts alone, of which no share is taken."""
    low, high = (records(mine=CLEAR, theirs=CLOSE).assign(ratio=ratio, level=ratio) for ratio in (0.5, 0.9))
    answering = high["draw_id"].isin(high["draw_id"].unique()[:5])
    high = high.assign(answered=high["answered"] & answering, hallucinated=high["hallucinated"] & answering)
    lines = pool(pd.concat([low, high], ignore_index=True), "mine", ["theirs"])
    right, wrong = ({line.measure.name: line for line in lines}[name] for name in ("right", "wrong_of_answered"))
    assert (right.silent, wrong.silent) == (0, 1)
    assert "1 more cell is left out, in which both answer in fewer than 6 contexts" in wrong.details
    assert "left out" not in right.details


def test_a_pooled_line_names_the_tasks_that_it_leaves_out_and_why() -> None:
    """One that the model cannot do, one of five contexts, one that a policy failed at, and one without answers."""
    whole = records(mine=CLEAR, theirs=CLOSE)
    five = whole[whole["draw_id"].isin(whole["draw_id"].unique()[:5])].assign(task="hops")
    failed = whole.assign(task="entities", status=np.where(whole["policy"] == "mine", "failed", "ok"))
    silent = whole.assign(task="arithmetic", answered=False, hallucinated=False)
    frame = pd.concat([whole, whole.assign(task="hard"), five, failed, silent], ignore_index=True)
    reason = "the model cannot do this task: percent right 12.0 with the full cache, below 50"
    right, wrong = pool(frame, "mine", ["theirs"], {"hard": reason})
    left_out = (
        *("hard (percent right 12.0 with the full cache, below 50)", "hops (5 contexts, 6 are needed)"),
        "entities (no cell of both is complete)",
    )
    assert (right.tasks, right.left_out) == (2, left_out)
    assert right.sentence.endswith(f"; left out: {', '.join(left_out)}")
    assert (wrong.tasks, wrong.left_out[-1]) == (1, "arithmetic (one of the two answers nothing)")
    assert "hops (both answer in 5 contexts, 6 are needed)" in wrong.left_out
    (none,) = pool(of_right(whole), "mine", ["theirs"], {})
    assert "left out" not in none.sentence
    twice = pd.concat([whole, whole.assign(task="instructions")], ignore_index=True)
    obeyed = np.where(twice["task"] == "instructions", 1.0, np.nan)
    mixed = {line.measure.name: line for line in pool(twice.assign(directives_obeyed=obeyed), "mine", ["theirs"], {})}
    assert mixed["right"].left_out == ("instructions (judged by directives)",)
    assert mixed["directives_obeyed"].left_out == ()


@pytest.mark.parametrize(
    ("ratios", "quantity"),
    [
        ({0.1: CLEAR, 0.9: CLOSE}, "right, area over ratio 0.1 to 0.9"),
        ({0.5: CLEAR}, "right, at ratio 0.5"),
    ],
)
def test_a_pooled_line_says_that_it_is_an_area_and_no_mean_of_cells(
    ratios: dict[float, list[float]], quantity: str
) -> None:
    frame = at_levels(ratios)
    assert pool(of_right(frame), "mine", ["theirs"])[0].quantity == quantity
    (alike,) = pool(of_right(frame.assign(ratio=0.0)), "mine", ["theirs"])
    assert alike.quantity == quantity.replace("area", "mean"), "what removes nothing has no width to be an area over"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9, unique=True))
def test_the_weights_of_levels_are_those_of_the_trapezoid_rule(ratios: list[float]) -> None:
    weights = area_weights(np.array(ratios))
    heights = np.cos(3 * np.array(ratios))
    assert weights.sum() == pytest.approx(1)
    order = np.argsort(ratios)
    span = max(ratios) - min(ratios)
    if len(ratios) > 1 and span > 1e-6:
        expected = np.trapezoid(heights[order], np.array(ratios)[order]) / span
        assert weights @ heights == pytest.approx(expected)


def test_the_full_cache_is_met_at_every_level() -> None:
    frame = realistic_records(policies=("full", "knorm"), ratios=[0.5, 0.9], contexts=4, tasks=["base"])
    half, most = duels(frame, "full", ["knorm"])
    assert (half.level.value, most.level.value) == (0.5, 0.9)
    by = frame.groupby(["policy", "ratio"]).right.mean()
    assert half.lead.difference.mean == pytest.approx(by["full", 0.0] - by["knorm", 0.5])
    assert most.lead.difference.mean == pytest.approx(by["full", 0.0] - by["knorm", 0.9])


def test_what_a_program_reads_is_in_one_unit_whatever_the_measure() -> None:
    """What is right and wrong of answered are shares: differences, intervals and what could be seen are in points."""
    frame = records(mine=[100.0, 0.0] * 10 + [100.0] * 4, theirs=[0.0] * 24)
    table = verdict_table(duels(frame, "mine", ["theirs"]), {})
    (row,) = table.plain()
    right, wrong = ([row[f"{name}_difference{end}"] for end in ("", "_low", "_high")] for name in ("right", WRONG.name))
    assert (row["unit"], right[0]) == ("points", pytest.approx(100 * 14 / 24))
    assert wrong == pytest.approx([-right[0], -right[2], -right[1]])
    assert row["wrong_of_answered_smallest"] == pytest.approx(row["right_smallest"])
    of_lines = pooled_table(pool(frame, "mine", ["theirs"])).plain()
    assert [line["unit"] for line in of_lines] == ["points", "points"]
    assert of_lines[1]["difference"] == pytest.approx(wrong[0])
    sheets = duels_sheet("x", duels(frame, "mine", ["theirs"]), {}), pooled_sheet("y", pool(frame, "mine", ["theirs"]))
    for sheet in sheets:
        (first, *_) = json.loads(sheet.json())
        assert first["unit"] == "points"
        assert first.get("wrong_of_answered_difference", -first.get("difference", 0)) == pytest.approx(wrong[0])


def test_an_interval_shows_whether_it_leaves_out_zero_and_a_difference_is_never_minus_zero() -> None:
    assert MeanDifference(52.0, -0.3, 81.0).text() == "+52.0 [-0.3, +81.0]"
    assert MeanDifference(52.0, 0.3, 81.0).text() == "+52.0 [+0.3, +81.0]"
    assert MeanDifference(12.0, 3.0, 20.0).text() == "+12 [+3, +20]"
    assert MeanDifference(-0.001, None, None).text(100) == "+0"


def test_a_pooled_line_says_where_single_cells_are_clear() -> None:
    """Better on the whole may be clearly worse somewhere: at 0.9 all is lost that the other has there."""
    higher = at_levels({0.1: CLEAR, 0.5: CLEAR})
    lower = records(mine=[0.0] * 20, theirs=CLEAR).assign(ratio=0.9, level=0.9)
    frame = pd.concat([higher, lower], ignore_index=True)
    (line,) = with_cells(pool(of_right(frame), "mine", ["theirs"]), duels(frame, "mine", ["theirs"]))
    assert [cell.verdict for cell in line.judged] == ["better", "better", "worse"]
    assert line.sentence.endswith("; single cells: better in 2, worse in 1 of 3: base at 0.9 (-100)")
    (alone,) = pool(of_right(frame), "mine", ["theirs"])
    assert "single cells" not in alone.sentence
    small = [JudgedCell("hops", Level("ratio", ratio), -ratio * 10, "worse") for ratio in (0.1, 0.3, 0.5)]
    many = replace(line, judged=(*small, *line.judged))
    assert many.sentence.endswith("worse in 4 of 6: base at 0.9 (-100), hops at 0.5 (-5), hops at 0.3 (-3) and others")


def test_a_pooled_line_counts_no_cell_that_it_leaves_out() -> None:
    """A task of too few contexts enters no pooled difference, and its cells are not among those that are counted."""
    long = at_levels({0.1: CLEAR, 0.5: CLEAR})
    short = records(mine=[0.0, 0.0], theirs=[100.0, 100.0]).assign(task="hops", ratio=0.5, level=0.5)
    frame = of_right(pd.concat([long, short], ignore_index=True))
    met = duels(frame, "mine", ["theirs"])
    assert {duel.task for duel in met} == {"base", "hops"}
    (line,) = with_cells(pool(frame, "mine", ["theirs"]), met)
    assert [(cell.task, cell.level.value) for cell in line.judged] == [("base", 0.1), ("base", 0.5)]
    assert line.cells == 2
