"""The grid of a run: tasks by policies by levels by repeats; and what identifies a run of it."""

import hashlib
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import kvbench
from datasets_gen import Example, Task
from kvbench.engine.time_limit import NumericsOptions, TimeLimit
from kvbench.experiments.catalogue import policies_for
from kvbench.handed.scorers import installed_scorers
from kvbench.prompts.mode import Mode, Scope
from kvbench.store.run_file import Identity, PolicyIdentity, TaskIdentity
from kvbench.store.tables import SCHEMA_VERSION
from kvbench.studies.registry import SCORES
from policies import LazyModule, Level, Point, Policy, by_kind, list_points
from policies.declaration.cells import find_code
from policies.declaration.policy import list_arguments

if TYPE_CHECKING:
    import torch

    from kvbench.models.load import LoadedModel

# They need torch, and options are checked before that is imported.
cuda = LazyModule("torch.cuda")
libraries = LazyModule("kvbench.models.libraries")
memory = LazyModule("kvbench.system.memory")
prompts = LazyModule("kvbench.prompts.prompt")

PACKAGES = ("torch", "transformers", "kvpress", "numpy")
ARGUMENTS_AT = 1024  # tokens: an argument may follow the length of the context


@dataclass(frozen=True)
class ModelFacts:
    """Holds what an identity says of a model, and of what computes its answers."""

    name: str
    fingerprint: str
    in_words: str
    device: str
    dtype: str
    packages: Mapping[str, str]
    contents: Mapping[str, str] = field(default_factory=dict)
    switches: Mapping[str, str] = field(default_factory=dict)
    date: str = ""  # that its chat template tells


