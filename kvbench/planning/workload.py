"""What is to be run, as counts: contexts, their tokens and questions, and what each policy is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from datasets_gen import Task
from kvbench.catalogue import covers
from kvbench.engine.treatment import levels_of, ratio_for
from kvbench.grid import Grid
from kvbench.models import load_tokenizer
from kvbench.portions import chunks
from kvbench.prompt import build_prompts
from policies import Policy

LOOKED_AT = 3  # contexts of each task, for their tokens and questions


@dataclass(frozen=True)
class TaskLoad:
    """``tokens`` of a context, ``questions`` of it with so many ``question_tokens`` each, and ``answer_tokens``."""

    name: str
    contexts: int
    units: int
    tokens: int
    questions: float
    question_tokens: float
    answer_tokens: int
    policies: tuple[Policy, ...]


@dataclass(frozen=True)
class Workload:
    tasks: tuple[TaskLoad, ...]
    ratios: tuple[float, ...]
    budgets: tuple[int, ...]

    def kept(self, policy: Policy, tokens: int) -> list[float]:
        """The share of a context that each branch of a policy holds; a press that masks holds all."""
        asked = levels_of(policy, self.ratios, self.budgets)
        return [1 - ratio_for(each, tokens) if policy.frees else 1.0 for each in asked]

    @property
    def answers(self) -> float:
        return sum(
            load.contexts * load.questions * len(self.kept(policy, load.tokens))
            for load in self.tasks
            for policy in load.policies
        )


def workload_of(grid: Grid, tokens: int | None, questions: float | None) -> Workload:
    """The counts of a grid; a few contexts are made for that, in the tokens of the model ``reference``. ``tokens`` and
    ``questions`` stand for those of every context where they are given."""
    loads = tuple(_load(grid, task, contexts, tokens, questions) for task, contexts in grid.tasks)
    return Workload(loads, tuple(grid.setting.ratios), tuple(grid.setting.budgets))


def _load(grid: Grid, task: Task, contexts: int, tokens: int | None, questions: float | None) -> TaskLoad:
    examples = [grid.example(task, index) for index in range(min(contexts, LOOKED_AT))]
    tokenizer = load_tokenizer("reference")
    prompts = [build_prompts(tokenizer, task, example, grid.setting.mode) for example in examples]
    asked: Sequence[int] = [len(ask.token_ids) for own in prompts for prompt in own for ask in prompt.asks]
    return TaskLoad(
        task.name,
        contexts,
        len(chunks(contexts)),
        tokens or round(mean(len(prompt.token_ids) for own in prompts for prompt in own)),
        questions or len(asked) / len(examples),
        mean(asked),
        task.max_new_tokens,
        tuple(policy for policy in grid.setting.policies if covers(policy, task, grid.setting.mode)),
    )
