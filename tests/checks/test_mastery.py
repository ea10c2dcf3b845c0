"""The level of a task that a model masters, on contexts of its own."""

import pandas as pd
import pytest

from datasets_gen import TASKS
from kvbench.checks import mastery
from kvbench.checks.mastery import Mastery, command_of, highest_mastered, mastery_at, with_levels_found
from kvbench.experiments.build_grid import build_grid
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError
from tests.support.models.toy import model_of
from tests.support.records.synthetic_records import realistic_records

QUESTIONS = 3  # of each context


def answering(monkeypatch: pytest.MonkeyPatch, right_at: dict[int, float]) -> list[tuple[int, int, int]]:
    """Has every level answered with that share right; returns what was asked: level, first context, and how many."""
    asked: list[tuple[int, int, int]] = []

    def answers_of(model: object, task: object, policies: object, contexts: int, seed: int, **more: object) -> object:
        level = int(str(getattr(task, "variant", "")).removeprefix("level.") or 5)
        first = int(str(more["first"]))
        asked.append((level, first, contexts))
        frame = realistic_records(["base"], ["full"], [0.0], contexts=contexts, questions=QUESTIONS)
        share = right_at[level]
        right = pd.Series([(place * share) % 1 + share >= 1 for place in range(len(frame))], index=frame.index)
        ids = [f"{first + number // QUESTIONS}" for number in range(len(frame))]
        return frame.assign(right=right, f1=100.0 * right, example_id=ids, draw_id=ids)

    monkeypatch.setattr(mastery, "answers_of", answers_of)
    return asked


def test_the_highest_level_that_is_mastered_is_found_from_the_top(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, {5: 0.0, 4: 0.5, 3: 0.9, 2: 1.0, 1: 1.0, 0: 1.0})
    found = highest_mastered(model_of("llama"), TASKS["base"], 8)
    assert (found.level, found.top_level, found.reason, found.place) == (3, 5, None, "3 of 5")
    levels = [level for level, _, _ in asked]
    assert list(dict.fromkeys(levels)) == [5, 0, 4, 3], "the lowest is asked second, as nothing may be mastered"
    assert sum(count for level, _, count in asked if level == 5) * QUESTIONS == 12, "12 wrong ones leave no doubt"
    assert sum(count for level, _, count in asked if level == 0) * QUESTIONS == 12, "nor of twelve right ones"
    assert sum(count for level, _, count in asked if level == 4) == 8, "half is not out of reach of 60 percent"


def test_a_model_that_masters_not_even_the_lowest_level_is_not_asked_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = answering(monkeypatch, {5: 0.0, 0: 0.1})
    found = highest_mastered(model_of("llama"), TASKS["base"], 8)
    assert found.level == 0
    assert {level for level, _, _ in asked} == {5, 0}


def test_more_contexts_are_asked_than_one_as_so_few_questions_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, {5: 0.75})
    found = highest_mastered(model_of("llama"), TASKS["base"], 1)
    assert found.reason is None
    assert sum(count for _, _, count in asked) * TASKS["base"].questions_per_context >= mastery.NO_DOUBT


def test_a_model_that_masters_no_level_is_told_at_the_lowest(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, dict.fromkeys(range(6), 0.0))
    found = highest_mastered(model_of("llama"), TASKS["base"], 8)
    assert found.level == 0
    assert found.reason == "right 0 with the full cache, below 60"
    assert len(found.answers) == 2
    job = Job(model="reference", tasks="base", difficulty="auto")
    grid = build_grid(job, len)
    monkeypatch.setattr(mastery, "load_model", lambda *_: model_of("llama"))
    with pytest.raises(KVBenchError, match="reference masters base at no level"):
        with_levels_found(job, grid)


def test_the_job_gets_the_levels_that_were_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {5: 0.0, 4: 0.0, 3: 0.0, 2: 0.0, 1: 0.9, 0: 1.0})
    monkeypatch.setattr(mastery, "load_model", lambda *_: model_of("llama"))
    job = Job(model="reference", tasks="base", context_tokens=None, difficulty="auto")
    found = with_levels_found(job, build_grid(job, len))
    assert found.difficulty == "base=1"
    (task, _), *_ = build_grid(found, len).tasks
    assert task.level == "1 of 5"
    assert "+level.1" in task.full_version


def test_contexts_that_are_measured_are_not_those_that_a_level_is_chosen_by() -> None:
    model = model_of("llama")
    assert mastery.SEED > 1000
    found = mastery_at(model, TASKS["hops"], 0, 1)
    assert found.questions == len(TASKS["hops"].example(mastery.SEED, 0, level=0).questions)


def test_the_command_runs_what_is_mastered_at_its_levels() -> None:
    found = [
        Mastery("base", 3, 5, "Right", 70.0, 16.0, 24, None),
        Mastery("hops", 0, 5, "Right", 10.0, 2.0, 24, "right 10"),
        Mastery("niah_single_2", 0, 0, "Right", 100.0, 0.0, 12, None),
    ]
    assert command_of("smollm2", found) == (
        "python -m kvbench run --model smollm2 --tasks base,niah_single_2 --difficulty base=3"
    )
