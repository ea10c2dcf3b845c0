"""What is best in a column of a table, and what cannot be told from it: paired, as ranks and
comparisons are."""

from pandas import DataFrame

from leaderboards.aggregate.leading_measures import find_mark
from leaderboards.aggregate.row import (
    HALLUCINATION,
    REALISED_RATIO,
    RIGHT,
    WRONG_OF_ANSWERED,
    SummaryRow,
    share_as_count,
)
from leaderboards.aggregate.summary import summarise
from leaderboards.pages.sections import measure_table
from tests.support.records.synthetic_records import frame, record


def ranked_records(hard: list[float], **gains: list[float]) -> DataFrame:
    """What is right of each policy, in percent: what a context allows, and what the policy gains
    there."""
    return frame(
        [
            record(
                task=task,
                policy=policy,
                ratio=0.5,
                example_id=f"{task}-{place}",
                f1=allowed + gain,
                hallucinated=allowed + gain < 50,
            )
            for task in ("base", "hops")
            for policy, own in gains.items()
            for place, (allowed, gain) in enumerate(zip(hard, own, strict=True))
        ]
    )


def summary_by_policy(records: DataFrame, task: str) -> dict[str, SummaryRow]:
    return {row.policy: row for row in summarise(records) if row.task == task}


def test_what_makes_a_context_hard_for_all_hides_no_difference() -> None:
    """Five points in every context, between contexts that differ by ninety: intervals overlap, and
    yet one is best."""
    hard, equal = [0.0, 90.0, 30.0, 60.0, 10.0, 80.0], [5.0] * 6
    for task in ("base", "hops", "all"):
        rows = summary_by_policy(
            ranked_records(
                hard, snapkv=equal, tova=[0.0] * 6, knorm=[5.0, 5.0, 5.0, 5.0, 5.0, -10.0]
            ),
            task,
        )
        best, worse = rows["snapkv"], rows["tova"]
        assert best.right_low is not None
        assert worse.right_high is not None
        assert best.right_low < worse.right_high, "alone they could not be told apart"
        assert [find_mark(rows[name], RIGHT) for name in ("snapkv", "tova", "knorm")] == [
            "tie",
            None,
            "tie",
        ]
        alone = summary_by_policy(ranked_records(hard, snapkv=equal, tova=[0.0] * 6), task)
        assert [find_mark(alone[name], RIGHT) for name in ("snapkv", "tova")] == ["best", None]
        assert find_mark(alone["snapkv"], REALISED_RATIO) is None, "by which nothing is ranked"
        assert find_mark(None, RIGHT) is None


def test_who_gives_few_answers_is_best_in_nothing_and_its_share_is_a_count() -> None:
    """Of 12 answers snapkv gives 9, none of them wrong; tova gives all, half of them wrong; knorm
    gives all."""
    records = ranked_records(
        [0.0] * 12, snapkv=[100.0] * 12, tova=[0.0, 100.0] * 6, knorm=[100.0] * 12
    )
    silent = (records["policy"] == "snapkv") & records["example_id"].str.fullmatch(".*-[012]")
    records.loc[silent, ["answered", "hallucinated", "abstained", "right"]] = [
        False,
        False,
        True,
        False,
    ]
    rows = summary_by_policy(records, "base")
    assert {name: row.answers_given for name, row in rows.items()} == {
        "snapkv": 9,
        "tova": 12,
        "knorm": 12,
    }
    assert [find_mark(row, WRONG_OF_ANSWERED) for row in rows.values()] == [None, None, "best"]
    assert [share_as_count(row, WRONG_OF_ANSWERED) for row in rows.values()] == ["0 of 9", "", ""]
    assert share_as_count(rows["snapkv"], RIGHT) == ""
    assert share_as_count(summary_by_policy(records, "all")["snapkv"], WRONG_OF_ANSWERED) == "", (
        "a mean over tasks is no count"
    )
    table = measure_table(list(rows.values()), WRONG_OF_ANSWERED, 1.0)
    cells = {line.name: line.cells[0] for line in table.methods}
    assert (cells["snapkv"].text, cells["snapkv"].detail, cells["snapkv"].sort) == (
        "0 of 9",
        "",
        0.0,
    )
    assert (cells["tova"].text, bool(cells["tova"].detail)) == ("50.0", True)


def test_nobody_is_best_by_the_raw_rate_which_falls_with_silence() -> None:
    rows = summary_by_policy(ranked_records([0.0] * 8, snapkv=[100.0] * 8, tova=[0.0] * 8), "base")
    assert rows["snapkv"].hallucination_rate == 0 < rows["tova"].hallucination_rate
    assert all(find_mark(row, HALLUCINATION) is None for row in rows.values())
    assert not any("hallucination_rate" in row.best_in + row.tied_in for row in rows.values())
    stored = rows["snapkv"].model_copy(update={"best_in": ("hallucination_rate",)})
    assert find_mark(stored, HALLUCINATION) is None, "of an earlier version"


def test_controls_and_a_single_context_are_not_ranked() -> None:
    hard, nothing = [10.0, 60.0, 90.0, 30.0, 20.0, 50.0], [0.0] * 6
    rows = summary_by_policy(
        ranked_records(hard, oracle=[5.0] * 6, random=[2.0] * 6, tova=nothing, knorm=[-1.0] * 6),
        "base",
    )
    told = {name: find_mark(row, RIGHT) for name, row in rows.items()}
    assert told == {"oracle": None, "random": None, "tova": "best", "knorm": None}
    few = summary_by_policy(ranked_records(hard[:5], tova=nothing[:5], knorm=[-1.0] * 5), "base")
    assert {find_mark(row, RIGHT) for row in few.values()} == {"tie"}, (
        "five contexts tell nobody apart"
    )
    single = summary_by_policy(ranked_records([10.0], snapkv=[5.0], tova=[0.0]), "base")
    assert all(not row.best_in and not row.tied_in for row in single.values())