@dataclass(frozen=True)
class Grid:
    """Declares all that a run answers, and how it treats and decodes every example."""

    tasks: Sequence[tuple[Task, int]]  # with the number of contexts of each
    policies: Sequence[Policy]
    points: Sequence[Point]  # the levels, and the draws of random policies at each
    seed: int = 0  # of the examples, and of random policies
    mode: Mode = "agnostic"
    held_out: bool = False  # contexts are written in the phrasings that training never shows
    # Of keys and values decoded at once; None for a share of what is free by then.
    max_kv_bytes: int | None = None
    time_limit: TimeLimit = field(default_factory=TimeLimit)  # of a press
    # What is compressed: the context of any task, or the system prompts of those with one.
    scope: Scope = "context"
    # Where its tables are among those filled.
    numerics: NumericsOptions = field(default_factory=NumericsOptions)
    # Of studies, which are filled beside those of every run (kvbench.store.tables).
    tables: tuple[str, ...] = ()
    # The questions of the contexts made so far, by task and index.
    counts: dict[tuple[str, int], int] = field(default_factory=dict, repr=False, compare=False)

    def shared_by(self, workers: int, device: "torch.device") -> Self:
        """Returns the same for each of several workers on a device: together they stay within the
        bound."""
        return replace(self, max_kv_bytes=self.kv_bound(device) // workers)

    def kv_bound(self, device: "torch.device") -> int:
        """Returns the bound in bytes, now."""
        if self.max_kv_bytes is None:
            return int(memory.kv_share(device))
        return self.max_kv_bytes

    @property
    def is_numerics(self) -> bool:
        """Tells whether a table of the study of numerics is filled."""
        return any(table.startswith("numerics") for table in self.tables)

    def identity(self, model: "LoadedModel") -> Identity:
        """Returns what identifies a run of the grid on a model, here and now."""
        facts = ModelFacts(
            name=model.name,
            fingerprint=model.fingerprint,
            in_words=model.in_words,
            packages=package_versions(model.device),
            contents=libraries.library_contents(model.packages),
            switches=libraries.switches(model.device),
            date=model.date,
            device=device_name(model.device),
            dtype=model.dtype_name,
        )
        sent: dict[str, str] = {}
        for task, _ in self.tasks:
            example = self.example(task, 0)
            sent[task.name] = prompts.prompt_as_sent(model.tokenizer, task, example, self.mode)
        return self.identify(facts, sent, model)

    def identify(
        self,
        facts: ModelFacts,
        sent: Mapping[str, str],
        model: "LoadedModel | None" = None,
        begun: str = "",
    ) -> Identity:
        """Returns what identifies a run of the grid on a model that is told by its facts.
        ``sent``: by task the first prompt. ``model``: for policies that load weights for it.
        ``begun``: as in the identity."""
        revision, dirty = git_state(Path(kvbench.__file__).parent)
        study_options: dict[str, Any] = {}
        if self.is_numerics:
            study_options = self.numerics.as_texts()
        if SCORES in self.tables:
            study_options[SCORES] = self._scorers()
        return Identity(
            schema_version=SCHEMA_VERSION,
            kvbench_version=kvbench.__version__,
            source=source_hash(),
            git_revision=revision,
            git_dirty=dirty,
            packages=dict(facts.packages),
            contents=dict(facts.contents),
            switches=dict(facts.switches),
            date=facts.date,
            begun=begun,
            model=facts.name,
            model_fingerprint=facts.fingerprint,
            model_in_words=facts.in_words,
            device=facts.device,
            dtype=facts.dtype,
            held_out=self.held_out,
            options=study_options,
            seed=self.seed,
            mode=self.mode,
            scope=self.scope,
            tables=self.tables,
            tasks=tuple(
                self._task(task, contexts, sent[task.name]) for task, contexts in self.tasks
            ),
            policies=tuple(self._policy(policy, model) for policy in self.policies),
        )

    def _scorers(self) -> str:
        """Names the scorers of installed packages, each with a hash of its code; those of a task are
        part of its version."""
        described = []
        for scorer in installed_scorers():
            code = find_code(scorer.judge, scorer.name)
            described.append(f"{scorer.name} {code.origin}".strip())
        return ", ".join(described)

    def _task(self, task: Task, contexts: int, prompt: str) -> TaskIdentity:
        return TaskIdentity(
            name=task.name,
            version=task.full_version,
            contexts=contexts,
            prompt=prompt,
            chance=task.chance,
            instruction=task.instruction,
            max_new_tokens=task.max_new_tokens,
            level=task.level,
            begins_answers=task.begins_answers,
        )

    def _policy(self, policy: Policy, model: "LoadedModel | None") -> PolicyIdentity:
        arguments, origin = arguments_and_origin(policy, model)
        repeats = 1
        for point in self.points_for(policy):
            repeats = max(repeats, 1 + point.repeat)
        tasks: list[str] = []
        for task, _ in self.tasks:
            if policies_for([policy], task, self.mode):
                tasks.append(task.name)
        return PolicyIdentity(
            name=policy.name,
            family=policy.family,
            paper=policy.paper,
            arguments=arguments,
            origin=origin,
            arguments_at_tokens=ARGUMENTS_AT,
            version=policy.version,
            levels=by_kind(policy.levels_among(self.points)),
            repeats=repeats,
            tasks=tuple(tasks),
        )

    def task(self, name: str) -> Task:
        return next(task for task, _ in self.tasks if task.name == name)

    def example(self, task: Task, index: int) -> Example:
        return task.example(self.seed, index, held_out=self.held_out)

    def donor(self, task: Task, example: Example) -> Example:
        """Returns the example whose rows a distractor puts into the cache: the next one, and the
        first after the last where contexts were given. It does not depend on how many contexts a
        run has."""
        following = example.index + 1
        if task.most is not None:
            following %= task.most
        return self.example(task, following)

    def questions(self, task: Task, index: int) -> int:
        """Counts the questions of an example, which is made once for that."""
        if (task.name, index) not in self.counts:
            self.counts[task.name, index] = len(self.example(task, index).questions)
        return self.counts[task.name, index]

    def policies_on(self, task: Task) -> list[Policy]:
        """Lists the policies that mean something on a task."""
        return policies_for(self.policies, task, self.mode)

    def points_for(self, policy: Policy) -> tuple[Point, ...]:
        """Lists the levels and draws at which a policy runs."""
        return policy.points_among(self.points)

    def cells(self, policies: Sequence[Policy]) -> int:
        """Counts the branches that are decoded for each question."""
        return sum(len(self.points_for(policy)) for policy in policies)

    def generations(self) -> int:
        """Counts the answers of the whole run."""
        generations = 0
        for task, contexts in self.tasks:
            cells = self.cells(self.policies_on(task))
            for index in range(contexts):
                generations += self.questions(task, index) * cells
        return generations


def planned_on(
    identity: Identity, task: str, policies: Mapping[str, Policy]
) -> tuple[list[Policy], tuple[Point, ...]]:
    """Returns those of some policies, by name, that a run has on a task, each at the levels that it
    had there, and all of these levels in all draws."""
    chosen: list[Policy] = []
    levels: dict[Level, None] = {}
    repeats = 1
    for planned in identity.policies:
        if task not in planned.tasks or planned.name not in policies:
            continue
        policy = policies[planned.name]
        if policy.kinds:
            levels_of_policy: list[Level] = []
            for kind, values in planned.levels.items():
                levels_of_policy += [Level(kind, value) for value in values]
            planned_levels = replace(policy.levels, only=tuple(levels_of_policy))
            policy = replace(policy, levels=planned_levels)
            levels |= dict.fromkeys(levels_of_policy)
        chosen.append(policy)
        repeats = max(repeats, planned.repeats)
    return chosen, list_points(levels, repeats)


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Returns the revision of the checkout that a folder lies in, and whether files were changed;
    None without git."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    # An installed package may lie in a virtual environment inside somebody else's checkout: that
    # revision is not ours.
    if git("ls-files", "--error-unmatch", str(Path(kvbench.__file__).resolve())) is None:
        return None, None
    changes = git("status", "--porcelain", "--untracked-files=no")
    revision = git("rev-parse", "HEAD")
    if changes is None:
        return revision, None
    return revision, bool(changes)


def arguments_and_origin(
    policy: Policy, model: "LoadedModel | None"
) -> tuple[dict[str, int | float | str], str]:
    """Builds a policy's press for a context of the usual length, and returns its arguments and its
    hash."""
    arguments: dict[str, int | float | str] = {}
    origin = policy.code.origin
    with suppress(Exception):  # a plug-in's, which each record tells of
        # An eighth of it stands for the question of presses that see one.
        situation = policy.typical_situation(ARGUMENTS_AT, ARGUMENTS_AT // 8)
        press = policy.build(situation)
        arguments = list_arguments(press) | policy.treatment.arguments_in(situation)
        same_press = policy.build(situation)
        origin = _hash_origin(policy, press, same_press, model)
    return arguments, origin


def _hash_origin(policy: Policy, press: Any, other: Any, model: "LoadedModel | None") -> str:
    """Hashes all that a policy's press rests on beside kvpress: the code of a plug-in, what other
    code put in place of its methods, and the weights that it has loaded; an empty text where there
    is none of it. Numbers that are not in the ``other`` press, built in the same way, were drawn at
    random."""
    parts: list[str] = []
    if policy.code.origin:
        parts.append(policy.code.origin)
    for name, code in libraries.replaced_methods(press).items():
        parts.append(f"{name} {code}")
    if policy.needs.weights and model is not None:
        press.post_init_from_model(model.network)
        other.post_init_from_model(model.network)
    state = libraries.hash_of_state(press)
    if state and state == libraries.hash_of_state(other):
        parts.append(state)
    if len(parts) > 1:
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return "".join(parts)


def device_name(device: "torch.device") -> str:
    """Names the kind of a device, but not how much memory it has. Two machines with the same name
    compute the same but for rounding: processors of one kind choose different kernels."""
    if device.type == "cuda":
        card = re.sub(r"[ -]?[0-9]+ ?GB", "", cuda.get_device_name(device))
        return f"cuda ({card})"
    return f"{device.type} ({platform.machine()})"


def package_versions(device: "torch.device") -> dict[str, str]:
    """Lists the versions of Python and of the packages that answers depend on."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        versions[name] = version(name)
    if device.type == "cuda":
        versions |= libraries.cuda_packages()
    return versions


ROOT = Path(__file__).parents[2]  # the folder that holds the four packages
SOURCES = (  # folders and files from whose code the values of a run's tables follow
    "datasets_gen/texts",
    "datasets_gen/examples",
    "datasets_gen/writing",
    "datasets_gen/tasks",
    "policies",
    "leaderboards/metrics",
    "leaderboards/routing",
    "kvbench/models",
    "kvbench/prompts",
    "kvbench/engine",
    "kvbench/experiments",
    "kvbench/handed",
    "kvbench/served",
    "kvbench/studies",
    *(f"kvbench/store/{name}.py" for name in ("scoring", "tables")),
)
FORECAST = "forecast.py"  # of a study: it says what rows cost, and makes none


def source_files(root: Path = ROOT) -> list[Path]:
    """Lists the files that results depend on, code and words, relative to the folder of the
    packages."""
    files: list[Path] = []
    for name in SOURCES:
        source = root / name
        for path in (source, *source.rglob("*")):
            if path.suffix in (".py", ".json") and path.name != FORECAST:
                files.append(path.relative_to(root))
    return sorted(files)


def source_hash(root: Path = ROOT) -> str:
    """Hashes the names and the contents of these files."""
    digest = hashlib.sha256()
    # By posix names, so that the hash is the same on every system.
    for path in source_files(root):
        digest.update(path.as_posix().encode())
        digest.update(hashlib.sha256((root / path).read_bytes()).digest())
    return digest.hexdigest()[:16]
