"""Counts what a run covers: contexts, their tokens and questions, and the branches of each policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from datasets_gen import Task
from kvbench.experiments.grid import Grid
from kvbench.models.load import load_tokenizer
from kvbench.prompts.prompt import build_prompts
from kvbench.run.resume import chunks
from policies import Policy

CONTEXTS_READ = 3  # of each task, to count their tokens and questions


@dataclass(frozen=True)
class Load:
    """The counts of one task."""

    task: str
    contexts: int
    units: int
    tokens: int  # of a context
    questions: float  # about a context
    question_tokens: float  # of a question
    answer_tokens: int  # of an answer, which is as long as the task allows
    gold_tokens: float  # of a right answer that are passed for its likelihood: all but the last
    branches: Sequence[tuple[Policy, Sequence[float]]]  # each policy, and which share of a context each branch holds

    @property
    def shares(self) -> list[float]:
        """Lists the share of a context that each branch holds, over all policies."""
        return [share for _, shares in self.branches for share in shares]

    @property
    def answers(self) -> float:
        return self.contexts * self.questions * len(self.shares)


def load_of(grid: Grid, task: Task, contexts: int, tokens: int | None, questions: float | None) -> Load:
    """Reads a few contexts of a task with the tokenizer of the model ``reference``; ``tokens`` and ``questions``
    replace the counts of every context."""
    tokenizer, mode = load_tokenizer("reference"), grid.setting.mode
    examples = [grid.example(task, index) for index in range(min(contexts, CONTEXTS_READ))]
    prompts = [prompt for example in examples for prompt in build_prompts(tokenizer, task, example, mode)]
    tokenized = [question for prompt in prompts for question in prompt.questions]
    tokens = tokens or round(mean(len(prompt.token_ids) for prompt in prompts))
    return Load(
        task=task.name,
        contexts=contexts,
        units=len(chunks(contexts)),
        tokens=tokens,
        questions=questions or len(tokenized) / len(examples),
        question_tokens=mean(len(question.token_ids) for question in tokenized),
        answer_tokens=task.max_new_tokens,
        gold_tokens=mean(max(0, len(question.gold_ids) - 1) for question in tokenized),
        branches=[(policy, _shares(grid, policy, tokens)) for policy in grid.policies_on(task)],
    )


def _shares(grid: Grid, policy: Policy, tokens: int) -> list[float]:
    """Lists the share of a context that each branch holds: all of it if the press masks, which frees nothing."""
    shares = (point.level.share(tokens) or 0.0 for point in grid.points(policy))
    return [1 - share if policy.frees else 1.0 for share in shares]
