"""The doctor tells of a model which level of a task it masters, and where it reads."""

import shlex
from typing import Any

import pandas as pd
import pytest
from transformers import MistralConfig, MistralForCausalLM

import kvbench.execution.local
from datasets_gen import TASKS
from kvbench.api.doctor import chosen_tasks
from kvbench.checks import mastery
from kvbench.checks.mastery import (
    Mastery,
    find_levels,
    highest_mastered,
    mastery_table,
    write_command,
)
from kvbench.checks.model import Examination, ReadProfile, measure_reads, reads_table
from kvbench.experiments.build_grid import build_grid
from kvbench.models.load import LoadedModel
from kvbench.models.opening import open_model
from kvbench.store.run_file import Job, TaskOptions
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from tests.support.models.runs import CommandLine
from tests.support.models.toy import KEY_HEADS, LAYERS, gemma3, model_of, sizes, toy_model
from tests.support.records.synthetic_records import realistic_records
from tests.support.wording import assert_says

QUESTIONS = 3  # of each context


def answering(monkeypatch: pytest.MonkeyPatch, right_at: dict[int, float]) -> dict[int, int]:
    """Has every level answered with that share right; returns how many questions each level was
    asked, in order."""
    asked: dict[int, int] = {}

    def collect_answers(
        model: object, task: object, policies: object, contexts: int, seed: int, **more: object
    ) -> object:
        level = int(str(getattr(task, "variant", "")).removeprefix("level.") or 5)
        first = int(str(more["first"]))
        asked[level] = asked.get(level, 0) + contexts * QUESTIONS
        frame = realistic_records(["base"], ["full"], [0.0], contexts=contexts, questions=QUESTIONS)
        share = right_at[level]
        right = pd.Series(
            [(place * share) % 1 + share >= 1 for place in range(len(frame))], index=frame.index
        )
        ids = [f"{first + number // QUESTIONS}" for number in range(len(frame))]
        return frame.assign(right=right, f1=100.0 * right, example_id=ids, draw_id=ids)

    monkeypatch.setattr(mastery, "collect_answers", collect_answers)
    monkeypatch.setattr(kvbench.execution.local, "open_model", lambda *_: model_of("llama"))
    return asked


