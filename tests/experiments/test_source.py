"""The hash of the sources changes with the code that results depend on, and with no other."""

import inspect
import shutil
from pathlib import Path

import pytest

import kvbench.store.store  # noqa: F401  which registers all tables
from kvbench.experiments.identify import ROOT, SOURCES, source_files, source_hash
from kvbench.store.tables import TABLES
from tests.test_architecture import PACKAGES, reached, sources

DECIDES = (
    "datasets_gen/tasks/hops.py",
    "datasets_gen/examples/lexicon.py",
    "datasets_gen/examples/phrasings.json",
    "policies/eviction/scorers.py",
    "leaderboards/metrics/routing.py",
    "leaderboards/routing/reach.py",
    "kvbench/models/load.py",
    "kvbench/prompts/prompt.py",
    "kvbench/engine/decode/waves.py",
    "kvbench/engine/treat/prefill.py",
    "kvbench/experiments/collect.py",
    "kvbench/store/interventions.py",
    "kvbench/store/observed.py",
    "kvbench/store/observed.py",
    "kvbench/store/tables.py",
    "kvbench/store/scoring.py",
)
DECIDES_NOTHING = (
    "leaderboards/pages/results.py",
    "leaderboards/statistics/bootstrap.py",
    "kvbench/documents/pages.py",
    "kvbench/publish/site.py",
    "kvbench/commands/run.py",
    "kvbench/checks/doctor.py",
    "kvbench/estimate/plan.py",
    "kvbench/checks/pipeline.py",
    "kvbench/store/merging.py",
    "kvbench/run/on_ray.py",
    "tests/experiments/test_source.py",
)
# Errors, files, memory and tables pass values on.
WITHOUT_VALUES = ("kvbench.system", "kvbench.store", "leaderboards.errors")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies the sources of all packages."""
    folder = tmp_path_factory.mktemp("copy")
    for name in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=lambda _, names: [n for n in names if is_data(n)])
    return folder


def is_data(name: str) -> bool:
    return name == "__pycache__" or name.endswith((".safetensors", ".parquet"))


def edited(copy: Path, name: str) -> str:
    """Returns the hash while a file has another line."""
    path = copy / name
    content = path.read_text()
    path.write_text(content + "# edited\n")
    try:
        return source_hash(copy)
    finally:
        path.write_text(content)


def test_what_fills_a_table_decides() -> None:
    fills = [fill for table in TABLES.values() for fill in (table.fill, table.fill_together, table.observe) if fill]
    files = {Path(str(inspect.getsourcefile(fill))).relative_to(ROOT) for fill in fills if is_ours(fill)}
    assert len(files) >= 3
    assert files <= set(source_files())


def is_ours(fill: object) -> bool:
    """Tells whether a table is filled by the product: other tests may have registered tables of their own."""
    return inspect.isfunction(fill) and fill.__module__.startswith("kvbench.")


def test_a_copy_has_the_hash_of_the_original(copy: Path) -> None:
    assert source_hash(copy) == source_hash()


@pytest.mark.parametrize("name", DECIDES)
def test_who_edits_what_decides_values_makes_another_run(copy: Path, name: str) -> None:
    assert edited(copy, name) != source_hash(copy)


@pytest.mark.parametrize("name", DECIDES_NOTHING)
def test_who_edits_anything_else_makes_no_other_run(copy: Path, name: str) -> None:
    assert edited(copy, name) == source_hash(copy)


def test_a_new_policy_is_a_new_source(copy: Path) -> None:
    new = copy / "policies" / "another.py"
    new.write_text("")
    assert source_hash(copy) != source_hash()
    new.unlink()


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_all_code_that_makes_rows_is_in_the_hash() -> None:
    """A module that the making of rows comes to import has to be listed."""
    modules = {name for name in reached("kvbench.experiments.collect", set()) if name in sources()}
    hashed = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in source_files()}
    doors = {name for name in modules if sources()[name].name == "__init__.py"}
    missing = {name for name in modules - hashed - doors if not name.startswith(WITHOUT_VALUES)}
    assert len(modules & hashed) > 80
    assert missing == set()
