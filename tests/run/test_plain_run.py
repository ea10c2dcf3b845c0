"""A run imports of the studies, treatments and claims what it uses, and no more."""

import subprocess
import sys
from pathlib import Path

from tests.support.models.runs import small_command

SHARED = ("kvbench.studies.declaration", "kvbench.studies.registry")
# What every site has of a study: whether it takes the results, and its words on the page of method.
ON_EVERY_SITE = ("study", "definitions")
PLAIN_RUN = """
import sys
from kvbench.cli.program import main
assert main(sys.argv[1:]) == 0
print(*sys.modules)
"""
BY_NAME = """
import sys
from kvbench.store.tables import find_table, is_known
from kvbench.studies.registry import FOLDER_OF_TABLE, SUITES
from policies.composition import TREATMENTS, is_treatment
assert is_known("states") and "errors" in SUITES and "int4" in TREATMENTS
assert is_treatment("zeros(rate=0.1)") and len(FOLDER_OF_TABLE) > 9
print(*sys.modules)
find_table("groups"), SUITES["bytes"], TREATMENTS["int4"]
print(*sys.modules)
"""


def modules_printed(code: str, *words: str) -> list[set[str]]:
    """Runs code in a process of its own; returns the module names of each printed line that has
    any."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [set(line.split()) for line in done.stdout.splitlines()]
    return [line for line in lines if "kvbench.store.tables" in line]


def of_studies(modules: set[str]) -> set[str]:
    """Names the modules that belong to one study, to treatments or to claims, without the doors of
    packages."""
    chosen = set()
    for name in modules:
        parts = name.split(".")
        match parts[:2]:
            case ["kvbench", "studies"]:
                is_one_of_them = len(parts) > 2 and name not in SHARED
            case ["leaderboards", "studies"]:
                is_one_of_them = len(parts) > 3 and parts[3] not in ON_EVERY_SITE
            case ["policies", "faults" | "quantisation"] | ["leaderboards", "claims"]:
                is_one_of_them = True
            case _:
                is_one_of_them = name.startswith("kvbench.engine.studies")
        if is_one_of_them:
            chosen.add(name)
    return chosen


def test_a_plain_run_imports_no_study_no_treatment_and_no_claim(
    toy_folder: Path, tmp_path: Path
) -> None:
    words = small_command(toy_folder, tmp_path, "--tasks", "base", "--policies", "snapkv")
    (modules,) = modules_printed(PLAIN_RUN, *map(str, words))
    assert {"kvbench.publish.site", "leaderboards.studies.numerics.study"} <= modules
    assert (tmp_path / "site" / "index.html").is_file()
    assert of_studies(modules) == set()


def test_a_name_imports_the_folder_that_brings_it_and_no_other() -> None:
    before, after = modules_printed(BY_NAME)
    assert of_studies(before) == set()
    folders = {".".join(name.split(".")[:3]) for name in of_studies(after) if "kvbench" in name}
    assert folders == {"kvbench.studies.groups", "kvbench.studies.bytes"}
    treated = {name.split(".")[1] for name in of_studies(after) if "policies" in name}
    assert treated == {"quantisation"}
