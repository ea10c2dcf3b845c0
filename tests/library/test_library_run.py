"""``kvbench.run`` and ``kvbench.load``: the same numbers as the command line, to the last digit."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import kvbench
from kvbench.store.store import Store
from tests.support.models.runs import SHORT, timeless

SMALL: dict[str, Any] = {
    "limit": 1,
    "ratios": [0.5],
    "policies": ["knorm"],
    "tasks": ["base", "hops"],
    "context_tokens": "native",
    "max_new_tokens": SHORT,
}


@pytest.fixture(scope="module")
def library_run(toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> kvbench.RunResult:
    """The run of ``toy_run``, by the library. Tests read it and change nothing."""
    folder = tmp_path_factory.mktemp("library")
    return kvbench.run(
        str(toy_folder), out=folder / "runs", site=folder / "site", name="x", **SMALL
    )


def test_numbers_are_those_of_the_command_line_to_the_last_digit(
    library_run: kvbench.RunResult, toy_run: Path
) -> None:
    of_command = Store.open(toy_run / "runs" / "x")
    pd.testing.assert_frame_equal(
        timeless(library_run.records()), timeless(of_command.frame()), check_exact=True
    )
    assert Store.open(library_run.folder).identity == of_command.identity
    for name, table in {"cells": library_run.cells(), "board": library_run.board()}.items():
        written = (toy_run / "site" / "data" / f"{name}.csv").read_text(encoding="utf-8")
        assert written.splitlines()[0] == ",".join(table.columns)
        assert len(written.splitlines()) == 1 + len(table)


def test_a_run_that_is_loaded_has_the_same_tables(library_run: kvbench.RunResult) -> None:
    loaded = kvbench.load(library_run.folder)
    without_seconds = [name for name in loaded.cells().columns if "seconds" not in name]
    pd.testing.assert_frame_equal(
        loaded.cells()[without_seconds], library_run.cells()[without_seconds]
    )
    safe = loaded.safe()
    assert {"full", "knorm", "random"} <= set(safe["policy"])
    assert "safe_ratio_difference_low" in safe.columns
    assert "knorm" in repr(loaded)


def test_examples_are_those_that_show_prints(library_run: kvbench.RunResult) -> None:
    examples = library_run.examples("knorm", worst=2, ratio=0.5)
    assert list(examples["policy"]) == ["knorm", "knorm"]
    assert examples["full_cache_output"].notna().all()
    assert list(library_run.examples(worst=1)["policy"]) == ["knorm"]
    with pytest.raises(kvbench.KVBenchError, match="unknown policy 'snapkv'"):
        library_run.examples("snapkv")


def test_pages_are_written_where_they_are_wanted(
    library_run: kvbench.RunResult, tmp_path: Path
) -> None:
    page = library_run.site(tmp_path / "pages")
    assert page == tmp_path / "pages" / "index.html"
    assert "knorm" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tasks": ["typo"]}, "unknown task 'typo'"),
        ({"limit": 0}, "--limit is 1 or more"),
        ({"tasks": "base", "ratios": "x"}, "ratios"),
        ({"out": "s3://bucket/runs"}, "an address of s3"),
        ({"observe": [3]}, "--observe takes names, not a int"),
        ({"ratios": [None]}, "--ratios takes numbers"),
        ({"name": "../x"}, "--name '../x'"),
    ],
)
def test_errors_are_one_exception_with_the_sentence_of_the_command(
    options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(kvbench.KVBenchError, match=sentence):
        kvbench.run(**options)  # type: ignore[arg-type]


def test_importing_takes_no_time_and_loads_nothing() -> None:
    code = """
import sys, time
before = time.process_time()
import kvbench
spent = time.process_time() - before
assert spent < 1, spent
assert not {"torch", "pandas", "pydantic"} & sys.modules.keys()
kvbench.run
assert not {"torch", "kvpress", "transformers"} & sys.modules.keys()
print(*sorted(kvbench.__all__))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == sorted(kvbench.__all__)


def test_there_are_few_public_names_and_each_is_documented() -> None:
    assert len(kvbench.__all__) <= 12
    for name in kvbench.__all__:
        assert getattr(kvbench, name).__doc__, name
        assert name in dir(kvbench)
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        kvbench.no_such  # type: ignore[attr-defined] # noqa: B018
