"""Hashes the code that a result depends on: under edited code, every run is another run."""

import hashlib
from pathlib import Path

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
    "kvbench/store/next_tokens.py",
    "kvbench/store/numerics.py",
    "kvbench/store/observed.py",
    "kvbench/store/record.py",
    "kvbench/store/scoring.py",
)


def source_files(root: Path = ROOT) -> list[Path]:
    """Lists the Python files that results depend on, relative to the folder that holds the packages."""
    places = [root / name for name in SOURCES]
    paths = [path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place])]
    return sorted(path.relative_to(root) for path in paths)


def source_hash(root: Path = ROOT) -> str:
    """Hashes the names and the content of these files."""
    digest = hashlib.sha256()
    for path in source_files(root):
        digest.update(path.as_posix().encode())
        digest.update(hashlib.sha256((root / path).read_bytes()).digest())
    return digest.hexdigest()[:16]
