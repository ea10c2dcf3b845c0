"""Where hallucination rises and whether GER goes with it, on records where the truth is known, and
their section."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame

from leaderboards.rendering.frames import PolicyLine
from leaderboards.studies.cliff.content import swept_tasks
from leaderboards.studies.cliff.study import STUDY
from leaderboards.studies.cliff.sweeps import peaks, pearson, slopes
from leaderboards.studies.declaration import StudyInput, StudySection
from tests.support.records.synthetic_records import frame, record
from tests.support.wording import assert_says

RATIOS = (0.2, 0.4, 0.6, 0.8, 0.9)
CONTEXTS, QUESTIONS = 20, 2
# Of ratio and context: whether it is made up, and its GER.
Answer = Callable[[float, int], tuple[bool, float]]


def is_gone(ratio: float, context: int) -> float:
    """At 0.9 the evidence of three of four contexts is gone, below of every tenth."""
    return float(context % 4 > 0 if ratio >= 0.9 else context % 10 == 0 and ratio > 0)


def follows(ratio: float, context: int) -> tuple[bool, float]:
    """What is gone is made up, and nothing else."""
    return bool(is_gone(ratio, context)), is_gone(ratio, context)


def is_unrelated(ratio: float, context: int) -> tuple[bool, float]:
    """The evidence goes as there, and a quarter of the contexts is made up at every ratio: those
    that keep theirs."""
    return context % 4 == 0, is_gone(ratio, context)


def cliff_input(answer: Answer, right: float = 1.0) -> StudyInput:
    """``right``: the share of contexts that the full cache has right."""
    rows: list[dict[str, Any]] = []
    for policy, ratios in (("full", (0.0,)), ("snapkv", RATIOS)):
        for ratio in ratios:
            for context in range(CONTEXTS):
                made_up, ger = answer(ratio, context)
                said = {
                    "hallucinated": made_up,
                    "right": context < right * CONTEXTS,
                    "ger": ger,
                    "f1": 0.0,
                }
                place = {
                    "policy": policy,
                    "level": ratio,
                    "ratio": ratio,
                    "realised_ratio": ratio + 0.01 * (ratio > 0),
                }
                named = {
                    "draw_id": f"{context:02}",
                    "example_id": f"{context:02}",
                    "slot_coverage": 1 - ratio,
                }
                names = (f"{context:02}/{question}" for question in range(QUESTIONS))
                rows += [record(**place, **said, **named, question_id=name) for name in names]
    return StudyInput("toy", frame(rows), [{"status": "complete"}])


def section_of(results: StudyInput) -> tuple[StudySection, dict[str, DataFrame]]:
    assert STUDY.takes(results)
    content = STUDY.find(results)
    return content.parts[0], {
        sheet.name: DataFrame(sheet.rows, columns=sheet.columns) for sheet in content.sheets
    }


def test_rate_that_jumps_at_0_9_and_follows_ger_is_said_to() -> None:
    """The realised ratios are 0.81 and 0.91: the middle is 0.86. The rate is 0.1 before and 0.75
    behind."""
    section, sheets = section_of(cliff_input(follows))
    summary = sheets["cliff-summary"].set_index("policy").loc["snapkv"]
    assert summary["cliff"] == pytest.approx(0.86)
    assert summary["is_clear"]
    assert summary["r"] == pytest.approx(1.0)
    assert summary["partial"] == pytest.approx(1.0)
    assert summary["cliff_low"] <= summary["cliff"] <= summary["cliff_high"]
    levels = sheets["cliff"].set_index("level")
    assert levels["realised"].tolist() == pytest.approx([0, 0.21, 0.41, 0.61, 0.81, 0.91])
    assert levels["hallucination"].tolist() == pytest.approx([0, 0.1, 0.1, 0.1, 0.1, 0.75])
    assert levels.loc[0.9, "susceptibility"] == pytest.approx(0.65 / 0.1)
    assert levels.loc[0.4, "susceptibility"] == pytest.approx(0.0)
    assert levels.loc[0.9, "ger"] == pytest.approx(0.75)
    assert levels.loc[0.8, "slot_coverage"] == pytest.approx(0.2)
    assert_says(section.text, "more for 1 of 1 policies", "realised ratio of 0.86")
    assert "Over ratios GER goes with them (1.00" in section.text
    assert "it goes with them (1.00" in section.text
    assert [picture.title for picture in section.pictures] == [
        *("Hallucination rate", "Susceptibility", "Global Eviction Ratio", "Hallucination over GER")
    ]


def test_rate_that_does_not_follow_ger_is_said_not_to() -> None:
    section, sheets = section_of(cliff_input(is_unrelated))
    summary = sheets["cliff-summary"].set_index("policy").loc["snapkv"]
    assert np.isnan(float(summary["cliff"] or "nan"))
    assert summary["partial"] < 0  # those that keep theirs are made up
    assert "become more for 0 of 1 policies" in section.text
    assert "one of the two never varies" in section.text
    assert "it does not clearly go with them" in section.text
    assert section.listings[0].rows[0][1] == "rises nowhere"


def test_numbers_below_a_control_of_half_are_shown_and_marked() -> None:
    section, sheets = section_of(cliff_input(follows, right=0.25))
    assert "no verdicts" in section.listings[0].title
    assert_says(section.text, "25 % right", "below 50", "numbers are shown")
    assert sheets["cliff-summary"]["cliff"].iloc[0] == pytest.approx(0.86)
    assert sheets["cliff-summary"]["not_mastered"].notna().all()


def test_levels_that_remove_nothing_have_no_section() -> None:
    results = cliff_input(follows)
    results.records["realised_ratio"] = 0.0
    assert not swept_tasks(results)
    assert not STUDY.takes(results)


def test_slope_and_its_peak_by_hand() -> None:
    rates = np.array([[0.0, 0.1, 0.5], [0.0, 0.0, 0.0], [0.5, 0.4, 0.3]])
    middles, rises = slopes(np.array([0.0, 0.5, 0.9]), rates)
    assert middles.tolist() == pytest.approx([0.25, 0.7])
    assert rises[0].tolist() == pytest.approx([0.2, 1.0])
    found = peaks(middles, rises)
    assert found[0] == pytest.approx(0.7)
    assert np.isnan(found[1:]).all()  # they rise nowhere


def test_correlation_by_hand() -> None:
    """Of 0, 1, 2 and 0, 1, 5 it is 5 / sqrt(2 × 14)."""
    found = pearson(np.array([[0.0, 1, 2], [1, 1, 1]]), np.array([[0.0, 1, 5], [0, 1, 2]]))
    assert found[0] == pytest.approx(5 / np.sqrt(2 * 14))
    assert np.isnan(found[1])


def test_two_models_share_pictures_of_hallucination_and_f1() -> None:
    """The other model makes up what the first does not; each line ends at what its own records
    hold."""
    here = cliff_input(follows)
    other = replace(cliff_input(is_unrelated), model="other", number=2)
    section = STUDY.find(replace(here, beside=[other])).parts[1]
    assert section.title == "Hallucination and F1 beside other"
    rate, f1 = section.pictures
    assert (rate.title, f1.title) == ("snapkv", "snapkv")
    lines = [mark for mark in rate.drawing.marks if isinstance(mark, PolicyLine)]
    assert [line.style.policy for line in lines] == ["toy", "other"]
    assert [line.places[-1][1] for line in lines] == pytest.approx([0.75, 0.25])
    # Behind the places of the policies on the page.
    assert min(line.style.index for line in lines) >= 2
    # They stand once, on the page of the first.
    assert len(STUDY.find(replace(other, beside=[here])).parts) == 1
