"""The registry of studies: whatever lies in ``leaderboards/studies/<name>/study.py`` is found."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from leaderboards.errors import LeaderboardError
from leaderboards.studies.declaration import Study


@cache
def studies() -> Mapping[str, Study]:
    """Returns all studies by name; a name taken twice raises :class:`LeaderboardError`."""
    named: dict[str, Study] = {}
    for path in sorted(Path(__file__).parent.glob("*/study.py")):
        study: Study = import_module(f"leaderboards.studies.{path.parent.name}.study").STUDY
        if study.name in named:
            raise LeaderboardError(f"two studies are named '{study.name}': give one of them another name")
        named[study.name] = study
    return named
