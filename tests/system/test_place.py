"""A store may lie at any URL of fsspec: the same records, whole files or none, and one line where it cannot."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from kvbench.store.scoring import rescore
from kvbench.store.store import Store
from kvbench.system import places
from kvbench.system.errors import KVBenchError
from kvbench.system.files import check_writable, write_atomically, write_text_atomically
from kvbench.system.places import is_remote, place_of
from tests.support.models.runs import CommandLine, ToyRuns, outcome, policies_of, record_calls

RUNS = "memory://bucket/runs"
TWO = ("full", "knorm")


@pytest.fixture(autouse=True)
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """fsspec's memory, which is one for the whole process, stands for a service, which keeps what it is given."""
    monkeypatch.setattr(places, "FORGETFUL", ())
    filesystem = place_of(RUNS).fs  # type: ignore[attr-defined]
    yield
    if filesystem.exists("/bucket"):
        filesystem.rm("/bucket", recursive=True)


def test_a_local_path_or_url_is_a_plain_path(tmp_path: Path) -> None:
    for text in ("runs/x", str(tmp_path), tmp_path):
        assert place_of(text) == Path(text)
    assert place_of(f"file://{tmp_path}/runs") == tmp_path / "runs"
    assert type(place_of(f"file://{tmp_path}/runs")) is type(tmp_path)
    assert not is_remote(place_of("runs"))
    assert is_remote(place_of(RUNS))


@pytest.mark.parametrize("text", ["memory://runs", "simplecache::s3://bucket/runs", "://", "memory::file:///tmp/x"])
def test_a_place_that_forgets_or_has_no_name_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(KVBenchError, match=r"(keeps nothing when the command ends|names no protocol): give a folder"):
        place_of(text)


def test_pages_are_written_into_a_folder(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "is a URL, and pages are written into a folder" in cli.error("run", "--site", "https://example.org/x")
    assert list(tmp_path.glob("http*")) == []


def test_a_remote_store_holds_what_a_local_one_does_and_goes_on(runs: ToyRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    local = runs("runs/x", TWO)
    remote = runs(place_of(RUNS) / "x", TWO)
    assert [path.name for path in remote.record_files()] == ["full.parquet", "knorm.parquet"]
    pd.testing.assert_frame_equal(outcome(Store.open(place_of(f"{RUNS}/x"))), outcome(local))
    assert rescore(remote) == (len(local.frame()), 0)
    remote.record_file("base", 0, "knorm").unlink()
    calls = record_calls(monkeypatch)
    again = runs(place_of(RUNS) / "x", TWO)
    assert policies_of(calls) == [["knorm"], ["knorm"]]
    assert again.run.status == "complete"
    pd.testing.assert_frame_equal(outcome(again), outcome(local))
    calls.clear()  # a run beside it borrows, as in a folder
    other = runs(place_of(RUNS) / "y", ("full", "random"))
    assert policies_of(calls) == [["random"], ["random"]]
    assert set(other.frame().policy) == {"full", "random"}


def test_the_commands_take_a_url(cli: CommandLine, tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert cli(*cli.words("--tasks", "base", "--policies", "knorm", "--out", RUNS)) == 0
    assert f"records: {RUNS}/x" in cli.err
    (site / "index.html").unlink()
    assert cli("site", f"{RUNS}/x", "--site", site) == 0
    assert (site / "index.html").is_file()
    assert cli("score", f"{RUNS}/x") == 0
    assert cli("check-submission", f"{RUNS}/x") == 0
    assert cli("show", f"{RUNS}/x", "--policy", "knorm", "--ratio", "0.5") == 0
    assert "is named twice" in cli.error("site", f"{RUNS}/x", f"{RUNS}/y/../x")
    assert "nothing holds no run" in cli.error("site", f"{RUNS}/nothing")
    assert f"did you mean {RUNS}/x?" in cli.error("site", f"{RUNS}/xx")


def test_a_remote_file_is_whole_or_the_old_one() -> None:
    path = place_of(RUNS) / "x" / "file"
    write_text_atomically(path, "old")

    def half(partial: Path) -> None:
        partial.write_text("ne")
        raise RuntimeError("a fault while it is written")

    with pytest.raises(KVBenchError, match=r"cannot write memory://bucket/runs/x/file: RuntimeError: a fault"):
        write_atomically(path, half)
    assert path.read_text() == "old"
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_store_that_cannot_be_written_is_one_line_before_the_model_is_loaded(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Access Denied")

    monkeypatch.setattr(type(place_of(RUNS).fs), "_open", denied)  # type: ignore[attr-defined]
    monkeypatch.setattr("kvbench.run.local.load_model", lambda *_: pytest.fail("the model was loaded"))
    assert "cannot write memory://bucket/runs/." in cli.error("run", "--out", RUNS)


def test_a_url_that_nothing_here_can_reach_is_one_line(cli: CommandLine) -> None:
    assert "nonsense://x cannot be reached" in cli.error("run", "--out", "nonsense://x")


@pytest.mark.skipif(importlib.util.find_spec("s3fs") is not None, reason="s3fs is installed")
def test_a_missing_package_of_a_protocol_is_named(cli: CommandLine) -> None:
    assert "Install s3fs" in cli.error("site", "s3://bucket/runs/x")


def test_a_local_folder_that_takes_no_file_is_one_line_and_none_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file/runs/deep"):
        with pytest.raises(KVBenchError, match=r"--out .* cannot be written \(.*file: it is no folder\)"):
            check_writable("--out", folder)
    check_writable("--out", tmp_path / "new/runs")
    assert not (tmp_path / "new").exists()
