"""Counts what a run has to do for each task, and what presses cost, whatever the model and the
machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from typing import TYPE_CHECKING, NamedTuple, Self

from datasets_gen import Task
from kvbench.estimate.machines import TABLE
from kvbench.experiments.grid import Grid
from kvbench.studies.registry import forecasts
from policies import LazyModule, Point, Policy

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from kvbench.prompts.prompt import Prompt

# Which needs transformers, and a mistyped option waits for none.
prompt_texts = LazyModule("kvbench.prompts.prompt")

# A press looks at all pairs of tokens if its readings grow that much at four times the length.
QUADRATIC = 1.5
CONTEXTS_READ = 3  # of each generated task, to count their tokens and questions
FILE_READ = 100  # of a file
# Tokens that an answer has behind its gold where it ends with its sentence or line: fewer, or all
# it may.
BEHIND = 12


class PressCost(NamedTuple):
    """The cost of a press. Its unit is a reading: the time in which the machine reads the context's
    cache once."""

    short: float = 0.0  # readings to score a context of the shorter of two lengths
    long: float = 0.0  # and of the longer
    level: float = 0.0  # readings for each ratio
    # Of a press with a prefill of its own: for each ratio, or for all where one scoring serves them.
    prefills: float = 0.0

    def readings(self, tokens: int, levels: int) -> float:
        """Counts the readings of a context: to score it takes as many at any length, or as many as
        are in proportion to the length if the press looks at all pairs of tokens."""
        is_quadratic = self.long > QUADRATIC * max(self.short, 1e-9)
        score = max(self.short, self.long)
        if is_quadratic:
            score = self.long * tokens / TABLE["lengths"][1]
        return score + levels * self.level

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Returns the cost of a policy's press: as it was measured, or the median of the presses of
        its kind."""
        if policy.name in PRESSES:
            return cls(*PRESSES[policy.name])
        is_private = policy.prefill == "private"
        costs: list[PressCost] = []
        for name in PRESSES:
            cost = PressCost(*PRESSES[name])
            if (cost.prefills > 0) == is_private:
                costs.append(cost)
        return cls(*map(median, zip(*costs, strict=True)))  # field by field


PRESSES: Mapping[str, Sequence[float]] = TABLE["presses"]  # by name, the fields of PressCost


@dataclass(frozen=True)
class StudyLoad:
    """The counts of what studies ask about a prompt: of its first question, and what forecasts
    count of it."""

    first_tokens: float  # of the first question
    first_gold: float  # tokens of its right answer
    is_text: bool  # nothing is asked: running text goes on
    longest: int = 0  # tokens of an answer that its task allows
    counts: Mapping[str, float] = field(default_factory=dict)  # by name (Forecast.counts)

    @classmethod
    def of(cls, prompts: "Sequence[Prompt]", longest: int, tables: Sequence[str]) -> Self:
        """Counts what studies ask about prompts, in the mean. ``longest``: tokens of an answer that
        the task allows; ``tables``: those that the studies fill."""
        tokens, gold_tokens = [], []
        for prompt in prompts:
            first = prompt.questions[0]
            tokens.append(len(first.token_ids))
            gold_tokens.append(len(first.gold_ids))
        counts: dict[str, float] = {}
        for forecast in forecasts(tables):
            if forecast.counts is not None:
                counts |= forecast.counts(prompts)
        return cls(
            first_tokens=mean(tokens),
            first_gold=mean(gold_tokens),
            is_text=not prompts[0].questions[0].question.golds,
            longest=longest,
            counts=counts,
        )


@dataclass(frozen=True)
class Load:
    """The counts of one task."""

    task: str
    contexts: int
    tokens: int  # of a context
    questions: float  # about a context
    question_tokens: float  # of a question
    # Of an answer: as long as the task allows, unless it ends with its sentence or line.
    answer_tokens: int
    gold_tokens: float  # of a right answer that are passed for its likelihood: all but the last
    # Each policy, and which share of a context each branch holds.
    branches: Sequence[tuple[Policy, Sequence[float]]]
    prompts: float = 1.0  # of a context: one, or in mode aware one for each question
    study: StudyLoad | None = None

    @property
    def answers(self) -> float:
        """Counts the answers of all contexts and branches."""
        return self.contexts * self.questions * self.branches_of_context

    @property
    def branches_of_context(self) -> int:
        return sum(len(shares) for _, shares in self.branches)

    @property
    def all_prompts(self) -> float:
        """Counts the prompts of all contexts."""
        return self.contexts * self.prompts


def count_load(
    grid: Grid,
    task: Task,
    contexts: int,
    tokens: int | None = None,
    *,
    tokenizer: "PreTrainedTokenizerBase",
) -> Load:
    """Reads a few contexts of a task with the model's tokenizer; ``tokens`` replaces the count of
    every context."""
    # Contexts of a file differ in length and in questions as those of a generator do not.
    contexts_read = min(contexts, task.most or CONTEXTS_READ, FILE_READ)
    prompts: list[Prompt] = []
    for index in range(contexts_read):
        example = grid.example(task, index)
        prompts += prompt_texts.build_prompts(tokenizer, task, example, grid.mode)
    question_tokens, gold_tokens = [], []
    for prompt in prompts:
        for question in prompt.questions:
            question_tokens.append(len(question.token_ids))
            gold_tokens.append(max(0, len(question.gold_ids) - 1))
    golds = mean(gold_tokens)
    # Where its sentence does not end an answer, a chat model writes on; the lines of a base model
    # end.
    ends_with_sentence = task.begins_answers and task.answer_end == "sentence"
    answer_tokens = task.max_new_tokens
    if ends_with_sentence or tokenizer.chat_template is None:
        answer_tokens = min(answer_tokens, round(golds) + BEHIND)
    tokens = tokens or round(mean(len(prompt.token_ids) for prompt in prompts))
    branches: list[tuple[Policy, list[float]]] = []
    for policy in grid.policies_on(task):
        shares = [_held_share(policy, point, tokens) for point in grid.points_for(policy)]
        branches.append((policy, shares))
    questions = len(question_tokens) / contexts_read
    prompts_of_context = 1.0
    if grid.mode == "aware":
        prompts_of_context = questions
    return Load(
        task=task.name,
        contexts=contexts,
        tokens=tokens,
        questions=questions,
        question_tokens=mean(question_tokens),
        answer_tokens=answer_tokens,
        gold_tokens=golds,
        branches=branches,
        prompts=prompts_of_context,
        study=StudyLoad.of(prompts, task.max_new_tokens, grid.tables),
    )


def _held_share(policy: Policy, point: Point, tokens: int) -> float:
    """Returns the share of a context of so many tokens that a branch holds."""
    if not policy.frees:  # a press that masks frees nothing
        return 1.0
    # Levels of bits or of a rate remove no tokens.
    removed = point.level.share(tokens) or 0.0
    return 1 - removed
