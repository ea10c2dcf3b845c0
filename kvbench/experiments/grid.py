"""The grid of a run: tasks by policies by levels by repeats."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from datasets_gen import Example, Task
from kvbench.engine.options import NumericsOptions, TimeLimit
from kvbench.experiments.catalogue import policies_for
from kvbench.prompts.mode import Mode, Scope
from kvbench.store.run_file import Identity, TaskIdentity
from policies import LazyModule, Point, Policy, by_kind

if TYPE_CHECKING:
    import torch

    from kvbench.models.load import LoadedModel

memory = LazyModule("kvbench.system.memory")  # it needs torch, and options are checked before that is imported


@dataclass(frozen=True)
class Setting:
    """The options by which a run treats and decodes every example."""

    policies: Sequence[Policy]
    points: Sequence[Point]  # the levels, and the draws of random policies at each
    seed: int = 0  # of random policies
    mode: Mode = "agnostic"
    max_kv_bytes: int | None = None  # of keys and values decoded at once; None for a share of what is free by then
    time_limit: TimeLimit = field(default_factory=TimeLimit)  # of a press
    scope: Scope = "context"  # what is compressed: the context of any task, or the system prompts of those with one
    numerics: NumericsOptions = field(default_factory=NumericsOptions)  # where its tables are among those filled
    tables: tuple[str, ...] = ()  # of studies, which are filled beside those of every run (kvbench.store.tables)

    @property
    def options_of_tables(self) -> dict[str, str]:
        """Returns the options that decide what its tables hold, as texts."""
        return self.numerics.as_texts() if any(name.startswith("numerics") for name in self.tables) else {}

    def only(self, policies: Sequence[Policy]) -> Self:
        """Returns the same with other policies."""
        return replace(self, policies=policies)

    def shared_by(self, workers: int, device: "torch.device") -> Self:
        """Returns the same for each of several workers on a device: together they stay within the bound."""
        return replace(self, max_kv_bytes=self.kv_bound(device) // workers)

    def kv_bound(self, device: "torch.device") -> int:
        """Returns the bound in bytes, now."""
        share: int = memory.kv_share(device) if self.max_kv_bytes is None else self.max_kv_bytes
        return share


identification = LazyModule("kvbench.experiments.identify")  # it needs torch, and options are checked before that


def task_identity(task: Task, contexts: int, prompt: str) -> TaskIdentity:
    """Identifies a task of a run by all that its answers depend on."""
    return TaskIdentity(
        name=task.name,
        version=task.full_version,
        contexts=contexts,
        chance=task.chance,
        instruction=task.instruction,
        max_new_tokens=task.max_new_tokens,
        level=task.level,
        begins_answers=task.begins_answers,
        prompt=prompt,
    )


@dataclass(frozen=True)
class Grid:
    """Declares all that a run answers."""

    tasks: Sequence[tuple[Task, int]]  # with the number of contexts of each
    setting: Setting  # its seed is that of the examples too
    held_out: bool = False  # contexts are written in the phrasings that training never shows
    # The questions of the contexts made so far, by task and index.
    counts: dict[tuple[str, int], int] = field(default_factory=dict, repr=False, compare=False)

    def identity(self, model: "LoadedModel") -> Identity:
        identity: Identity = identification.identify(model, self.tasks, self.setting, self.held_out)
        return identity

    def without_model(self, stored: Identity, model: str) -> Identity:
        """Returns the identity of this grid on a model of that name as far as it is known before anything is loaded;
        what is not is that of a stored run."""
        covered = {policy.name: by_kind(policy.levels_among(self.setting.points)) for policy in self.setting.policies}
        alike = covered == {policy.name: policy.levels for policy in stored.policies}
        setting = {name: getattr(self.setting, name) for name in ("seed", "mode", "scope", "tables")}
        return stored.model_copy(
            update={
                **setting,
                "model": model,
                "held_out": self.held_out,
                "tasks": tuple(
                    task_identity(task, contexts, stored.prompts.get(task.name, "")) for task, contexts in self.tasks
                ),
                "policies": stored.policies if alike else (),
            }
        )

    def task(self, name: str) -> Task:
        return next(task for task, _ in self.tasks if task.name == name)

    def example(self, task: Task, index: int) -> Example:
        return task.example(self.setting.seed, index, held_out=self.held_out)

    def donor(self, task: Task, example: Example) -> Example:
        """Returns the example whose rows a distractor puts into the cache: the next one, and the first after the last
        where contexts were given. It does not depend on how many contexts a run has."""
        following = example.index + 1
        return self.example(task, following if task.most is None else following % task.most)

    def questions(self, task: Task, index: int) -> int:
        """Counts the questions of an example, which is made once for that."""
        if (task.name, index) not in self.counts:
            self.counts[task.name, index] = len(self.example(task, index).questions)
        return self.counts[task.name, index]

    def policies_on(self, task: Task) -> list[Policy]:
        return policies_for(self.setting.policies, task, self.setting.mode)

    def points(self, policy: Policy) -> tuple[Point, ...]:
        """Lists the levels and draws at which a policy runs."""
        return policy.points_among(self.setting.points)

    def cells(self, policies: Sequence[Policy]) -> int:
        """Counts the branches that are decoded for each question."""
        return sum(len(self.points(policy)) for policy in policies)

    def generations(self) -> int:
        """Counts all answers."""
        return sum(
            self.questions(task, index) * self.cells(self.policies_on(task))
            for task, contexts in self.tasks
            for index in range(contexts)
        )
