"""The classes of answers: each by hand, and together all answers."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboards.routing.failures import Finding, Outcome, outcome_of

UNUSED = Finding(right=False, right_with_full=True, alive=True, reached=True, silent=False, distractor_reached=False)


@pytest.mark.parametrize(
    ("finding", "outcome"),
    [
        (replace(UNUSED, right=True, reached=False, alive=False), Outcome.RIGHT),
        (replace(UNUSED, right_with_full=False), Outcome.BEYOND_MODEL),
        (replace(UNUSED, alive=False, reached=False), Outcome.ERASED),
        (replace(UNUSED, alive=False, reached=False, silent=True, distractor_reached=True), Outcome.ERASED),
        (replace(UNUSED, reached=False), Outcome.UNREACHABLE),
        (replace(UNUSED, silent=True), Outcome.SILENT),
        (replace(UNUSED, distractor_reached=True), Outcome.CONFUSED),
        (UNUSED, Outcome.UNUSED),
        (replace(UNUSED, observed=False), Outcome.NOT_OBSERVED),
        (replace(UNUSED, observed=False, right_with_full=False), Outcome.BEYOND_MODEL),
        (replace(UNUSED, alive=False), Outcome.UNUSED),  # reached through a token that has read it
    ],
)
def test_each_class_by_hand(finding: Finding, outcome: Outcome) -> None:
    assert outcome_of(finding) is outcome


@given(st.lists(st.builds(Finding, *[st.booleans()] * 7)))
def test_the_classes_add_up_to_all_answers(findings: list[Finding]) -> None:
    counts = Counter(map(outcome_of, findings))
    wrong = [finding for finding in findings if not finding.right]
    assert counts[Outcome.RIGHT] == len(findings) - len(wrong)
    assert counts[Outcome.BEYOND_MODEL] == sum(not finding.right_with_full for finding in wrong)
    others = [finding for finding in wrong if finding.right_with_full]
    assert counts[Outcome.NOT_OBSERVED] == sum(not finding.observed for finding in others)
    observed = [finding for finding in others if finding.observed]
    gone = counts[Outcome.ERASED] + counts[Outcome.UNREACHABLE]
    assert gone == sum(not finding.reached for finding in observed)
    assert counts[Outcome.SILENT] + counts[Outcome.CONFUSED] + counts[Outcome.UNUSED] == len(observed) - gone
