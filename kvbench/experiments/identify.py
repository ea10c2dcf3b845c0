"""What makes two runs the same run: versions, model, seeds, tasks and policies with their arguments."""

import hashlib
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict

import datasets_gen
import kvbench
import policies
from datasets_gen import Task
from kvbench.experiments.catalogue import covers
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel
from kvbench.prompts.mode import Mode, Scope
from kvbench.store.store import PROVENANCE
from kvbench.store.tables import SCHEMA_VERSION
from leaderboards import metrics
from policies import Policy, arguments_of, by_kind

PACKAGES = ("torch", "transformers", "kvpress", "numpy")
ARGUMENTS_AT = 1024  # tokens: an argument may follow the length of the context


class TaskIdentity(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    version: str
    contexts: int
    chance: float
    instruction: str
    max_new_tokens: int


class PolicyIdentity(BaseModel):
    """``arguments``: those of the press for a context of ``arguments_at_tokens``; each record holds its own.
    ``levels``: values by kind. ``repeats``: draws at each level."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    family: str
    paper: str
    arguments: dict[str, int | float | str]
    origin: str
    arguments_at_tokens: int
    levels: dict[str, tuple[float, ...]]
    repeats: int
    tasks: tuple[str, ...]


class Identity(BaseModel):
    """Two runs with equal identities write the same records, times aside.

    ``source``: hash of the code that makes records. :data:`PROVENANCE` is told beside it and decides nothing: a
    revision says too little, as two edited checkouts are equally "dirty", and too much, as a README belongs to it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int
    kvbench_version: str
    source: str
    git_revision: str | None
    git_dirty: bool | None
    packages: dict[str, str]
    model: str
    model_fingerprint: str
    device: str
    dtype: str
    seed: int
    mode: Mode
    scope: Scope
    held_out: bool
    tables: tuple[str, ...]
    tasks: tuple[TaskIdentity, ...]
    policies: tuple[PolicyIdentity, ...]

    def short_hash(self) -> str:
        return hashlib.sha256(self.model_dump_json(exclude=set(PROVENANCE)).encode()).hexdigest()[:8]


def source_hash() -> str:
    """Hash of all Python files of the packages that make records."""
    digest = hashlib.sha256()
    for package in (datasets_gen, policies, metrics, kvbench):
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{package.__name__}/{path.relative_to(folder).as_posix()}".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Revision of the checkout that ``folder`` lies in and whether files were changed; None without git."""

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
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"{device.type} ({platform.machine()})"


def package_versions() -> dict[str, str]:
    """Of Python and of what answers depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def _arguments(policy: Policy) -> dict[str, int | float | str]:
    """Those of a press for a context of :data:`ARGUMENTS_AT` tokens at a typical level; none if it cannot be built."""
    try:
        return arguments_of(policy.build(policy.typical_situation(ARGUMENTS_AT, ARGUMENTS_AT // 8)))
    except Exception:  # a plug-in's, which each record tells of
        return {}


def identify(
    model: LoadedModel, tasks: Sequence[tuple[Task, int]], setting: Setting, held_out: bool = False
) -> Identity:
    """The identity of a run; ``tasks`` with the number of contexts of each."""
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
        tasks=tuple(
            TaskIdentity(
                name=task.name,
                version=task.full_version,
                contexts=contexts,
                chance=task.chance,
                instruction=task.instruction,
                max_new_tokens=task.max_new_tokens,
            )
            for task, contexts in tasks
        ),
        policies=tuple(
            PolicyIdentity(
                name=policy.name,
                family=policy.family,
                paper=policy.paper,
                arguments=_arguments(policy),
                origin=policy.origin,
                arguments_at_tokens=ARGUMENTS_AT,
                levels=by_kind(policy.levels_among(setting.points)),
                repeats=1 + max((point.repeat for point in policy.points_among(setting.points)), default=0),
                tasks=tuple(task.name for task, _ in tasks if covers(policy, task, setting.mode)),
            )
            for policy in setting.policies
        ),
    )
