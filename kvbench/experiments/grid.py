"""The grid of a run: tasks by policies by levels by repeats; and what identifies a run of it."""

import hashlib
import platform
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import kvbench
from datasets_gen import Example, Task
from kvbench.engine.time_limit import NumericsOptions, TimeLimit
from kvbench.experiments.catalogue import policies_for
from kvbench.prompts.mode import Mode, Scope
from kvbench.store.run_file import Identity, PolicyIdentity, TaskIdentity
from kvbench.store.tables import SCHEMA_VERSION
from policies import LazyModule, Point, Policy, by_kind, list_arguments

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
class Setting:
    """The options by which a run treats and decodes every example."""

    policies: Sequence[Policy]
    points: Sequence[Point]  # the levels, and the draws of random policies at each
    seed: int = 0  # of random policies
    mode: Mode = "agnostic"
    max_kv_bytes: int | None = (
        None  # of keys and values decoded at once; None for a share of what is free by then
    )
    time_limit: TimeLimit = field(default_factory=TimeLimit)  # of a press
    # What is compressed: the context of any task, or the system prompts of those with one.
    scope: Scope = "context"
    # Where its tables are among those filled.
    numerics: NumericsOptions = field(default_factory=NumericsOptions)
    # Of studies, which are filled beside those of every run (kvbench.store.tables).
    tables: tuple[str, ...] = ()

    def shared_by(self, workers: int, device: "torch.device") -> Self:
        """Returns the same for each of several workers on a device: together they stay within the
        bound."""
        return replace(self, max_kv_bytes=self.kv_bound(device) // workers)

    def kv_bound(self, device: "torch.device") -> int:
        """Returns the bound in bytes, now."""
        return int(memory.kv_share(device)) if self.max_kv_bytes is None else self.max_kv_bytes


@dataclass(frozen=True)
class Grid:
    """Declares all that a run answers."""

    tasks: Sequence[tuple[Task, int]]  # with the number of contexts of each
    setting: Setting  # its seed is that of the examples too
    held_out: bool = False  # contexts are written in the phrasings that training never shows
    # The questions of the contexts made so far, by task and index.
    counts: dict[tuple[str, int], int] = field(default_factory=dict, repr=False, compare=False)

    def identity(self, model: "LoadedModel") -> Identity:
        revision, dirty = git_state(Path(kvbench.__file__).parent)
        setting = self.setting
        return Identity(
            schema_version=SCHEMA_VERSION,
            kvbench_version=kvbench.__version__,
            source=source_hash(),
            git_revision=revision,
            git_dirty=dirty,
            packages=package_versions(model.device),
            contents=libraries.library_contents(model.packages),
            switches=libraries.switches(model.device),
            date=model.date,
            model=model.name,
            model_fingerprint=model.fingerprint,
            model_in_words=model.in_words,
            device=device_name(model.device),
            dtype=model.dtype_name,
            held_out=self.held_out,
            options=setting.numerics.as_texts()
            if any(table.startswith("numerics") for table in setting.tables)
            else {},
            **{name: getattr(setting, name) for name in ("seed", "mode", "scope", "tables")},
            tasks=tuple(self._task(task, contexts, model) for task, contexts in self.tasks),
            policies=tuple(self._policy(policy, model) for policy in setting.policies),
        )

    def _task(self, task: Task, contexts: int, model: "LoadedModel") -> TaskIdentity:
        prompt = prompts.prompt_as_sent(
            model.tokenizer, task, self.example(task, 0), self.setting.mode
        )
        same = ("name", "chance", "instruction", "max_new_tokens", "level", "begins_answers")
        fields = {name: getattr(task, name) for name in same}
        return TaskIdentity(version=task.full_version, contexts=contexts, prompt=prompt, **fields)

    def _policy(self, policy: Policy, model: "LoadedModel") -> PolicyIdentity:
        arguments, origin = arguments_and_origin(policy, model)
        return PolicyIdentity(
            name=policy.name,
            family=policy.family,
            paper=policy.paper,
            arguments=arguments,
            origin=origin,
            arguments_at_tokens=ARGUMENTS_AT,
            levels=by_kind(policy.levels_among(self.setting.points)),
            repeats=1 + max((point.repeat for point in self.points(policy)), default=0),
            tasks=tuple(
                task.name
                for task, _ in self.tasks
                if policies_for([policy], task, self.setting.mode)
            ),
        )

    def task(self, name: str) -> Task:
        return next(task for task, _ in self.tasks if task.name == name)

    def example(self, task: Task, index: int) -> Example:
        return task.example(self.setting.seed, index, held_out=self.held_out)

    def donor(self, task: Task, example: Example) -> Example:
        """Returns the example whose rows a distractor puts into the cache: the next one, and the
        first after the last where contexts were given. It does not depend on how many contexts a
        run has."""
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
        return sum(
            self.questions(task, index) * self.cells(self.policies_on(task))
            for task, contexts in self.tasks
            for index in range(contexts)
        )


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
    return git("rev-parse", "HEAD"), None if changes is None else bool(changes)


def arguments_and_origin(
    policy: Policy, model: "LoadedModel"
) -> tuple[dict[str, int | float | str], str]:
    """Builds a policy's press for a context of the usual length, and returns its arguments and its
    hash."""
    arguments, origin = dict[str, int | float | str](), policy.origin
    with suppress(Exception):  # a plug-in's, which each record tells of
        situation = policy.typical_situation(ARGUMENTS_AT, ARGUMENTS_AT // 8)
        press = policy.build(situation)
        arguments = list_arguments(press) | policy.arguments_in(situation)
        origin = _origin_of(policy, press, policy.build(situation), model)
    return arguments, origin


def _origin_of(policy: Policy, press: Any, other: Any, model: "LoadedModel") -> str:
    """Hashes all that a policy's press rests on beside kvpress: the code of a plug-in, what other
    code put in place of its methods, and the weights that it has loaded; an empty text where there
    is none of it. Numbers that are not in the ``other`` press, built in the same way, were drawn at
    random."""
    parts = [
        policy.origin,
        *(f"{name} {code}" for name, code in libraries.replaced_methods(press).items()),
    ]
    if policy.weights:
        for one in (press, other):
            one.post_init_from_model(model.network)
    state = libraries.hash_of_state(press)
    if state and state == libraries.hash_of_state(other):
        parts.append(state)
    parts = [part for part in parts if part]
    return (
        hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16] if parts[1:] else "".join(parts)
    )


def device_name(device: "torch.device") -> str:
    """Names the kind of a device, but not how much memory it has; two machines with the same name
    compute the same."""
    if device.type == "cuda":
        return f"cuda ({re.sub(r'[ -]?[0-9]+ ?GB', '', cuda.get_device_name(device))})"
    return f"{device.type} ({platform.machine()})"


def package_versions(device: "torch.device") -> dict[str, str]:
    """Lists the versions of Python and of the packages that answers depend on."""
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    return versions | (libraries.cuda_packages() if device.type == "cuda" else {})


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
    *(
        f"kvbench/store/{name}.py"
        for name in ("groups", "interventions", "numerics", "observed", "scoring", "tables")
    ),
)


def source_files(root: Path = ROOT) -> list[Path]:
    """Lists the files that results depend on, code and words, relative to the folder of the
    packages."""
    paths = [path for name in SOURCES for path in (root / name, *(root / name).rglob("*"))]
    return sorted(path.relative_to(root) for path in paths if path.suffix in (".py", ".json"))


def source_hash(root: Path = ROOT) -> str:
    digest = hashlib.sha256()
    for path in source_files(root):
        digest.update(path.as_posix().encode())
        digest.update(hashlib.sha256((root / path).read_bytes()).digest())
    return digest.hexdigest()[:16]
