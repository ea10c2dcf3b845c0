"""What became of lost answers, from records whose truth is known."""

from typing import Any

from pandas import DataFrame, Series

from leaderboards.aggregate.lost_answers import CELL, Fate, LostAnswers, lost_answers
from leaderboards.studies.lost_answers import lost_section
from policies.declaration.levels import Level
from tests.support.records.synthetic_records import failing, frame, record
from tests.support.wording import assert_says

HALF, MOST = Level("ratio", 0.5), Level("ratio", 0.9)
# GER of the answers that snapkv has wrong, by level and question; the full cache has all but
# question 5 right.
GER = {0.5: {0: 1.0, 1: 0.0, 5: 1.0}, 0.9: {0: 1.0, 1: 0.0, 2: 0.0, 3: 0.5}}


def answer_record(
    policy: str, level: float, question: int, right: bool, ger: float | None
) -> dict[str, Any]:
    scores = {"f1": 100.0 * right, "ger": ger}
    return record(
        policy=policy,
        ratio=level,
        question_id=str(question),
        example_id=f"base-{question}",
        **scores,
    )


def known(**more: Any) -> DataFrame:
    rows = [answer_record("full", 0.0, question, question != 5, 0.0) for question in range(6)]
    for level, lost in GER.items():
        rows += [
            answer_record("snapkv", level, question, question not in lost, lost.get(question, 0.0))
            for question in range(6)
        ]
    return frame([{**row, **(more if row["policy"] == "snapkv" else {})} for row in rows])


def by_cell(values: dict[tuple[int, float], bool]) -> Series:
    keys = {
        ("base", str(question), "snapkv", "ratio", level, 0): value
        for (question, level), value in values.items()
    }
    index = DataFrame(list(keys), columns=CELL).set_index(CELL).index
    return Series(list(keys.values()), index=index)


def test_lost_answers_are_counted_by_what_was_measured() -> None:
    """Of 6 lost answers, 2 have GER 1, 3 have GER 0 and 1 is in between; one is unreachable of four
    that were observed, and two of three come back with their rows."""
    unreachable = by_cell({(1, 0.5): True, (0, 0.5): False, (2, 0.9): False, (1, 0.9): False})
    repaired = by_cell({(2, 0.9): True, (3, 0.9): True, (1, 0.9): False})
    (found,) = lost_answers(known(), unreachable, repaired)
    assert (found.right_with_full, found.lost, found.with_ger, found.erased, found.there) == (
        10,
        6,
        6,
        2,
        3,
    )
    assert (found.observed, found.unreachable, found.tried, found.repaired) == (4, 1, 3, 2)
    assert found.by_level[HALF] == {Fate.ERASED: 1, Fate.UNREACHABLE: 1}
    assert found.by_level[MOST] == {Fate.ERASED: 1, Fate.THERE: 1, Fate.REPAIRED: 2}
    assert_says(
        found.sentence,
        "6 lost answers of snapkv",
        "2 have GER 1",
        "3 have GER 0",
        "1 of 4 is unreachable",
        "2 of 3 are repaired",
        "GER explains 2 of 6",
    )


def test_parts_that_were_not_measured_are_not_told() -> None:
    (found,) = lost_answers(known())
    assert "unreachable" not in found.sentence
    assert "put back" not in found.sentence
    assert found.by_level[MOST] == {Fate.ERASED: 1, Fate.PARTLY: 1, Fate.THERE: 2}
    (found,) = lost_answers(known(ger=0.0))
    assert found.sentence.endswith("So GER explains none of them.")
    (found,) = lost_answers(known(ger=None))
    assert_says(found.sentence, "6 lost answers of snapkv", "GER was not measured")
    assert set(found.by_level[HALF]) == {Fate.UNKNOWN}


def test_who_loses_nothing_and_who_failed() -> None:
    right = frame(
        [answer_record("full", 0.0, 0, True, 0.0), answer_record("snapkv", 0.5, 0, True, 0.0)]
    )
    (found,) = lost_answers(right)
    assert "snapkv loses none of the 1 answers" in found.sentence
    broken = failing(answer_record("snapkv", 0.5, 0, False, 1.0), "CUDA out of memory")
    assert lost_answers(frame([answer_record("full", 0.0, 0, True, 0.0), broken])) == []
    assert lost_section([]) is None


def test_the_picture_has_a_bar_for_each_level_and_part() -> None:
    found: list[LostAnswers] = lost_answers(
        known().assign(policy=lambda rows: rows["policy"].replace("snapkv", "<b>"))
    )
    section = lost_section(found)
    assert section is not None
    assert "&lt;b&gt;" in section.text
    (picture,) = section.pictures
    assert picture.drawing.svg().count('class="band"') == 2 + 3, (
        "at 0.5 the lost answers have two parts, at 0.9 three"
    )
    assert [style.policy for style in section.styles] == [
        str(Fate.ERASED),
        str(Fate.PARTLY),
        str(Fate.THERE),
    ]
