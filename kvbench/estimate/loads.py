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
from policies import LazyModule, Policy

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
    prefills: float = 0.0  # for each ratio, of a press with a prefill of its own

    def readings(self, tokens: int, levels: int) -> float:
        """Counts the readings of a context: to score it takes as many at any length, or as many as
        are in proportion to the length if the press looks at all pairs of tokens."""
        grows = self.long > QUADRATIC * max(self.short, 1e-9)
        score = self.long * tokens / TABLE["lengths"][1] if grows else max(self.short, self.long)
        return score + levels * self.level

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Returns the cost of a policy's press: as it was measured, or the median of the presses of
        its kind."""
        if policy.name in PRESSES:
            return cls(*PRESSES[policy.name])
        kind = [
            press for press in PRESSES.values() if (press[-1] > 0) == (policy.prefill == "private")
        ]
        return cls(*map(median, zip(*kind, strict=True)))


PRESSES: Mapping[str, Sequence[float]] = TABLE["presses"]


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
        firsts = [prompt.questions[0] for prompt in prompts]
        counts: dict[str, float] = {}
        for forecast in forecasts(tables):
            if forecast.counts is not None:
                counts |= forecast.counts(prompts)
        return cls(
            mean(len(question.token_ids) for question in firsts),
            mean(len(question.gold_ids) for question in firsts),
            not firsts[0].question.golds,
            longest,
            counts,
        )


@dataclass(frozen=True)
class Load:
    """The counts of one task."""

    task: str
    contexts: int
    tokens: int  # of a context
    questions: float  # about a context
    question_tokens: float  # of a question
    answer_tokens: (
        int  # of an answer: as long as the task allows, unless it ends with its sentence or line
    )
    gold_tokens: float  # of a right answer that are passed for its likelihood: all but the last
    # Each policy, and which share of a context each branch holds.
    branches: Sequence[tuple[Policy, Sequence[float]]]
    prompts: float = 1.0  # of a context: one, or in mode aware one for each question
    study: StudyLoad | None = None

    @property
    def answers(self) -> float:
        return self.contexts * self.questions * sum(len(shares) for _, shares in self.branches)


def load_of(
    grid: Grid,
    task: Task,
    contexts: int,
    tokens: int | None = None,
    *,
    tokenizer: "PreTrainedTokenizerBase",
) -> Load:
    """Reads a few contexts of a task with the model's tokenizer; ``tokens`` replaces the count of
    every context."""
    mode = grid.setting.mode
    # Contexts of a file differ in length and in questions as those of a generator do not.
    examples = [
        grid.example(task, index)
        for index in range(min(contexts, task.most or CONTEXTS_READ, FILE_READ))
    ]
    prompts = [
        prompt
        for example in examples
        for prompt in prompt_texts.build_prompts(tokenizer, task, example, mode)
    ]
    tokenized = [question for one in prompts for question in one.questions]
    golds = mean(max(0, len(question.gold_ids) - 1) for question in tokenized)
    # Where its sentence does not end an answer, a chat model writes on; the lines of a base model
    # end.
    ends_early = (
        task.begins_answers and task.answer_end == "sentence"
    ) or tokenizer.chat_template is None
    tokens = tokens or round(mean(len(prompt.token_ids) for prompt in prompts))
    branches = [  # a press that masks frees nothing
        (
            policy,
            [
                1 - (point.level.share(tokens) or 0.0) if policy.frees else 1.0
                for point in grid.points(policy)
            ],
        )
        for policy in grid.policies_on(task)
    ]
    questions = len(tokenized) / len(examples)
    return Load(
        task=task.name,
        contexts=contexts,
        tokens=tokens,
        questions=questions,
        question_tokens=mean(len(question.token_ids) for question in tokenized),
        answer_tokens=min(task.max_new_tokens, round(golds) + BEHIND)
        if ends_early
        else task.max_new_tokens,
        gold_tokens=golds,
        branches=branches,
        prompts=questions if mode == "aware" else 1.0,
        study=StudyLoad.of(prompts, task.max_new_tokens, grid.setting.tables),
    )
