"""The hash of the sources changes with the code that results depend on, and with no other."""

import inspect
import shutil
from functools import partial
from pathlib import Path

from kvbench.experiments.grid import ROOT, source_files, source_hash
from kvbench.store.tables import find_table, names_of_tables
from tests.test_architecture import reached, sources

DECIDES = {
    "datasets_gen/tasks/hops.py",
    "datasets_gen/examples/phrasings.json",
    "policies/eviction/scorers.py",
    "leaderboards/metrics/routing.py",
    "kvbench/models/load.py",
    "kvbench/prompts/prompt.py",
    "kvbench/engine/decode/waves.py",
    "kvbench/experiments/collect.py",
    "kvbench/store/scoring.py",
    "kvbench/studies/numerics/tables.py",
}
DECIDES_NOTHING = {
    "leaderboards/pages/results.py",
    "kvbench/publish/site.py",
    "kvbench/commands/run.py",
    "kvbench/store/merging.py",
    "kvbench/studies/numerics/forecast.py",
    "kvbench/execution/on_ray.py",
}
# Errors, files, memory and tables pass values on; intervals are of boards.
WITHOUT_VALUES = (
    "kvbench.system",
    "kvbench.store",
    "leaderboards.errors",
    "leaderboards.statistics",
)


def test_what_decides_values_is_hashed_and_nothing_else() -> None:
    files = {path.as_posix() for path in source_files()}
    assert files >= DECIDES
    assert not files & DECIDES_NOTHING


def test_what_fills_a_table_decides() -> None:
    tables = [find_table(name) for name in names_of_tables()]
    fills = [fill for table in tables for fill in (table.fill, table.observe) if fill]
    fills = [fill.func if isinstance(fill, partial) else fill for fill in fills]
    # And not of other tests.
    ours = [fill for fill in fills if fill.__module__.startswith("kvbench.")]
    files = {Path(str(inspect.getsourcefile(fill))).relative_to(ROOT) for fill in ours}
    assert len(files) >= 3
    assert files <= set(source_files())


def test_an_edit_and_a_new_file_make_another_run(tmp_path: Path) -> None:
    for path in source_files():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    assert source_hash(tmp_path) == source_hash()
    (tmp_path / "policies" / "another.py").write_text("")
    with_another = source_hash(tmp_path)
    with (tmp_path / min(DECIDES)).open("a") as file:
        file.write("# edited\n")
    assert len({source_hash(), with_another, source_hash(tmp_path)}) == 3


def test_all_code_that_makes_rows_is_in_the_hash() -> None:
    """A module that the making of rows comes to import has to be listed."""
    modules = {name for name in reached("kvbench.experiments.collect", set()) if name in sources()}
    hashed = {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in source_files()
    }
    doors = {name for name in modules if sources()[name].name == "__init__.py"}
    missing = {name for name in modules - hashed - doors if not name.startswith(WITHOUT_VALUES)}
    assert len(modules & hashed) > 80
    assert missing == set()
