"""Fills the identity of a run: versions, model, seeds, tasks and policies with their arguments."""

import hashlib
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch

import kvbench
from datasets_gen import Task
from kvbench.experiments.catalogue import covers
from kvbench.experiments.grid import Setting, task_identity
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import prompt_as_sent
from kvbench.store.run_file import Identity, PolicyIdentity
from kvbench.store.tables import SCHEMA_VERSION
from policies import Policy, arguments_of, by_kind

PACKAGES = ("torch", "transformers", "kvpress", "numpy")
ARGUMENTS_AT = 1024  # tokens: an argument may follow the length of the context


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Returns the revision of the checkout that a folder lies in, and whether files were changed; None without git."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    # An installed package may lie in a virtual environment inside somebody else's checkout: that revision is not ours.
    if git("ls-files", "--error-unmatch", str(Path(kvbench.__file__).resolve())) is None:
        return None, None
    changes = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "HEAD"), None if changes is None else bool(changes)


def device_name(device: torch.device) -> str:
    """Names the kind of a device; two machines with the same name compute the same."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"{device.type} ({platform.machine()})"


def package_versions() -> dict[str, str]:
    """Lists the versions of Python and of the packages that answers depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def arguments_at(policy: Policy, tokens: int) -> dict[str, int | float | str]:
    """Reads the arguments of a press for a context of so many tokens at a typical level; none if it cannot be built."""
    try:
        situation = policy.typical_situation(tokens, tokens // 8)
        return arguments_of(policy.build(situation)) | policy.arguments_in(situation)
    except Exception:  # a plug-in's, which each record tells of
        return {}


def identify(
    model: LoadedModel, tasks: Sequence[tuple[Task, int]], setting: Setting, held_out: bool = False
) -> Identity:
    """Identifies a run; ``tasks`` come with the number of contexts of each."""
    revision, dirty = git_state(Path(kvbench.__file__).parent)
    return Identity(
        schema_version=SCHEMA_VERSION,
        kvbench_version=kvbench.__version__,
        source=source_hash(),
        git_revision=revision,
        git_dirty=dirty,
        packages=package_versions(),
        model=model.name,
        model_fingerprint=model.fingerprint,
        device=device_name(model.device),
        dtype=model.dtype_name,
        seed=setting.seed,
        mode=setting.mode,
        scope=setting.scope,
        held_out=held_out,
        tables=setting.tables,
        options=setting.options_of_tables,
        tasks=tuple(
            task_identity(task, contexts, prompt_as_sent(model.tokenizer, task, first, setting.mode))
            for task, contexts in tasks
            for first in [task.example(setting.seed, 0, held_out=held_out)]
        ),
        policies=tuple(_policy(policy, [task for task, _ in tasks], setting) for policy in setting.policies),
    )


def _policy(policy: Policy, tasks: Sequence[Task], setting: Setting) -> PolicyIdentity:
    return PolicyIdentity(
        name=policy.name,
        family=policy.family,
        paper=policy.paper,
        arguments=arguments_at(policy, ARGUMENTS_AT),
        origin=policy.origin,
        arguments_at_tokens=ARGUMENTS_AT,
        levels=by_kind(policy.levels_among(setting.points)),
        repeats=1 + max((point.repeat for point in policy.points_among(setting.points)), default=0),
        tasks=tuple(task.name for task in tasks if covers(policy, task, setting.mode)),
    )


ROOT = Path(__file__).parents[2]  # the folder that holds the four packages

SOURCES = (  # folders and files from whose code the values of a run's tables follow
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
    "kvbench/store/interventions.py",
    "kvbench/store/numerics.py",
    "kvbench/store/observed.py",
    "kvbench/store/scoring.py",
    "kvbench/store/tables.py",
)


def source_files(root: Path = ROOT) -> list[Path]:
    """Lists the files that results depend on, relative to the folder that holds the packages: code, and the words and
    phrasings of texts."""
    places = [root / name for name in SOURCES]
    paths = [path for place in places for path in (place.rglob("*") if place.is_dir() else [place])]
    return sorted(path.relative_to(root) for path in paths if path.suffix in (".py", ".json"))


def source_hash(root: Path = ROOT) -> str:
    """Hashes the names and the content of these files."""
    digest = hashlib.sha256()
    for path in source_files(root):
        digest.update(path.as_posix().encode())
        digest.update(hashlib.sha256((root / path).read_bytes()).digest())
    return digest.hexdigest()[:16]
