"""From records to the standings of a board: blanks with their reasons, and intervals that hold what
they promise."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from leaderboards.aggregate.summary import summarise
from leaderboards.boards import profiles as profile_module
from leaderboards.boards.area_under_curve import AREA, BEATS, area_under_curve
from leaderboards.boards.board import DERIVED, FIRST_COLUMNS, Standing, all_standings, make_boards
from leaderboards.boards.declaration import BoardProfiles
from leaderboards.boards.profiles import Profiles
from leaderboards.boards.rank import RANK, ranks
from leaderboards.boards.safe_ratio import SAFE_RATIO, safe_ratio
from leaderboards.downloads.tables import board_sheet
from leaderboards.metrics import METRICS
from leaderboards.pages.definitions import chapters
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.context_sums import ContextSums
from leaderboards.statistics.intervals import mean_interval
from leaderboards.statistics.rank import RankInterval
from policies import Level
from tests.support.records.synthetic_profiles import value
from tests.support.records.synthetic_records import failing, realistic_records, summary_row

RANDOM, RECENCY = BEATS

# Profiles


def test_a_profile_is_what_the_rows_say_and_has_their_intervals() -> None:
    records = realistic_records(policies=["full", "snapkv", "random"], ratios=[0.3, 0.6, 0.9])
    rows = summarise(records)
    profiles = Profiles.of(records, rows)
    for row in rows:
        found = profiles.profile(row.mode, row.task, row.policy)
        place = found.levels.index(row.at)
        assert value(found.realised_ratio)[place] == pytest.approx(row.realised_ratio)
        assert value(found.lead)[place] == pytest.approx(100 * row.right)
        if row.task != "all":
            ((lead,),) = value(found.leads)
            low, high = mean_interval(lead.heights[place] / 100)
            assert (low, high) == pytest.approx((row.right_low, row.right_high))
            lost = (lead.lost - lead.gained)[place].mean()
            assert 100 * lost == pytest.approx(lead.means[0] - lead.means[place])


def test_contexts_without_a_measure_do_not_widen_what_others_have() -> None:
    """Four of six contexts have an attack, of which two leak."""
    counts = np.array([1.0, 1, 1, 1, 0, 0])
    leaks, nothing = np.array([1.0, 1, 0, 0, 0, 0]), np.zeros(6)
    cell = profile_module._CellSums(
        ContextSums(leaks, counts), ContextSums(nothing, counts), ContextSums(nothing, counts)
    )
    measure = METRICS["leakage"].measures[0]
    where = ("snapkv", Level("ratio", 0.5))
    tally = profile_module._Tally({(measure.field, *where): cell})
    lead = tally.lead(measure, [where])
    assert lead.there.tolist() == [True] * 4 + [False] * 2
    assert lead.heights[0, :4].tolist() == [0, 0, 100, 100], "in percent of what does not leak"
    assert lead.means == pytest.approx([50])
    assert lead.heights[0].mean() == pytest.approx(50)


def standings_of(records: pd.DataFrame, task: str = "base") -> dict[str, Standing]:
    """By policy."""
    of_board = all_standings(records, summarise(records, resamples=50))["agnostic", task]
    return {one.policy: one for one in of_board}


def test_what_failed_is_blank_with_its_reason_and_has_no_rank() -> None:
    def broken(one: dict[str, Any]) -> dict[str, Any]:
        is_broken = (one["policy"], one["ratio"], one["example_index"]) == ("tova", 0.9, 2)
        return failing(one, "out of memory") if is_broken else one

    records = realistic_records(
        ["base"], ["full", "random", "snapkv", "tova"], ratios=[0.5, 0.9], change=broken
    )
    board = standings_of(records)
    tova, snapkv = board["tova"], board["snapkv"]
    reason = Blank("tova at ratio 0.9: 4 of 48 answers failed: out of memory")
    blank = [tova[measure] for measure in DERIVED if measure is not RECENCY]
    assert blank == [reason] * 4
    assert tova[RECENCY] == Blank("recency was not run")
    assert value(snapkv[RANK]) == RankInterval(1, 1, 1, (), 1)
    alone = standings_of(records[records["policy"] != "tova"])
    assert value(snapkv[RANDOM]) == alone["snapkv"][RANDOM], "whatever else is on the board"


def test_who_removes_less_than_the_others_keeps_its_rank_and_cuts_nobody_short() -> None:
    def halves(one: dict[str, Any]) -> dict[str, Any]:
        return one | (
            {"realised_ratio": one["realised_ratio"] / 2} if one["policy"] == "tova" else {}
        )

    records = realistic_records(["base"], ["full", "snapkv", "knorm", "tova"], change=halves)
    board, alone = standings_of(records), standings_of(records[records["policy"] != "tova"])
    with_tova = {policy: value(board[policy][RANK]) for policy in ("snapkv", "knorm", "tova")}
    assert sorted(rank.rank for rank in with_tova.values()) == [1, 2, 3]
    assert value(alone["snapkv"][RANK]).rank < value(alone["knorm"][RANK]).rank
    assert with_tova["snapkv"].rank < with_tova["knorm"].rank, "over all that both reach"
    assert value(board["tova"][AREA]).span == pytest.approx(0.45)


def test_a_press_of_a_narrow_window_is_ranked_against_nobody_and_keeps_what_else_it_comes_to() -> (
    None
):
    """On ``base`` the largest window is 11, on ``hops`` it is that of the paper."""

    def narrow(one: dict[str, Any]) -> dict[str, Any]:
        window = 64 if one["task"] == "hops" else (2, 11)[one["example_index"] % 2]
        return one | (
            {"press_arguments": f'{{"window_size": {window}}}'} if one["policy"] == "snapkv" else {}
        )

    policies, ratios = ["full", "random", "snapkv", "knorm", "tova"], (0.3, 0.6, 0.9)
    plain = realistic_records(policies=policies, ratios=ratios, contexts=6)
    records = realistic_records(policies=policies, ratios=ratios, contexts=6, change=narrow)
    for task in ("base", "all"):
        board, before = standings_of(records, task), standings_of(plain, task)["snapkv"]
        rank = board["snapkv"][RANK]
        assert isinstance(rank, Blank)
        assert rank.short == "window 2 to 11 of 64"
        assert (value(board["tova"][RANK]).rank, value(board["knorm"][RANK]).rank) == (1, 2)
        assert board["snapkv"][AREA] == before[AREA]
        assert board["snapkv"][RANDOM] == before[RANDOM]
        assert board["snapkv"][SAFE_RATIO] == before[SAFE_RATIO]
    of_paper = [standings_of(one, "hops")["snapkv"][RANK] for one in (records, plain)]
    assert of_paper[0] == of_paper[1]


def test_policies_as_good_as_they_were_made_are_told_apart() -> None:
    records = realistic_records(ratios=(0.3, 0.6, 0.9), contexts=16)
    found = {
        one.policy: one for one in all_standings(records, summarise(records))["agnostic", "all"]
    }
    for policy, verdict in (
        ("snapkv", "better"),
        ("expected_attention", "better"),
        ("streaming_llm", "worse"),
    ):
        beaten = value(found[policy][RANDOM])
        assert (beaten.verdict, beaten.end) == (verdict, pytest.approx(0.9))
    ranked = {
        policy: value(one[RANK])
        for policy, one in found.items()
        if not isinstance(one[RANK], Blank)
    }
    assert set(ranked) == {
        "streaming_llm",
        "snapkv",
        "tova",
        "h2o",
        "knorm",
        "expected_attention",
        "adakv_snapkv",
    }
    assert ranked["streaming_llm"].low == 7
    assert "adakv_snapkv" in ranked["expected_attention"].tied


# What intervals promise

LEVELS = (0.0, 0.25, 0.5, 0.75)
TRUTH = {"snapkv": (0.9, 0.85, 0.7, 0.35), "random": (0.9, 0.75, 0.5, 0.3)}


def simulated(seed: int, contexts: int = 40, questions: int = 5) -> Profiles:
    """Right or wrong, with the probabilities of :data:`TRUTH` on average: a third of all questions
    shares the luck of its context, at every level and for both policies."""
    generator = np.random.default_rng(seed)
    luck = np.where(
        generator.random((contexts, questions)) < 1 / 3,
        generator.random((contexts, 1)),
        generator.random((contexts, questions)),
    )
    parts = []
    for policy, ratios in (("full", LEVELS[:1]), *((name, LEVELS[1:]) for name in TRUTH)):
        for ratio in ratios:
            right = (luck < TRUTH.get(policy, TRUTH["random"])[LEVELS.index(ratio)]).ravel()
            parts.append(
                pd.DataFrame(
                    {
                        "policy": policy,
                        "ratio": ratio,
                        "right": 1.0 * right,
                        "hallucinated": 1.0 - right,
                    }
                )
            )
    records = pd.concat(parts, ignore_index=True)
    names = np.repeat([f"base-{context}" for context in range(contexts)], questions)
    records = records.assign(
        task="base",
        mode="agnostic",
        status="ok",
        level_kind="ratio",
        level=records["ratio"],
        repeat=0,
        ger=records["ratio"],
    )
    records = records.assign(realised_ratio=records["ratio"], question_id=0, answered=1.0)
    blank = ("directives_obeyed", "defence_leakage", "leakage", "next_token_accuracy")
    records = records.assign(**dict.fromkeys(blank, np.nan))
    records = records.assign(
        draw_id=np.tile(names, len(parts)), example_id=np.tile(names, len(parts))
    )
    records = records.assign(press_arguments="{}")
    rows = [
        summary_row(
            str(policy),
            float(ratio),
            n=len(group),
            fewest_contexts=contexts,
            right=0,
            realised_ratio=0,
        )
        for (policy, ratio), group in records.groupby(["policy", "ratio"], sort=False)
    ]
    return Profiles.of(records, rows)


def true_area(policy: str) -> float:
    heights = 100 * np.array(TRUTH[policy])
    return float(np.trapezoid(heights, LEVELS) / LEVELS[-1])


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """95 %, over 100 samples of 40 contexts; the least that is safe to claim is claimed of
    ranks."""
    hits = dict.fromkeys(("area", "rank"), 0)
    too_safe = 0
    for seed in range(100):
        profiles = simulated(seed)
        one, other = (profiles.profile("agnostic", "base", name) for name in TRUTH)
        area = value(area_under_curve(one)).height
        rank = value(
            ranks(BoardProfiles({"snapkv": one, "knorm": replace(other, policy="knorm")}))["snapkv"]
        )
        for name, low, truth, high in (
            ("area", area.low, true_area("snapkv"), area.high),
            ("rank", rank.low, 1, rank.high),
        ):
            assert low is not None
            assert high is not None
            hits[name] += low <= truth <= high
        too_safe += value(safe_ratio(one)).ratio > 0.25
    assert hits["area"] >= 90, hits
    assert hits["rank"] >= 90
    assert too_safe <= 3, "0.5 loses 20 points"


# Declarations


def test_a_derived_measure_is_declared_once_and_found_everywhere() -> None:
    records = realistic_records(
        ["base"], ["full", "random", "recency", "snapkv", "knorm"], contexts=8
    )
    rows = summarise(records)
    found = all_standings(records, rows)
    boards = make_boards(records, rows, found)
    download = board_sheet(found, boards)
    explained = {
        name for chapter in chapters() for one in chapter.definitions for name in one.columns
    }
    headings = [column.name for column in boards["agnostic", "base"].columns]
    assert headings[: len(FIRST_COLUMNS)] == [measure.heading for measure in FIRST_COLUMNS]
    for measure in DERIVED:
        columns = {*measure.columns, f"{measure.name}_reason"}
        assert columns <= set(download.columns)
        assert columns <= explained
        assert measure.line
