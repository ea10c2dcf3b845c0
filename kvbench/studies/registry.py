"""The registry of studies: what the folder of each brings, by names alone.

A folder is imported when a run, or a store, names something of it. Add a study by writing its folder and naming it here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kvbench.studies.declaration import Suite
from policies.declaration.lazy import LazyMapping


@dataclass(frozen=True)
class StudyFolder:
    """Names what ``kvbench/studies/<name>/`` brings."""

    name: str
    has_suite: bool = True  # in ``suite.py`` a SUITE, which has the name of the folder
    tables: tuple[str, ...] = ()  # that ``tables.py`` registers (kvbench.store.tables)
    observable: tuple[str, ...] = ()  # of these tables, what ``--observe`` can name
    has_forecast: bool = False  # in ``forecast.py`` a FORECAST of what its tables cost


NUMERICS = "numerics_pairs"  # the table whose runs take the options of numerics
SCORES = "scores"  # the table of the scorers of tasks and packages
OBSERVED = ("attention", "states", "routes")
FOLDERS = (
    StudyFolder("instructions"),
    StudyFolder("faults"),
    StudyFolder("errors"),
    StudyFolder("bytes"),
    StudyFolder("routing", True, (*OBSERVED, "interventions"), OBSERVED, has_forecast=True),
    StudyFolder("published"),
    StudyFolder("board"),
    StudyFolder(
        "numerics",
        tables=(
            NUMERICS,
            "numerics_drift",
            "numerics_recovery",
            "numerics_rounding",
            "numerics_patches",
        ),
        has_forecast=True,
    ),
    StudyFolder("groups", has_suite=False, tables=("groups",), observable=("groups",)),
    StudyFolder(
        "reconstruction",
        has_suite=False,
        tables=("reconstruction",),
        observable=("reconstruction",),
        has_forecast=True,
    ),
    StudyFolder(SCORES, has_suite=False, tables=(SCORES,), observable=(SCORES,)),
)


def _folders_of_tables() -> dict[str, StudyFolder]:
    """Maps each table to the study that declares it."""
    folders = {}
    for folder in FOLDERS:
        for table in folder.tables:
            folders[table] = folder
    return folders


def _load(name: str, part: str) -> Any:
    """Imports a part of a study: ``suite``, ``tables`` or ``forecast``."""
    return import_module(f"{__package__}.{name}.{part}")


SUITES = LazyMapping[Suite](
    (folder.name for folder in FOLDERS if folder.has_suite), lambda name: _load(name, "suite").SUITE
)
FOLDER_OF_TABLE = _folders_of_tables()
OBSERVABLE = tuple(table for folder in FOLDERS for table in folder.observable)


def import_tables_beside(table: str) -> None:
    """Imports what registers a table of a study, and with it the other tables of that study."""
    _load(FOLDER_OF_TABLE[table].name, "tables")


def forecasts(tables: Iterable[str]) -> list[Any]:
    """Imports the forecasts (kvbench.estimate.forecast) of the studies that fill some tables, in
    the order of these."""
    folders = [FOLDER_OF_TABLE[table] for table in tables if table in FOLDER_OF_TABLE]
    names = dict.fromkeys(folder.name for folder in folders if folder.has_forecast)
    return [_load(name, "forecast").FORECAST for name in names]
