"""The grid of a run: tasks by policies by levels by repeats."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from datasets_gen import Example, Task
from kvbench.experiments.catalogue import policies_for
from kvbench.experiments.setting import Setting
from kvbench.store.identity import Identity
from policies import LazyModule, Point, Policy

if TYPE_CHECKING:
    from kvbench.models.load import LoadedModel

identification = LazyModule("kvbench.experiments.identify")  # it needs torch, and options are checked before that


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
