"""The grid of a run: tasks by policies by levels by repeats."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from datasets_gen import Example, Task
from kvbench.experiments.catalogue import policies_for
from kvbench.experiments.setting import Setting
from kvbench.store.identity import Identity, TaskIdentity
from policies import LazyModule, Point, Policy, by_kind

if TYPE_CHECKING:
    from kvbench.models.load import LoadedModel

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
