"""``run.json``: the identity of a run, the options that made it, and how far it has come."""

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.functional_validators import AfterValidator
from pydantic.types import StringConstraints

from datasets_gen.tasks.ifeval import Placement
from kvbench.engine.time_limit import CELL_SECONDS
from kvbench.prompts.mode import Mode, Scope
from kvbench.store.differences import describe
from kvbench.store.tables import SCHEMA_VERSION
from kvbench.system.console import is_visible
from kvbench.system.errors import KVBenchError, fault_of_fields
from leaderboards.statistics.safe_ratio import TOLERATED_LOSS
from policies import FIRST_VERSION, LEVEL_KINDS, Level, Point, by_kind, list_points

MOST_REPEATS = 1000
MOST_TOKENS = 10_000_000
MOST_CONTEXTS = 1_000_000
# Fields that do not make another run: code, model and libraries are told by their contents.
PROVENANCE = ("git_revision", "git_dirty", "kvbench_version", "model_in_words")


def _only_visible(name: str) -> str:
    for letter in name:
        if not is_visible(letter):
            code = f"U+{ord(letter):04X}"
            raise ValueError(f"{code}, which cannot be seen, stands in '{name}'")
    return name


# Two names that look alike would be taken for one, and a character for direction turns round what
# stands beside it.
Name = Annotated[str, StringConstraints(max_length=1000), AfterValidator(_only_visible)]


# Fields of a policy by which its answers follow, beside its levels.
ANSWERING = ("name", "version", "arguments", "origin", "arguments_at_tokens")


