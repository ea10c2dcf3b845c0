"""Chooses how many contexts, and how many questions of each, tell most in a given time."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvbench.estimate.cost import RunCost
from kvbench.estimate.loads import Load
from kvbench.system.errors import KVBenchError
from leaderboards.statistics.paired_difference import fewest_clusters
from leaderboards.statistics.power import ALIKE, smallest_detectable, usual_spread

SECONDS_OF_HOUR = 3600.0


@dataclass(frozen=True)
class Choice:
    """Holds a number of contexts of each task, and of questions of each context."""

    contexts: int
    questions: int  # of a context at most
    most_questions: int  # that a task has
    smallest: float  # difference in points that the task with the fewest answers tells

    @property
    def words(self) -> str:
        """Says how it is asked for."""
        if self.questions == self.most_questions:
            options = f"--limit {self.contexts}, with all questions of each context"
        else:
            options = f'--limit {self.contexts} --tasks "all(questions={self.questions})"'
        return f"{options}: differences from {math.ceil(self.smallest)} points"


def choose_contexts(cost: RunCost, hours: float) -> Choice:
    """Chooses what tells the smallest difference in so many hours of all devices. Raises
    :class:`KVBenchError` where no number of contexts fits that tells any."""
    if not 0 < hours < math.inf:
        raise KVBenchError(f"--hours is a time above 0, such as 2.5, not {hours:g}")
    choices = list(_choices(cost, hours * SECONDS_OF_HOUR))
    if not choices:
        needed = fewest_clusters() + 1
        raise KVBenchError(
            f"--hours {hours:g}: not even {needed} contexts of each task fit into it, and fewer tell "
            f"no difference: give more hours, or fewer tasks, policies or levels"
        )
    return min(choices, key=lambda choice: (choice.smallest, -choice.contexts))


def _choices(cost: RunCost, seconds: float) -> Iterator[Choice]:
    """Yields for each number of questions as many contexts as fit."""
    most_questions = max(1, max(math.floor(load.questions) for load in cost.loads))
    for questions in range(1, most_questions + 1):
        loads = [_one_context(load, questions) for load in cost.loads]
        _, of_one_context = replace(cost, loads=loads).ends
        contexts = math.floor(seconds / (cost.devices * of_one_context))
        if contexts <= fewest_clusters():
            continue
        smallest = []
        for load in loads:
            points = smallest_detectable(_spread(load.questions), contexts)
            if points is not None:
                smallest.append(points)
        if smallest:
            yield Choice(contexts, questions, most_questions, max(smallest))


def _one_context(load: Load, questions: int) -> Load:
    """Returns the load of one context with so many questions at most."""
    fewer = min(float(questions), load.questions)
    prompts = load.prompts if load.prompts == 1 else fewer
    return replace(load, contexts=1, questions=fewer, prompts=prompts)


def _spread(questions: float) -> float:
    """Returns the spread of a context with so many questions whose answers are as alike as any that
    were measured: the variance of their mean is (1 + (n - 1) r) / n of that of one."""
    return usual_spread(questions) * math.sqrt(1 + (questions - 1) * ALIKE[1])
