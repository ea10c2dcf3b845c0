"""The board: a row for each policy, from records of which one knows what they come to."""

import re
from typing import Any

import pytest
from pandas import DataFrame, concat

from leaderboards.aggregate.row import ALL_TASKS
from leaderboards.aggregate.summary import summarise
from leaderboards.boards.board import Board, make_boards
from leaderboards.boards.declaration import TableCell
from policies.declaration.names import CONTROLS
from tests.support.records.synthetic_records import (
    RATIOS,
    by_budget,
    failing,
    frame,
    realistic_records,
)

POLICIES = (
    "full",
    "oracle",
    "random",
    "recency",
    "random+ends",
    "snapkv",
    "knorm",
    "expected_attention",
)


@pytest.fixture(scope="module")
def boards() -> dict[tuple[str, str], Board]:
    records = realistic_records(policies=POLICIES, contexts=20)
    return dict(make_boards(records, summarise(records)))


def cells_by_column(board: Board, policy: str) -> dict[str, TableCell]:
    (line,) = [line for line in (*board.methods, *board.controls) if line.name == policy]
    return dict(zip((column.name for column in board.columns), line.cells, strict=True))


def test_there_is_a_board_for_each_task_and_for_their_mean(
    boards: dict[tuple[str, str], Board],
) -> None:
    assert set(boards) == {("agnostic", task) for task in ("base", "hops", ALL_TASKS)}
    for board in boards.values():
        assert {line.name for line in board.methods} == {"snapkv", "knorm", "expected_attention"}
        assert [line.name for line in board.controls] == list(CONTROLS)


def test_a_cell_holds_what_the_rows_say(boards: dict[tuple[str, str], Board]) -> None:
    records = realistic_records(policies=POLICIES, contexts=20)
    row = next(
        r for r in summarise(records) if (r.policy, r.task, r.ratio) == ("snapkv", "base", 0.5)
    )
    shown = cells_by_column(boards["agnostic", "base"], "snapkv")
    assert row.hallucination_rate is not None
    assert shown["hallucinated at 0.5"].text == f"{100 * row.hallucination_rate:.0f}"
    own = records[(records.policy == "snapkv")]
    assert float(shown["ms / context"].sort or 0) == pytest.approx(
        1000 * own.compression_seconds.mean()
    )
    assert shown["ms / context"].detail == f"{own.context_tokens.mean():,.0f} tokens", (
        "doctor times another length"
    )
    assert cells_by_column(boards["agnostic", "base"], "full")["safe ratio"].sort is None
    assert cells_by_column(boards["agnostic", "base"], "oracle")["safe ratio"].sort is not None


def test_who_does_not_beat_random_looks_like_it(boards: dict[tuple[str, str], Board]) -> None:
    board = boards["agnostic", ALL_TASKS]
    better, worse = (
        cells_by_column(board, policy)["beats random?"] for policy in ("snapkv", "knorm")
    )
    assert (better.sort or 0) > (worse.sort or 0)
    for cell in (better, worse):
        assert cell.tone in ("better", "worse", "tied")
        assert cell.text.endswith(cell.tone)
        assert re.fullmatch(r"[+-]\d+ \[[+-]\d+, [+-]\d+\]", cell.detail)


def test_a_policy_that_failed_somewhere_is_blank_with_its_reason() -> None:
    def spoil(one: dict[str, object]) -> dict[str, object]:
        if (one["policy"], one["ratio"], one["task"]) == ("knorm", 0.5, "hops"):
            return failing(one, "its scores are NaN")
        return one

    records = realistic_records(policies=POLICIES, contexts=4, change=spoil)
    board = make_boards(records, summarise(records))["agnostic", "hops"]
    blank = cells_by_column(board, "knorm")
    assert blank["area"].sort is blank["rank"].sort is None
    assert "its scores are NaN" in blank["area"].reason
    assert board.methods[-1].name == "knorm", "without a rank it comes last"


