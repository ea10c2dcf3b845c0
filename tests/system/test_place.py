"""A store may lie at any URL of fsspec: the same records, whole files or none, and one line where it cannot."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from datasets_gen import TASKS
from kvbench.cli.program import main
from kvbench.experiments.grid import Grid
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel
from kvbench.run.execute import execute
from kvbench.store.scoring import rescore
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from kvbench.system.files import check_writable, write_atomically, write_text_atomically
from kvbench.system.places import is_remote, place_of
from policies import POLICIES, at_ratios
from tests.support.toy import listening

RUNS = "memory://bucket/runs"


@pytest.fixture(autouse=True)
def bucket() -> Iterator[None]:
    """fsspec's memory is one for the whole process."""
    filesystem = place_of(RUNS).fs  # type: ignore[attr-defined]
    yield
    if filesystem.exists("/bucket"):
        filesystem.rm("/bucket", recursive=True)


def grid(*policies: str) -> Grid:
    return Grid([(TASKS["base"], 2)], Setting([POLICIES[name] for name in policies], at_ratios((0.5,))))


def outcome(store: Store) -> pd.DataFrame:
    frame = store.frame()
    return frame.drop(columns=[column for column in frame.columns if column.endswith("_seconds")])


def test_a_local_path_or_url_is_a_plain_path(tmp_path: Path) -> None:
    for text in ("runs/x", str(tmp_path), tmp_path):
        assert place_of(text) == Path(text)
    assert place_of(f"file://{tmp_path}/runs") == tmp_path / "runs"
    assert type(place_of(f"file://{tmp_path}/runs")) is type(tmp_path)
    assert not is_remote(place_of("runs"))
    assert is_remote(place_of(RUNS))


def test_a_remote_store_holds_what_a_local_one_does_and_goes_on(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = execute(llama, grid("full", "knorm"), tmp_path / "runs" / "x", "a test")
    remote = execute(llama, grid("full", "knorm"), place_of(RUNS) / "x", "a test")
    assert [path.name for path in remote.record_files()] == ["full.parquet", "knorm.parquet"]
    pd.testing.assert_frame_equal(outcome(Store.open(place_of(f"{RUNS}/x"))), outcome(local))
    assert rescore(remote) == (len(local.frame()), 0)
    remote.record_file("base", 0, "knorm").unlink()
    asked = listening(monkeypatch)
    again = execute(llama, grid("full", "knorm"), place_of(RUNS) / "x", "a test")
    assert asked == [["knorm"], ["knorm"]]
    assert again.run.status == "complete"
    pd.testing.assert_frame_equal(outcome(again), outcome(local))
    asked.clear()  # a run beside it borrows, as in a folder
    other = execute(llama, grid("full", "random"), place_of(RUNS) / "y", "a test")
    assert asked == [["random"], ["random"]]
    assert set(other.frame().policy) == {"full", "random"}


def test_the_commands_take_a_url(toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--limit", "1", "--ratios", "0.5", "--policies", "knorm", "--tasks", "base", "--name", "x"]
    site = ["--site", str(tmp_path / "site")]
    assert main(["run", "--model", str(toy_folder), *small, "--out", RUNS, *site]) == 0
    assert f"records: {RUNS}/x" in capsys.readouterr().err
    (tmp_path / "site" / "index.html").unlink()
    assert main(["site", f"{RUNS}/x", "--out", str(tmp_path / "site")]) == 0
    assert (tmp_path / "site" / "index.html").is_file()
    assert main(["site", f"{RUNS}/x", f"{RUNS}/y/../x"]) == 1
    assert "is named twice" in capsys.readouterr().err
    assert main(["score", f"{RUNS}/x"]) == 0
    assert main(["check-submission", f"{RUNS}/x"]) == 0
    assert main(["show", f"{RUNS}/x", "--policy", "knorm", "--ratio", "0.5"]) == 0
    capsys.readouterr()
    assert main(["site", f"{RUNS}/nothing"]) == 1
    assert "nothing holds no run" in capsys.readouterr().err
    assert main(["site", f"{RUNS}/xx"]) == 1
    assert f"did you mean {RUNS}/x?" in capsys.readouterr().err


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


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
    assert line.startswith("error: ")
    return line


def test_a_store_that_cannot_be_written_is_one_line_before_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Access Denied")

    monkeypatch.setattr(type(place_of(RUNS).fs), "_open", denied)  # type: ignore[attr-defined]
    monkeypatch.setattr("kvbench.run.load.load_model", lambda *_: pytest.fail("the model was loaded"))
    assert "cannot write memory://bucket/runs/." in refused(["run", "--out", RUNS], capsys)


def test_a_url_that_nothing_here_can_reach_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nonsense://x cannot be reached" in refused(["run", "--out", "nonsense://x"], capsys)


@pytest.mark.skipif(importlib.util.find_spec("s3fs") is not None, reason="s3fs is installed")
def test_a_missing_package_of_a_protocol_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Install s3fs" in refused(["site", "s3://bucket/runs/x"], capsys)


def test_a_local_folder_that_takes_no_file_is_one_line_and_none_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file/runs/deep"):
        with pytest.raises(KVBenchError, match=r"--out .* cannot be written \(.*file: it is no folder\)"):
            check_writable("--out", folder)
    check_writable("--out", tmp_path / "new/runs")
    assert not (tmp_path / "new").exists()
