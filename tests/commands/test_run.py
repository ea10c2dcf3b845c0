"""A run from the command line, on the toy model: what it writes, what it records of what failed,
and how it ends."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import kvbench.estimate.cost
import kvbench.execution.local
import kvbench.experiments.catalogue
import kvbench.experiments.suites
import kvbench.publish.method
from datasets_gen import TASKS
from kvbench.store.run_file import Job, choose_tolerance
from kvbench.store.store import Store
from leaderboards.aggregate.row import ALL_TASKS
from policies import POLICIES, REFERENCES, Needs, Policy
from tests.support.models.processes import Copy, wait_until
from tests.support.models.runs import CommandLine
from tests.support.models.toy import pressing
from tests.support.wording import assert_says


def test_a_run_takes_profile_and_limit(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(TASKS["base"], contexts={"quick": 2, "paper": 3})
    monkeypatch.setattr(kvbench.experiments.suites, "TASKS", {"base": few})
    asked = {
        "quick": [],
        "paper": ["--profile", "paper"],
        "limit": ["--profile", "paper", "--limit", "1"],
    }
    frames = {}
    for name, options in asked.items():
        assert (
            cli(
                "run",
                *cli.places,
                "--ratios",
                "0.5",
                "--policies",
                "full",
                "--context-tokens",
                "native",
                *options,
                "--name",
                name,
            )
            == 0
        )
        frames[name] = Store.open(cli.folder / "runs" / name).frame()
    assert {name: frame.example_id.nunique() for name, frame in frames.items()} == {
        "quick": 2,
        "paper": 3,
        "limit": 1,
    }


def test_a_run_scores_directives_attacks_and_worked_out_answers(cli: CommandLine) -> None:
    frame = cli.run("--tasks", "all(prefix=off),instructions,arithmetic", "--limit", "3").frame()
    rules = frame[frame.task == "instructions"]
    assert rules.leakage.notna().equals(rules.protected != "")
    assert rules.directives_obeyed.notna().equals(rules.directives.map(len) > 0)
    assert rules.leakage.notna().any()
    assert rules.directives_obeyed.notna().any()
    assert set(frame[frame.task == "arithmetic"].answer_marker) == {"####"}
    rows = {
        row["task"]: row for row in json.loads((cli.folder / "runs/x/summary.json").read_text())
    }
    assert rows["instructions"]["leakage"] is not None
    assert rows["instructions"]["directives_obeyed"] is not None
    assert rows["arithmetic"]["leakage"] is rows["arithmetic"]["directives_obeyed"] is None


def test_a_run_writes_records_summary_and_page_and_controls_run_beside_what_is_asked_for(
    toy_run: Path,
) -> None:
    assert list(Store.open(toy_run / "runs/x").frame().policy.unique()) == [*REFERENCES, "knorm"]
    summary = json.loads((toy_run / "runs/x/summary.json").read_text())
    needed = {
        "task",
        "mode",
        "policy",
        "ratio",
        "n",
        "f1",
        "em",
        "abstention_rate",
        "hallucination_rate",
        "ger",
    }
    assert all(needed | {"slot_coverage", "realised_ratio"} <= set(row) for row in summary)
    controls = {("oracle", 0.5), ("random", 0.5), ("recency", 0.5)}
    assert {(row["policy"], row["ratio"]) for row in summary} == {
        ("full", 0.0),
        ("knorm", 0.5),
        *controls,
    }
    assert "<html" in (toy_run / "site/index.html").read_text()


NO_SYSTEM = (
    "{% for message in messages %}{% if message.role == 'system' %}{{ raise_exception('System role "
    "not supported') }}{% endif %}<|{{ message.role }}|> {{ message.content }}{% endfor %}"
)


def test_where_a_template_has_no_turn_of_a_system_instructions_are_left_out_with_a_line(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest runs, and goes on; who names them is refused."""
    monkeypatch.setattr(
        kvbench.experiments.suites,
        "TASKS",
        {name: TASKS[name] for name in ("base", "instructions")},
    )
    model = tmp_path / "model"
    shutil.copytree(cli.model, model)
    (model / "chat_template.jinja").write_text(NO_SYSTEM)
    small = [
        "--limit",
        1,
        "--ratios",
        0.5,
        "--context-tokens",
        "native",
        "--site",
        tmp_path / "site",
    ]
    words = ["run", "--model", model, "--out", tmp_path / "runs", "--name", "x", *small]
    assert cli(*words) == 0, cli.err
    assert_says(cli.complaint, "left out: instructions", "chat template")
    assert "System role not supported" in cli.complaint
    store = Store.open(tmp_path / "runs" / "x")
    assert [task.name for task in store.identity.tasks] == ["base"]
    assert cli(*words) == 0, cli.err
    assert "the chat template has no turn" in cli.error(
        *words, "--name", "y", "--tasks", "base,instructions"
    )


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_ends_a_run_of_several_processes_in_one_line(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, ending: signal.Signals
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with Copy.of_program([str(word) for word in cli.words("--limit", "100")]) as run:
        group = run.process.pid
        assert group
        wait_until(
            lambda: any((cli.folder / "runs").rglob("*.parquet")) or not run.process.is_alive()
        )
        os.killpg(group, ending)
        status, said = run.ended()
    assert status == 130, said
    assert "interrupted: what was finished is kept" in said
    assert "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)
    assert Store.open(cli.folder / "runs/x").run.reason == "interrupted"


def broken(situation):  # type: ignore[no-untyped-def]
    press = POLICIES["knorm"].build(situation)
    press.score = lambda *arguments: 1 / 0
    return press


def register(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers a policy where runs look for it, and where pages describe it."""
    for module in (kvbench.experiments.catalogue, kvbench.publish.method):
        monkeypatch.setattr(module, "POLICIES", {**POLICIES, policy.name: policy})


def test_a_failing_policy_is_recorded_and_all_others_go_on(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(pressing("broken", broken), monkeypatch)
    assert cli(*cli.words("--policies", "full,broken,knorm")) == 1
    assert_says(cli.err, "broken failed in layer 0", "ZeroDivisionError")
    assert_says(cli.complaint, "some cells failed", "broken")
    frame = Store.open(cli.folder / "runs/x").frame()
    outcomes = frame.groupby("policy").status.unique().map(list).to_dict()
    assert outcomes == {**{name: ["ok"] for name in (*REFERENCES, "knorm")}, "broken": ["failed"]}
    assert Store.open(cli.folder / "runs/x").run.status == "complete"
    rows = json.loads((cli.folder / "runs/x/summary.json").read_text())
    of_tasks = [row for row in rows if row["task"] != ALL_TASKS]
    assert of_tasks
    assert all((row["f1"] is None) == (row["policy"] == "broken") for row in of_tasks)


def test_of_both_modes_what_fails_in_the_second_fails_the_command_too(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs the question, so that it is not run in mode agnostic."""
    policy = pressing("broken", broken, needs=Needs(question=True))
    register(policy, monkeypatch)
    assert cli(*cli.words("--policies", "broken,knorm", "--mode", "both")) == 1
    assert Store.open(cli.folder / "runs/x").identity.mode == "agnostic"
    assert (
        Store.open(cli.folder / "runs/x-aware").frame().groupby("policy").status.first()["broken"]
        == "failed"
    )
    assert_says(cli.complaint, "mode aware: some cells failed", "broken")


def test_the_forecast_of_a_study_has_two_ends(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One and eight minutes, and the page."""
    monkeypatch.setattr(kvbench.estimate.cost.RunCost, "ends", (60.0, 480.0))
    assert cli(*cli.words("--policies", "full", "--observe", "states")) == 0
    assert "forecast: 1.2 min to 8.2 min" in cli.err
    assert_says(cli.err, "72 contexts of a task", "less than 5 points")


def test_a_tolerance_is_stored_with_the_run_and_named_on_its_page(cli: CommandLine) -> None:
    assert_says(cli.error("run", "--tolerance", 0), "above 0 and below 100", "not 0")
    assert cli(*cli.words("--policies", "full,knorm", "--tolerance", "10")) == 0
    assert_says(cli.err, "36 contexts of a task", "less than 10 points")
    run = cli.folder / "runs/x"
    assert choose_tolerance([Store.open(run).run.job]) == 10
    for given, points in (((), 10), (("--tolerance", "20"), 20)):
        assert cli("site", run, "--site", cli.folder / "again", *given) == 0
        page = (cli.folder / "again/index.html").read_text()
        assert f"up to which less than {points} points" in page
    assert "--tolerance 10" in (cli.folder / "again/method.html").read_text()
    assert choose_tolerance([None, Job(tolerance=20), Job(tolerance=10)]) == 10, (
        "of several runs the lowest"
    )
    assert (choose_tolerance([None, Job()]), choose_tolerance([Job(tolerance=10)], 3)) == (5, 3)


def test_a_model_that_cannot_do_a_task_is_told_so_before_the_table(cli: CommandLine) -> None:
    """The toy model knows nothing."""
    assert cli(*cli.words("--policies", "full,knorm")) == 0
    note, table = (
        cli.out.find("Not mastered, so without ranks and verdicts: "),
        cli.out.find("mean over tasks"),
    )
    assert 0 <= note < table
    assert "Rise of the right answer’s NLL" in cli.out
    assert "--difficulty auto" in cli.out[:table]
    assert cli.err.index("forecast: about") < cli.err.index("of keys and values at once")
    rows = json.loads((cli.folder / "runs/x/summary.json").read_text())
    assert all(row["not_mastered"] for row in rows if row["task"] != ALL_TASKS)
    assert all(row["f1"] is not None and row["mean_of"] for row in rows if row["task"] == ALL_TASKS)