def test_the_highest_level_that_is_mastered_is_found_from_the_top(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lowest is asked second; twelve right or wrong answers leave no doubt, half of 60 percent
    does."""
    asked = answering(monkeypatch, {5: 0.0, 4: 0.5, 3: 0.9, 2: 1.0, 1: 1.0, 0: 1.0})
    found = highest_mastered(model_of("llama"), TASKS["base"], 8)
    assert (found.level, found.top_level, found.reason, found.place) == (3, 5, None, "3 of 5")
    assert list(asked) == [5, 0, 4, 3]
    assert (asked[5], asked[0], asked[4]) == (12, 12, 8 * QUESTIONS)


def test_a_model_that_masters_no_level_is_asked_two_and_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = answering(monkeypatch, {5: 0.0, 0: 0.0})
    found = highest_mastered(model_of("llama"), TASKS["base"], 1)
    assert found.level == 0
    assert_says(found.reason, "right 0", "below 60")
    assert asked == dict.fromkeys((5, 0), 2 * QUESTIONS), (
        "more than one context, as so few questions tell nothing"
    )
    job = Job(model="reference", tasks="base", difficulty="auto")
    with pytest.raises(KVBenchError, match="reference masters base at no level"):
        find_levels(job, build_grid(job, len))


@pytest.mark.parametrize(
    "command", [["run"], ["compare", "knorm", "--against", "random"]], ids=["run", "compare"]
)
def test_a_model_whose_levels_are_found_first_is_loaded_once(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    mastered = Mastery("base", 2, 5, "Right", 80.0, 16.0, 24, None)
    monkeypatch.setattr(mastery, "highest_mastered", lambda *_: mastered)
    loaded: list[str] = []

    def counted(name: str, *options: Any) -> LoadedModel:
        loaded.append(name)
        return open_model(name, *options)

    monkeypatch.setattr(kvbench.execution.local, "open_model", counted)
    words = [
        *command,
        *cli.places,
        "--name",
        "x",
        "--tasks",
        "base",
        "--limit",
        1,
        "--ratios",
        0.5,
    ]
    assert cli(*words, "--difficulty", "auto", "--context-tokens", "native", "--every-task") == 0, (
        cli.err
    )
    assert loaded == [str(cli.model)]
    job = Store.open(cli.folder / "runs/x").run.job
    assert job is not None
    assert job.difficulty == "base=2"


def test_a_depth_in_short_contexts_is_refused_with_what_can_be_done_about_it() -> None:
    with pytest.raises(KVBenchError) as error:
        chosen_tasks("base", "reference", {"base": TaskOptions(depth=0.5)})
    assert_says(str(error.value), "base(depth=0.5)", "leave depth out", "run --context-tokens")
    (task,) = chosen_tasks("niah_single_2", "reference", {"all": TaskOptions(depth=0.5)})
    assert task.name == "niah_single_2", "contexts of RULER have a length, and so a depth"


def test_the_command_runs_what_is_mastered_at_its_levels() -> None:
    found = [
        Mastery("base", 3, 5, "Right", 70.0, 16.0, 24, None),
        Mastery("hops", 0, 5, "Right", 10.0, 2.0, 24, "right 10"),
        Mastery("niah_single_2", 0, 0, "Right", 100.0, 0.0, 12, None),
    ]
    assert shlex.split(write_command("smollm2", found)) == [
        *("python", "-m", "kvbench", "run", "--model", "smollm2"),
        *("--tasks", "base,niah_single_2", "--difficulty", "base=3"),
    ]


SOUND = ReadProfile("base", 100, (95, 90, 85, 100), 60, 95)


@pytest.mark.parametrize(
    ("profile", "limit"),
    [
        (
            ReadProfile("base", 100, (100, 15, 95, 100), 100, 50),
            "reads base in layer 1 alone (100 to 15",
        ),
        (
            ReadProfile("base", 100, (100, 15, 50, 100), 60, 50),
            "reads base in layers 1, 2, each needed",
        ),
        (
            ReadProfile("base", 100, (95, 90, 85, 100), 60, 90),
            "has no second way to base (100 to 90 without 30%",
        ),
        (
            ReadProfile("base", 100, (95, 90, 85, 100), 95, 95),
            "reads base in the lower half of its layers",
        ),
        (ReadProfile("base", 100, (75, 100), 90, 95), ""),  # at the bounds
    ],
)
def test_the_verdict_says_what_a_board_cannot_show(profile: ReadProfile, limit: str) -> None:
    mastery = Mastery("base", 5, 5, "Right", 94.0, 16.0, 20, None)
    exam = Examination(
        model_of("llama"), 2, [TASKS["base"]], masteries=[mastery], profiles=[SOUND, profile]
    )
    assert exam.verdict.startswith(limit or "reads by many routes and masters 1 of 1 tasks")
    assert exam.is_doubtful == bool(limit)
    assert exam.is_fit


def test_the_findings_of_a_toy_model() -> None:
    """Random weights master nothing, so that no profile is measured."""
    exam = Examination(model_of("llama"), 1, [TASKS["base"], TASKS["hops"]])
    heard: list[str] = []
    findings = list(exam.findings(heard.append))
    assert [one.check for one in findings] == [
        "loaded as",
        "chat template",
        "slots",
        "masters",
        "reads",
        "reads",
    ]
    outcomes = {one.check: one.outcome for one in findings}
    assert (outcomes["loaded as"], outcomes["masters"], outcomes["reads"]) == (
        "ok",
        "wrong",
        "note",
    )
    assert f"{LAYERS * KEY_HEADS} (layer, head) slots" in findings[2].text
    assert heard == ["base"] * 4 + ["hops"] * 2, (
        "the highest level and the lowest, by twelve questions each"
    )
    assert not exam.is_fit
    rows = [
        (row["task"], row["level"], row["mastered"])
        for row in mastery_table(exam.masteries).plain()
    ]
    assert rows == [("base", "0 of 5", False), ("hops", "0 of 5", False)]


def test_sliding_layers_are_told() -> None:
    """Presses leave those of Gemma 3 whole; others end where the window does."""
    outcome, text = Examination(model_of("qwen3"), 1, ()).slots()
    assert (outcome, "no sliding layers" in text) == ("ok", True)
    mistral = toy_model(
        "mistral", lambda: MistralForCausalLM(MistralConfig(**sizes(sliding_window=40)))
    )
    outcome, text = Examination(mistral, 1, ()).slots()
    assert outcome == "note"
    assert_says(text, f"{LAYERS} sliding layers", "40 tokens")
    gemma = toy_model("gemma3", lambda: gemma3(("sliding_attention", "full_attention")))
    outcome, text = Examination(gemma, 1, ()).slots()
    assert outcome == "note"
    assert "cannot run here: expected_attention, " in text
    assert "snapkv" not in text.partition("cannot run here")[2].split(", ")


@pytest.mark.parametrize("architecture", ["phi3", "gemma3"])
def test_every_architecture_has_a_profile(architecture: str) -> None:
    profile = measure_reads(model_of(architecture), TASKS["hops"], 2, 1, 0)
    assert len(profile.without_layer) == LAYERS
    (row,) = reads_table([profile]).plain()
    assert (row["part"], row["layers"]) == ("hops, 2 facts", profile.without_layer)
