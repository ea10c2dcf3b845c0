"""Puts forecasts to the test: questions are asked of the model with each format in place."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from datasets_gen import Task, at_level, get_task
from kvbench.checks.findings import Begin, silent
from kvbench.checks.mastery import collect_answers, highest_mastered
from kvbench.models.load import LoadedModel
from kvbench.prompts.context_length import count_by, lengthen
from kvbench.prompts.mode import phrase_tasks
from kvbench.system.errors import KVBenchError
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.paired_difference import PairedDifference, mean_difference_interval
from policies import FULL, POLICIES, Policy

# Facts in a short text, and a number hidden in a longer one.
TASKS = ("base", "niah_single_2")
TOKENS = 600  # of a context with a hidden number
LEVEL_CONTEXTS = 4  # by which a level of a task is chosen, at most
# A format broke a model where more of what the full cache has right is lost, in points of 100.
MOST_LOST = 20.0
SEED = 104_729  # of the contexts, apart from those of runs


@dataclass(frozen=True)
class FormatOutcome:
    """Holds what became of the questions with a format. ``lost``: points of 100 of right answers
    that the full cache has beyond it, mean over tasks, with the interval that boards have; ``perplexity``: of the right answers,
    behind the same question, as a multiple of the full cache's."""

    format: str
    right: float  # percent
    full: float  # percent right with the full cache
    lost: Estimate
    perplexity: float
    questions: int

    @property
    def broke(self) -> bool:
        return self.lost.mean > MOST_LOST


def find_tasks(model: LoadedModel, begin: Begin = silent) -> list[Task]:
    """Returns the tasks that the model masters, at its levels. Raises :class:`KVBenchError` where it
    masters none."""
    tasks: list[Task] = []
    reasons: list[str] = []
    for name in TASKS:
        task = get_task(name)
        # Without levels it is the hidden number, whose context has no length of its own here.
        if not task.top_level:
            (task,) = lengthen([task], TOKENS, None, count_by(model.name), model.name)
        (phrased,) = phrase_tasks([task], model.name)
        mastery = highest_mastered(model, phrased, LEVEL_CONTEXTS, begin=begin)
        if mastery.reason:
            reasons.append(f"{name}: {mastery.reason}")
            continue
        if phrased.top_level:
            phrased = at_level(phrased, mastery.level)
        tasks.append(phrased)
    if not tasks:
        raise KVBenchError(f"no question tells what a format breaks here: {'; '.join(reasons)}")
    return tasks


def try_formats(
    model: LoadedModel,
    formats: Sequence[Policy],
    tasks: Sequence[Task],
    contexts: int,
    begin: Begin = silent,
) -> list[FormatOutcome]:
    """Asks the questions of so many contexts of each task with the full cache and every format."""
    answers: list[pd.DataFrame] = []
    policies = [POLICIES[FULL], *formats]
    for task in tasks:
        answered = collect_answers(model, task, policies, contexts, SEED, begin=begin)
        # Where nothing can be right there is nothing that a format could break.
        answered = answered[answered["answerable"].astype(bool)]
        answers.append(answered.assign(task=task.name))
    return judge(pd.concat(answers, ignore_index=True))


def judge(answers: pd.DataFrame) -> list[FormatOutcome]:
    """Compares each format with the full cache, question by question. ``answers``: a row for each
    answer with its task, context, question and policy."""
    by_policy = {}
    for policy, rows in answers.groupby("policy", sort=False):
        by_policy[str(policy)] = rows.set_index(["task", "question_id"])
    full = by_policy.pop(FULL)
    outcomes: list[FormatOutcome] = []
    for name, rows in by_policy.items():
        beside = full.join(rows, rsuffix="_format", how="inner")
        right, other = (beside[column].astype(float) for column in ("right", "right_format"))
        lost = right - other
        by_task: list[PairedDifference] = []
        for _, of_task in lost.groupby(level="task"):
            # Contexts are the units of the interval: questions about one depend on each other.
            contexts = beside.loc[of_task.index, "draw_id"]
            means = of_task.groupby(contexts).mean().to_numpy()
            by_task.append(PairedDifference(np.maximum(means, 0), np.maximum(-means, 0)))
        low, high = mean_difference_interval(by_task)
        mean = float(np.mean([difference.mean for difference in by_task]))
        nats = (beside["gold_nll_format"] - beside["gold_nll"]).astype(float)
        outcomes.append(
            FormatOutcome(
                format=name,
                right=100 * float(other.mean()),
                full=100 * float(right.mean()),
                lost=Estimate(100 * mean, 100 * low, 100 * high, len(lost)),
                # The median: a single broken answer would decide the mean of exponentials.
                perplexity=float(nats.map(math.exp).median()),
                questions=len(lost),
            )
        )
    return outcomes
