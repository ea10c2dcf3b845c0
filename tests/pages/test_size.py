"""The pages of a run as large as the default one can be opened at once, also on a phone."""

import pytest

from datasets_gen import TASKS
from leaderboards.pages.front import FRONT
from leaderboards.pages.results import task_page
from policies import POLICIES
from tests.support.browsing.pages import build_pages, results_of
from tests.support.records.synthetic_records import realistic_records

FIRST_PAGE = 700_000  # bytes, of 1 MB that it may have: a task more takes about 30,000
TASK_PAGE = 400_000


@pytest.fixture(scope="module")
def sizes() -> dict[str, int]:
    """Bytes of each page of every task, all default policies and nine ratios."""
    policies = [policy.name for policy in POLICIES.values() if policy.by_default]
    ratios = [tenth / 10 for tenth in range(1, 10)]
    records = realistic_records(tasks=list(TASKS)[:9], policies=policies, ratios=ratios, contexts=4, questions=2)
    return {name: len(page.encode()) for name, page in build_pages([results_of(records, "reference")]).items()}


def test_the_first_page_is_far_from_a_megabyte(sizes: dict[str, int]) -> None:
    assert 200_000 < sizes[FRONT] < FIRST_PAGE


def test_the_page_of_a_task_is_lighter_still(sizes: dict[str, int]) -> None:
    assert 150_000 < sizes[task_page("base")] < TASK_PAGE
    assert len(sizes) == 10
