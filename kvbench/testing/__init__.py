"""The contract of tasks and scorers, to be run from one's own tests.

``check_task`` and ``check_scorer`` raise ``AssertionError`` with every fault that they find;
``find_task_faults`` and ``find_scorer_faults`` return them."""

from kvbench.testing.scorers import check_scorer, find_scorer_faults
from kvbench.testing.tasks import check_task, find_task_faults

__all__ = ["check_scorer", "check_task", "find_scorer_faults", "find_task_faults"]
