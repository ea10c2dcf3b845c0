"""The classes of answers: each by hand, and together all answers."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboards.routing.failures import AnswerFacts, FailureClass, outcome_of

UNUSED = AnswerFacts(
    right=False, right_with_full=True, alive=True, reached=True, silent=False, distractor_reached=False
)


@pytest.mark.parametrize(
    ("finding", "outcome"),
    [
        (replace(UNUSED, right=True, reached=False, alive=False), FailureClass.RIGHT),
        (replace(UNUSED, right_with_full=False), FailureClass.BEYOND_MODEL),
        (replace(UNUSED, alive=False, reached=False), FailureClass.ERASED),
        (replace(UNUSED, alive=False, reached=False, silent=True, distractor_reached=True), FailureClass.ERASED),
        (replace(UNUSED, reached=False), FailureClass.UNREACHABLE),
        (replace(UNUSED, silent=True), FailureClass.SILENT),
        (replace(UNUSED, distractor_reached=True), FailureClass.CONFUSED),
        (UNUSED, FailureClass.UNUSED),
        (replace(UNUSED, observed=False), FailureClass.NOT_OBSERVED),
        (replace(UNUSED, observed=False, right_with_full=False), FailureClass.BEYOND_MODEL),
        (replace(UNUSED, alive=False), FailureClass.UNUSED),  # reached through a token that has read it
    ],
)
def test_each_class_by_hand(finding: AnswerFacts, outcome: FailureClass) -> None:
    assert outcome_of(finding) is outcome


@given(st.lists(st.builds(AnswerFacts, *[st.booleans()] * 7)))
def test_the_classes_add_up_to_all_answers(findings: list[AnswerFacts]) -> None:
    counts = Counter(map(outcome_of, findings))
    wrong = [finding for finding in findings if not finding.right]
    assert counts[FailureClass.RIGHT] == len(findings) - len(wrong)
    assert counts[FailureClass.BEYOND_MODEL] == sum(not finding.right_with_full for finding in wrong)
    others = [finding for finding in wrong if finding.right_with_full]
    assert counts[FailureClass.NOT_OBSERVED] == sum(not finding.observed for finding in others)
    observed = [finding for finding in others if finding.observed]
    gone = counts[FailureClass.ERASED] + counts[FailureClass.UNREACHABLE]
    assert gone == sum(not finding.reached for finding in observed)
    assert (
        counts[FailureClass.SILENT] + counts[FailureClass.CONFUSED] + counts[FailureClass.UNUSED]
        == len(observed) - gone
    )