def test_a_run_by_budgets_or_other_ratios_shows_its_own_ends() -> None:
    """Where neither usual ratio was asked for, the columns would hold the full cache alone."""
    records = realistic_records(
        policies=["full", "random", "snapkv"], ratios=[0.3, 0.6, 0.8], contexts=3
    )
    names = {
        column.name
        for column in make_boards(records, summarise(records))["agnostic", "all"].columns
    }
    assert {
        "hallucinated at 0.3",
        "hallucinated at 0.8",
        "GER at 0.3",
        "GER at 0.8",
        "bytes saved",
    } <= names
    assert not {name for name in names if "0.5" in name or "0.9" in name}
    budgets = frame(
        [by_budget(one, {0.3: 64, 0.6: 32, 0.8: 16}) for one in records.to_dict("records")]
    )
    board = make_boards(budgets, summarise(budgets))["agnostic", "all"]
    assert {"hallucinated at 16", "hallucinated at 64"} <= {column.name for column in board.columns}
    (line,) = [line for line in board.methods if line.name == "snapkv"]
    shown = dict(zip((column.name for column in board.columns), line.cells, strict=True))
    assert shown["hallucinated at 16"].sort is not None


WHOLE = 1000
KIND_OF = {"knorm": "rate", "expected_attention": "bits"}


def of_another_kind(one: dict[str, Any]) -> dict[str, Any]:
    """The record as if knorm were a fault, expected_attention took bits, and snapkv no levels at
    all: none of them removes a token."""
    if one["policy"] in KIND_OF:
        rates = {"level_kind": KIND_OF[one["policy"]], "level": one["ratio"]}
        return one | rates | {"ratio": 0.0, "realised_ratio": 0.0, "kv_bytes": WHOLE, "ger": 0.0}
    return one | ({"kv_bytes": WHOLE} if one["policy"] == "full" else {})


@pytest.fixture(scope="module")
def of_many_kinds() -> DataFrame:
    records = realistic_records(policies=POLICIES, contexts=20, change=of_another_kind)
    stored = records["policy"] == "snapkv"
    once = records[stored & (records["ratio"] == RATIOS[0])].assign(
        level=0.0, ratio=0.0, realised_ratio=0.0
    )
    return concat([records[~stored], once], ignore_index=True)


def test_faults_and_fewer_bits_have_what_suits_their_levels(of_many_kinds: DataFrame) -> None:
    board = make_boards(of_many_kinds, summarise(of_many_kinds))["agnostic", "base"]
    assert "safe level" in {column.name for column in board.columns}
    fault, stored = cells_by_column(board, "knorm"), cells_by_column(board, "snapkv")
    assert re.fullmatch(r"(safe to|unsafe from|open at) rate [\d.]+", fault["safe level"].text)
    assert (fault["rank"].text, fault["rank"].detail) == ("–", "only one ranked"), (
        "no other is asked for rates"
    )
    assert "beats random?" not in fault, "evictions are asked for ratios"
    assert stored["safe level"].text in ("safe", "unsafe", "open")
    for name in ("rank", "area"):
        assert stored[name].text == "–"
        assert stored[name].reason.startswith("it has one level, which is no curve")
    at = {f"{kind} {ratio:g}" for kind in ("ratio", "rate", "bits") for ratio in RATIOS}
    assert {name for name in fault if name.startswith("right at ")} <= {
        f"right at {name}" for name in at
    }
    right = [cell.text for name, cell in stored.items() if name.startswith("right at ")]
    assert len(right) > 2
    assert len(set(right)) == 1, "its one score is the same at every level"
    assert "–" not in right


def test_only_a_cache_of_which_nothing_is_known_is_said_to_be_unseen() -> None:
    """Running text has no answer that could be masked, and its cache is seen all the same."""

    def unmasked(one: dict[str, Any]) -> dict[str, Any]:
        return one | {"masked": None}

    def unseen(one: dict[str, Any]) -> dict[str, Any]:
        return one | {"masked": None, "eviction_rate": None}

    seen = summarise(realistic_records(["base"], ["full"], ratios=[], change=unmasked))
    assert "masked is missing" in str(seen[0].reason)
    served = summarise(realistic_records(["base"], ["full"], ratios=[], change=unseen))
    assert "the cache cannot be seen" in str(served[0].reason)
    assert "masked is missing" not in str(served[0].reason)
