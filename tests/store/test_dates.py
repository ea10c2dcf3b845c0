"""A run has one day: its own once it has begun, that of a run beside it, or today."""

import json
import shutil
from pathlib import Path

import pytest

from kvbench.checks.submission import examine
from kvbench.models.load import LoadedModel
from kvbench.store.dates import with_date
from kvbench.store.run_file import Job
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from tests.support.models.runs import CommandLine, grid, policies_of, record_calls
from tests.support.wording import assert_says


def store_run(llama: LoadedModel, folder: Path, model: str, day: str, created: str) -> None:
    identity = grid().identity(llama).model_copy(update={"model": model, "date": day})
    store = Store.start(folder, identity, "a test")
    store._set(created=created)


def test_the_day_is_that_given_or_of_this_run_or_of_the_latest_beside_it_or_today(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvbench.store.dates.today", lambda: "2026-12-24")
    monkeypatch.chdir(tmp_path)
    runs, job = tmp_path / "runs", Job(model="mine")
    assert with_date(job, runs).date == "2026-12-24"
    store_run(llama, runs / "first", "mine", "2026-11-01", "2026-11-01T10:00:00+00:00")
    store_run(
        llama, runs / "second", str(tmp_path / "mine"), "2026-11-02", "2026-11-02T10:00:00+00:00"
    )
    store_run(llama, runs / "other", "another", "2026-11-03", "2026-11-03T10:00:00+00:00")
    store_run(llama, runs / "silent", "mine", "", "2026-11-04T10:00:00+00:00")
    (runs / "damaged").mkdir()
    (runs / "damaged/run.json").write_text("{")
    assert with_date(job, runs, "first").date == "2026-11-01"
    assert with_date(job, runs, "new").date == "2026-11-02", "by another name for its place"
    assert with_date(job, runs).date == "2026-11-02"
    assert (
        with_date(job.model_copy(update={"date": "2026-10-05"}), runs, "first").date == "2026-10-05"
    )
    with pytest.raises(KVBenchError, match="--date tomorrow: give a day as 2026-11-28"):
        with_date(job.model_copy(update={"date": "tomorrow"}), runs)


def set_today(monkeypatch: pytest.MonkeyPatch, day: str) -> None:
    """Sets the day for all that ask for it: what one of them took from the clock of the machine
    would be another day tomorrow."""
    for module in ("kvbench.store.dates", "kvbench.execution.local", "kvbench.models.load"):
        monkeypatch.setattr(f"{module}.today", lambda: day)


def test_a_run_of_a_template_with_a_day_goes_on_tomorrow_lends_its_answers_and_is_replayed(
    cli: CommandLine, toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(toy_folder, tmp_path / "model"))
    template = folder / "chat_template.jinja"
    template.write_text("{{ strftime_now('%d %b %Y') }} " + template.read_text())
    set_today(monkeypatch, "2026-11-27")
    begun = cli.run("--model", folder)
    assert begun.identity.date == "2026-11-27"
    assert all("27 Nov 2026" in prompt for prompt in begun.identity.prompts.values())
    set_today(monkeypatch, "2026-11-28")
    calls = record_calls(monkeypatch)
    cli.run("--model", folder)
    assert calls == [], "the run is finished, tomorrow too"
    second = cli.run("--model", folder, "--policies", "full,knorm,snapkv", name="second")
    assert second.identity.date == "2026-11-27"
    assert set(map(tuple, policies_of(calls))) == {("snapkv",)}
    found = list(examine(cli.folder / "runs/second", cells=4))
    assert [one.text for one in found if one.outcome == "wrong"] == []
    assert any(one.check == "replay" and one.outcome == "ok" for one in found)
    run_file = cli.folder / "runs/second/run.json"
    run_file.write_text(run_file.read_text().replace('"date": "2026-11-27"', '"date": ""'))
    of_before = {
        one.text: one.outcome
        for one in examine(run_file.parent, cells=4)
        if "tells the day" in one.text
    }
    assert list(of_before.values()) == ["unchecked"]
    said = cli.error(*cli.words("--model", folder, "--date", "2026-11-28"))
    assert_says(said, "--date", "2026-11-27", "2026-11-28")


def test_runs_without_a_day_are_the_same_on_every_day(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cli.run()
    set_today(monkeypatch, "2031-01-01")
    assert first.identity.date == ""
    assert json.loads((cli.folder / "runs/x/run.json").read_text())["identity"]["date"] == ""
    assert cli.run(name="y").identity.differences(first.identity) == []