class TaskIdentity(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    version: Name  # of the generator, its variant and its words
    contexts: Annotated[int, Field(ge=0, le=MOST_CONTEXTS)]
    chance: Annotated[float, Field(ge=0, le=100)]  # percent right, of who guesses without the text
    instruction: Annotated[str, StringConstraints(max_length=10_000)]
    max_new_tokens: Annotated[int, Field(ge=1, lt=MOST_TOKENS)]
    level: Name = ""  # of difficulty, such as "3 of 5", where it is not the highest
    begins_answers: bool = False  # answers go on from the answer prefixes of the questions
    # The first one as it was sent, its context shortened; known once the model is loaded.
    prompt: str = ""

    def asks_like(self, other: "TaskIdentity") -> bool:
        """Tells whether both ask the same questions in the same way, whatever the number of their
        contexts."""
        return self.model_copy(update={"contexts": other.contexts}) == other


class PolicyIdentity(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    family: Name
    paper: Name
    # Of the press for a context of so many tokens; a record holds its own.
    arguments: dict[str, int | float | str]
    # Hash of the code of a plug-in, of what replaced a method of its press, and of weights that it
    # loads.
    origin: str
    arguments_at_tokens: int
    version: Name = FIRST_VERSION
    levels: dict[str, tuple[FiniteFloat, ...]]  # values by kind of level
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS)]  # draws at each level
    tasks: tuple[str, ...]  # the tasks that it covers

    @field_validator("levels")
    @classmethod
    def _known_kinds(cls, levels: dict[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
        if unknown := sorted(set(levels) - set(LEVEL_KINDS)):
            raise ValueError(f"'{unknown[0]}' is no kind of level")
        return levels

    @property
    def points(self) -> tuple[Point, ...]:
        """Returns the levels and draws at which it is to be run."""
        levels: list[Level] = []
        for kind, values in self.levels.items():
            levels += (Level(kind, value) for value in values)
        return list_points(levels, self.repeats)

    def treats_like(self, other: "PolicyIdentity") -> bool:
        """Tells whether both treat a cache alike, whatever the levels, draws and tasks that each
        was run on."""
        coverage = {"levels": other.levels, "repeats": other.repeats, "tasks": other.tasks}
        return self.model_copy(update=coverage) == other

    def answers_like(self, other: "PolicyIdentity") -> bool:
        """Tells whether both give the same answers, whatever their family and paper, which are
        words."""
        return all(getattr(self, name) == getattr(other, name) for name in ANSWERING)

    def joined_with(self, other: "PolicyIdentity") -> "PolicyIdentity":
        """Returns this policy with the levels, draws and tasks of both."""
        joined = {
            "levels": by_kind(point.level for point in (*self.points, *other.points)),
            "repeats": max(self.repeats, other.repeats),
            "tasks": tuple(dict.fromkeys((*self.tasks, *other.tasks))),
        }
        return self.model_copy(update=joined)


ANSWER_SETTING = {"model_fingerprint", "mode", "scope", "seed", "dtype", "date", "held_out"}


class Identity(BaseModel):
    """Identifies a run: two runs with equal identities write the same records, times aside.

    :data:`PROVENANCE` stands beside the rest and decides nothing: a revision says too little, as
    two edited checkouts are equally "dirty", and too much, as a README belongs to it. Nor does the
    order of tasks, policies and tables, nor the name of a model, whose files have a fingerprint.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int
    kvbench_version: str
    source: str  # hash of the code that makes records
    git_revision: str | None
    git_dirty: bool | None
    packages: dict[str, str]  # versions by name
    # Hashes of the code of these, and of functions that other code put into them.
    contents: dict[str, str] = {}
    switches: dict[str, str] = {}  # variables and settings that choose how numbers are computed
    date: str = ""  # the day that the chat template tells, if it tells one
    # When a run began whose answers another run with the same identity need not give: it is another
    # run each time. Empty where they would be the same.
    begun: str = ""
    model: Name
    model_fingerprint: Name
    model_in_words: str = ""  # such as "a model of 5.1 million parameters without a chat template"
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
    def _each_once(cls, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        if len({entry.name for entry in entries}) < len(entries):
            raise ValueError("a name is there twice")
        return entries

    @property
    def decisive(self) -> dict[str, Any]:
        """Returns as plain data what makes a run another one, tasks and policies by name."""
        plain = self.model_dump(mode="json", exclude={"model", *PROVENANCE})
        plain["tables"] = sorted(plain["tables"])
        for entry in plain["policies"]:
            entry["tasks"] = sorted(entry["tasks"])
        for kind in ("tasks", "policies"):
            entries = sorted(plain[kind], key=lambda entry: entry["name"])
            plain[kind] = {entry["name"]: entry for entry in entries}
        return plain

    def short_hash(self) -> str:
        """Returns eight letters that name the run."""
        return hashlib.sha256(json.dumps(self.decisive, sort_keys=True).encode()).hexdigest()[:8]

    def differences(self, other: "Identity") -> list[str]:
        """Names the fields that make the other another run."""
        ours, theirs = self.decisive, other.decisive
        return [name for name in ours if ours[name] != theirs[name]]

    def described_against(self, stored: "Identity") -> str:
        """Says in which fields it differs from a stored run, with the values of both."""
        fresh, before = self.decisive, stored.decisive
        if self.model_fingerprint != stored.model_fingerprint and self.model != stored.model:
            fresh, before = {"model": self.model, **fresh}, {"model": stored.model, **before}
        return describe(before, fresh)

    def has_answers_for(self, other: "Identity") -> bool:
        """Tells whether both give the same answers where they share a task and a policy."""
        return not set(self.differences(other)) - {"tasks", "policies"}

    @property
    def prompts(self) -> dict[str, str]:
        """Returns by task the first prompt as it was sent."""
        return {task.name: task.prompt for task in self.tasks if task.prompt}

    @property
    def answer_setting(self) -> dict[str, Any]:
        """Returns as plain data what answers follow from beside tasks and policies. Not the hash of
        the code: who changes what a task asks or a policy does raises its version."""
        plain = self.model_dump(mode="json", include=ANSWER_SETTING)
        plain["kvpress"] = self.packages.get("kvpress", "")
        return plain

    @property
    def setting(self) -> dict[str, Any]:
        """Returns model, code, seed, mode and more as plain data: all but tasks and policies."""
        return self.model_dump(mode="json", exclude={"tasks", "policies", *PROVENANCE})

    def task(self, name: str) -> TaskIdentity | None:
        return next((task for task in self.tasks if task.name == name), None)

    def policy(self, name: str) -> PolicyIdentity | None:
        return next((policy for policy in self.policies if policy.name == name), None)


RUN_FILE = "run.json"
EVERY_TASK = "all"  # a word of --tasks, whose options are for each task that takes them
# Options of a run that stand behind its tasks now, with their names there.
FORMER_OPTIONS = {
    "data": "data",
    "defence": "defence",
    "essays": "essays",
    "depth": "depth",
    "answer_prefix": "prefix",
}


class TaskOptions(BaseModel):
    """The options that stand in brackets behind a word of ``--tasks``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: Path | None = None  # rows of ifeval or gsm8k, or a text for prose
    defence: Placement | None = None  # where a defence stands in the system prompts of ifeval
    essays: Path | None = None  # the prose that RULER's needles are hidden in
    depth: FiniteFloat | None = None  # position of the facts, 0 (start) to 1 (end)
    # "auto", "on", "off", or the text that begins the answers to questions from a file.
    prefix: str | None = None
    limit: int | None = None  # contexts of this task, in place of --limit
    questions: int | None = None  # of each context at most


class Job(BaseModel):
    """The options of ``run`` or ``compare`` that decide on records, as they were given; defaults
    are the commands'."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = "reference"
    device: str = "auto"
    dtype: str = "auto"
    device_map: Literal["auto"] | None = None
    suite: str | None = None
    tasks: str | None = None
    press: str | None = None  # of ``compare``; ``run`` has none, and controls beside its policies
    policies: str | None = None  # of ``compare``: the others
    # Beside the policies of a ``run``; the full cache always is, and ``claims`` needs no other.
    controls: bool = True
    levels: dict[str, str] = {}  # the text of each kind's option
    repeats: int | None = None  # 1, or what the suite has
    profile: str = "quick"
    limit: int | None = None
    phrasings: Literal["common", "held-out"] = "common"
    # "usual": as each task has in a run; None: its own length.
    context_tokens: int | Literal["usual"] | None = None
    task_options: dict[str, TaskOptions] = {}  # by word of ``tasks``, or EVERY_TASK
    max_new_tokens: int | None = None
    # A level for all tasks, or task=level,task=level; None: the highest of each.
    difficulty: str | None = None
    dtypes: str | None = None  # of the study of numerics
    sampling: str | None = None  # likewise
    deterministic: bool | None = None  # likewise; None: as the suite has it
    directions: str | None = None  # likewise
    seed: int = 0
    mode: Mode = "agnostic"
    compress: Scope | None = None
    observe: str | None = None  # tables, beside those of the suite
    cell_seconds: float = CELL_SECONDS
    max_kv_gb: float | None = None
    # Points of loss below which a level is safe; None: as boards have it.
    tolerance: float | None = None
    date: str | None = None  # that a chat template is told; None: that of a run beside it, or today

    @model_validator(mode="before")
    @classmethod
    def _without_removed_options(cls, options: Any) -> Any:
        """Leaves out options that runs once took, and puts those behind the tasks that stand there
        now, so that an earlier run.json is read and not called damaged."""
        if not options:
            return options
        removed = ("keep_attention", *FORMER_OPTIONS)
        kept = {name: value for name, value in options.items() if name not in removed}
        former: dict[str, Any] = {}
        for name, name_now in FORMER_OPTIONS.items():
            value = options.get(name)
            if value is not None and (name, value) != ("answer_prefix", "auto"):
                former[name_now] = value
        if former:
            kept["task_options"] = {EVERY_TASK: former, **kept.get("task_options", {})}
        return kept

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Takes the options of a command that are a job's; the others do not decide what a run
        records."""
        fields = cls.model_fields
        return cls.model_validate({name: options[name] for name in options if name in fields})


class RunFile(BaseModel):
    """The content of ``run.json``. Reading it needs neither torch nor the run's model."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int
    status: Literal["started", "complete", "failed"]
    reason: str | None = None  # why it failed
    created: str
    finished: str | None = None
    command: str  # as it was typed
    job: Job | None = None  # none where Python code made the run
    # Of a packed run: of so many contexts one has which tokens survive, and the answers' tokens.
    examples_of: Annotated[int, Field(ge=1)] | None = None
    identity: Identity


def choose_tolerance(jobs: Iterable[Job | None], tolerance: float | None = None) -> float:
    """Returns the points of loss below which a level is safe: those that are given, or the lowest
    of some jobs."""
    if tolerance is not None:
        return tolerance
    options = [job.tolerance for job in jobs if job is not None]
    return min((points for points in options if points is not None), default=TOLERATED_LOSS)


class _VersionOnly(BaseModel):
    schema_version: int


def read_run_file(folder: Path) -> RunFile:
    """Reads the ``run.json`` of a folder; raises :class:`KVBenchError` where there is none, or one
    of another schema."""
    path = folder / RUN_FILE
    if not path.is_file():
        if folder.exists():
            missing = f"{RUN_FILE} is missing"
        else:
            missing = "there is no such folder"
        raise KVBenchError(f"{folder} holds no run: {missing} ({_hint(folder)})")
    content = path.read_bytes()
    try:
        version = _VersionOnly.model_validate_json(content).schema_version
        if version == SCHEMA_VERSION:  # another has other fields
            return RunFile.model_validate_json(content)
    except ValidationError as error:
        advice = "restore it, or delete the folder and run again"
        raise KVBenchError(f"{path} is damaged ({fault_of_fields(error)}): {advice}") from error
    schemas = f"record schema {version}; this one reads {SCHEMA_VERSION}"
    advice = "run it again, or read it with the version that wrote it"
    raise KVBenchError(f"{path} was written by kvbench with {schemas}: {advice}")


def _hint(folder: Path) -> str:
    """Says where a run may be that a folder is not."""
    runs = {}
    for file in folder.parent.glob(f"*/{RUN_FILE}"):
        runs[file.parent.name] = file.parent
    near = difflib.get_close_matches(folder.name, runs, n=1)
    if near:
        return f"did you mean {runs[near[0]]}?"
    return "runs are made by python -m kvbench run"
