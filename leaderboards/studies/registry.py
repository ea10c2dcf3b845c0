"""The registry of studies: whatever module in a folder of ``leaderboards/studies`` holds ``STUDY`` is found."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from leaderboards.errors import LeaderboardError
from leaderboards.studies.declaration import Study, StudyInput
from policies.declaration.names import by_name


@cache
def studies() -> Mapping[str, Study]:
    """Returns all studies by name; a name taken twice raises :class:`LeaderboardError`."""
    paths = sorted(path for path in Path(__file__).parent.glob("*/*.py") if path.stem != "__init__")
    modules = [vars(import_module(f"leaderboards.studies.{path.parent.name}.{path.stem}")) for path in paths]
    declared: list[Study] = [module["STUDY"] for module in modules if "STUDY" in module]
    return by_name("studies", sorted(declared, key=lambda study: study.name), LeaderboardError)


def studies_of(results: StudyInput) -> list[Study]:
    """Lists the studies that have a page of these results. They take complete runs alone: their numbers are paired."""
    is_complete = all(run["status"] == "complete" for run in results.runs)
    return [study for study in studies().values() if is_complete and study.takes(results)]
