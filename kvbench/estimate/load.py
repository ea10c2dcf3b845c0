"""Counts what a run covers: contexts, their tokens and questions, and the branches of each policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from transformers import PreTrainedTokenizerBase

from datasets_gen import Task
from kvbench.experiments.grid import Grid
from kvbench.prompts.prompt import build_prompts
from kvbench.run.resume import chunks
from policies import Policy

CONTEXTS_READ = 3  # of each task, to count their tokens and questions
BEHIND = 12  # tokens that an answer has behind its gold where it ends with its sentence or line: fewer, or all it may


@dataclass(frozen=True)
class Load:
    """The counts of one task."""

    task: str
    contexts: int
    units: int
    tokens: int  # of a context
    questions: float  # about a context
    question_tokens: float  # of a question
    answer_tokens: int  # of an answer: as long as the task allows, unless it ends with its sentence or line
    gold_tokens: float  # of a right answer that are passed for its likelihood: all but the last
    branches: Sequence[tuple[Policy, Sequence[float]]]  # each policy, and which share of a context each branch holds
    prompts: float = 1.0  # of a context: one, or in mode aware one for each question

    @property
    def questions_at_once(self) -> float:
        """Counts the questions that are answered from one prefill."""
        return self.questions / self.prompts

    @property
    def shares(self) -> list[float]:
        """Lists the share of a context that each branch holds, over all policies."""
        return [share for _, shares in self.branches for share in shares]

    @property
    def answers(self) -> float:
        return self.contexts * self.questions * len(self.shares)


def load_of(
    grid: Grid,
    task: Task,
    contexts: int,
    tokens: int | None = None,
    questions: float | None = None,
    *,
    tokenizer: PreTrainedTokenizerBase,
) -> Load:
    """Reads a few contexts of a task with the model's tokenizer; ``tokens`` and ``questions`` replace the counts of
    every context."""
    mode = grid.setting.mode
    examples = [grid.example(task, index) for index in range(min(contexts, CONTEXTS_READ))]
    prompts = [prompt for example in examples for prompt in build_prompts(tokenizer, task, example, mode)]
    tokenized = [question for prompt in prompts for question in prompt.questions]
    golds = mean(max(0, len(question.gold_ids) - 1) for question in tokenized)
    # A chat model writes on behind a needle's value; its sentences end, and so do the lines of a base model.
    ends_early = (task.begins_answers and task.answer_end == "sentence") or tokenizer.chat_template is None
    tokens = tokens or round(mean(len(prompt.token_ids) for prompt in prompts))
    return Load(
        task=task.name,
        contexts=contexts,
        units=len(chunks(contexts)),
        tokens=tokens,
        questions=(asked := questions or len(tokenized) / len(examples)),
        prompts=asked if mode == "aware" else 1.0,
        question_tokens=mean(len(question.token_ids) for question in tokenized),
        answer_tokens=min(task.max_new_tokens, round(golds) + BEHIND) if ends_early else task.max_new_tokens,
        gold_tokens=golds,
        branches=[(policy, _shares(grid, policy, tokens)) for policy in grid.policies_on(task)],
    )


def _shares(grid: Grid, policy: Policy, tokens: int) -> list[float]:
    """Lists the share of a context that each branch holds: all of it if the press masks, which frees nothing."""
    shares = (point.level.share(tokens) or 0.0 for point in grid.points(policy))
    return [1 - share if policy.frees else 1.0 for share in shares]
