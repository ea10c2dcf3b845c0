"""The identity of a run: what decides which records it writes, as ``run.json`` holds it."""

import hashlib
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints, field_validator

from kvbench.prompts.mode import Mode, Scope
from kvbench.system.console import is_visible
from policies import KINDS, Level, Point, by_kind, points_of

MOST_REPEATS = 1000
MOST_TOKENS = 10_000_000
MOST_CONTEXTS = 1_000_000
PROVENANCE = ("git_revision", "git_dirty")  # fields that do not make another run


def _only_visible(name: str) -> str:
    if hidden := next((letter for letter in name if not is_visible(letter)), None):
        raise ValueError(f"U+{ord(hidden):04X}, which cannot be seen, stands in '{name}'")
    return name


# Two names that look alike would be taken for one, and a character for direction turns round what stands beside it.
Name = Annotated[str, StringConstraints(max_length=1000), AfterValidator(_only_visible)]


class TaskIdentity(BaseModel):
    """Identifies a task of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    version: Name  # of the generator, its variant and its words
    contexts: Annotated[int, Field(ge=0, le=MOST_CONTEXTS)]
    chance: Annotated[float, Field(ge=0, le=100)]  # percent right, of who guesses without the text
    instruction: Annotated[str, StringConstraints(max_length=10_000)]
    max_new_tokens: Annotated[int, Field(ge=1, lt=MOST_TOKENS)]
    level: Name = ""  # of difficulty, such as "3 of 5", where it is not the highest
    begins_answers: bool = False  # answers go on from the answer prefixes of the questions
    prompt: str = ""  # the first one as it was sent, its context shortened; known once the model is loaded

    def makes_the_contexts_of(self, other: "TaskIdentity") -> bool:
        """Tells whether the first contexts of both are the same, however many each has."""
        return self.model_copy(update={"contexts": other.contexts}) == other


class PolicyIdentity(BaseModel):
    """Identifies a policy of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    family: Name
    paper: Name
    arguments: dict[str, int | float | str]  # of the press for a context of so many tokens; a record holds its own
    origin: str  # hash of the code of a plug-in
    arguments_at_tokens: int
    levels: dict[str, tuple[FiniteFloat, ...]]  # values by kind of level
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS)]  # draws at each level
    tasks: tuple[str, ...]  # the tasks that it covers

    @field_validator("levels")
    @classmethod
    def _known_kinds(cls, levels: dict[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
        if unknown := sorted(set(levels) - set(KINDS)):
            raise ValueError(f"'{unknown[0]}' is no kind of level")
        return levels

    @property
    def points(self) -> tuple[Point, ...]:
        """Returns the levels and draws at which it is to be run."""
        return points_of((Level(kind, value) for kind, values in self.levels.items() for value in values), self.repeats)

    def treats_like(self, other: "PolicyIdentity") -> bool:
        """Tells whether both treat a cache alike, whatever the levels, draws and tasks that each was run on."""
        return self._with_coverage(other.levels, other.repeats, other.tasks) == other

    def joined_with(self, other: "PolicyIdentity") -> "PolicyIdentity":
        """Returns this policy with the levels, draws and tasks of both."""
        levels = by_kind(point.level for point in (*self.points, *other.points))
        tasks = tuple(dict.fromkeys((*self.tasks, *other.tasks)))
        return self._with_coverage(levels, max(self.repeats, other.repeats), tasks)

    def _with_coverage(
        self, levels: dict[str, tuple[float, ...]], repeats: int, tasks: tuple[str, ...]
    ) -> "PolicyIdentity":
        return self.model_copy(update={"levels": levels, "repeats": repeats, "tasks": tasks})


Entry = TaskIdentity | PolicyIdentity


class Identity(BaseModel):
    """Identifies a run: two runs with equal identities write the same records, times aside.

    :data:`PROVENANCE` stands beside the rest and decides nothing: a revision says too little, as two edited checkouts
    are equally "dirty", and too much, as a README belongs to it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int
    kvbench_version: str
    source: str  # hash of the code that makes records
    git_revision: str | None
    git_dirty: bool | None
    packages: dict[str, str]  # versions by name
    model: Name
    model_fingerprint: Name
    device: str
    dtype: str
    seed: int
    mode: Mode
    scope: Scope
    held_out: bool  # the contexts are written in phrasings that training never shows
    tables: tuple[str, ...]  # of studies, which the run fills
    options: dict[str, str] = {}  # of these tables, as texts
    tasks: tuple[TaskIdentity, ...]
    policies: tuple[PolicyIdentity, ...]

    @field_validator("tasks", "policies")
    @classmethod
    def _each_once(cls, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        if len({entry.name for entry in entries}) < len(entries):
            raise ValueError("a name is there twice")
        return entries

    def short_hash(self) -> str:
        """Returns eight letters that name the run."""
        return hashlib.sha256(self.model_dump_json(exclude=set(PROVENANCE)).encode()).hexdigest()[:8]

    def differences(self, other: "Identity") -> list[str]:
        """Names the fields that make the other another run."""
        names = (name for name in type(self).model_fields if name not in PROVENANCE)
        return [name for name in names if getattr(self, name) != getattr(other, name)]

    @property
    def prompts(self) -> dict[str, str]:
        """Returns by task the first prompt as it was sent."""
        return {task.name: task.prompt for task in self.tasks if task.prompt}

    @property
    def setting(self) -> dict[str, Any]:
        """Returns model, code, seed, mode and more as plain data: all but tasks and policies."""
        return self.model_dump(mode="json", exclude={"tasks", "policies", *PROVENANCE})

    def task(self, name: str) -> TaskIdentity | None:
        """Finds a task of the run by its name."""
        return next((task for task in self.tasks if task.name == name), None)

    def policy(self, name: str) -> PolicyIdentity | None:
        """Finds a policy of the run by its name."""
        return next((policy for policy in self.policies if policy.name == name), None)
