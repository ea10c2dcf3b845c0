"""Agnostic beside aware: paired differences by hand, on the page, in the download and in print."""

from dataclasses import replace
from typing import Any

import pytest
from pandas import DataFrame

from leaderboards.studies.declaration import StudyInput
from leaderboards.studies.modes.content import print_table
from leaderboards.studies.modes.study import STUDY
from tests.support.records.synthetic_records import frame, record
from tests.support.wording import assert_says

CONTEXTS = 10


def mode_results(
    mode: str,
    right: int,
    number: int,
    policies: tuple[str, ...] = ("snapkv",),
    contexts: int = CONTEXTS,
) -> StudyInput:
    """``right``: contexts that a policy has right, of ten; the full cache has nine."""
    rows: list[dict[str, Any]] = []
    for policy, level, kept in (("full", 0.0, 9), *((policy, 0.5, right) for policy in policies)):
        for context in range(contexts):
            named = {
                "draw_id": f"{context}",
                "example_id": f"{context}",
                "question_id": f"{context}/0",
                "mode": mode,
            }
            said = {"right": context < kept, "f1": 100.0 * (context < kept)}
            rows.append(record(policy=policy, level=level, ratio=level, **named, **said))
    return StudyInput("toy", frame(rows), [{"status": "complete"}], number=number)


def both(right: int = 6) -> StudyInput:
    aware = mode_results("aware", 8, 2, ("snapkv", "finch"))
    return replace(mode_results("agnostic", right, 1), modes=[aware])


def test_difference_is_aware_less_agnostic_on_the_same_questions() -> None:
    """The full cache has 90 % in both; snapkv 60 and 80."""
    (sheet,) = STUDY.find(both()).sheets
    table = DataFrame(sheet.rows, columns=sheet.columns).set_index(["policy", "mode"])
    assert table.loc[("snapkv", "agnostic"), "right"] == pytest.approx(60)
    assert table.loc[("snapkv", "aware"), "f1"] == pytest.approx(80)
    aware = table.loc[("snapkv", "aware")]
    assert aware["right_difference"] == pytest.approx(20)
    assert aware["right_difference_low"] < 20 < aware["right_difference_high"]
    assert table.loc[("full", "aware"), "f1_difference"] == pytest.approx(0)
    assert ("finch", "agnostic") not in table.index


def test_page_and_print_have_a_line_for_each_policy_and_level() -> None:
    (section,) = STUDY.find(both()).parts
    lines = {row[0]: row for row in section.listings[0].rows}
    assert list(lines) == ["full", "snapkv", "finch"]
    assert lines["snapkv"][4].startswith("+20 [")
    assert lines["finch"][2] == "–"
    printed = print_table(both(), "Numbers: run x.")
    assert printed is not None
    assert len(printed.rows) == 4
    assert "snapkv" in printed.latex()


def test_a_control_below_half_is_marked() -> None:
    given = both()
    for one in (given, *given.modes):
        one.records["right"] = False
    (section,) = STUDY.find(given).parts
    assert "no verdicts" in section.listings[0].title
    assert_says(section.text, "0 % right", "below 50", "numbers are shown")


def test_only_questions_of_both_modes_count() -> None:
    """Of the first five contexts snapkv has all right in either mode."""
    given = replace(both(), modes=[mode_results("aware", 8, 2, contexts=5)])
    (sheet,) = STUDY.find(given).sheets
    table = DataFrame(sheet.rows, columns=sheet.columns).set_index(["policy", "mode"])
    assert table.loc[("snapkv", "agnostic"), "right"] == pytest.approx(100)


def test_one_mode_has_no_section() -> None:
    assert not STUDY.takes(mode_results("agnostic", 6, 1))
    assert not STUDY.takes(mode_results("aware", 6, 1))
    assert print_table(mode_results("agnostic", 6, 1), "") is None
