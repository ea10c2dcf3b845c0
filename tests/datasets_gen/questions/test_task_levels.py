"""Tasks at one of their levels: what they draw, what they are called, and that they take a length
like any other."""

from dataclasses import replace

import pytest

from datasets_gen import TASKS, DatasetError, Task, at_level
from datasets_gen.tasks.instructions import INSTRUCTIONS_IN_ARMS
from kvbench.prompts.context_length import lengthen
from tests.support.tasks.blind import blind_right
from tests.support.tasks.suite import SPLITS, count_words_and_signs

WITH_LEVELS = (*TASKS.values(), INSTRUCTIONS_IN_ARMS)
OF_THEIR_OWN_KIND = [TASKS[name] for name in ("base", "arithmetic", "instructions")]
every_level = pytest.mark.parametrize(
    ("task", "level"),
    [
        pytest.param(task, level, id=f"{task.name}{task.variant}-{level}")
        for task in WITH_LEVELS
        for level in range(task.top_level + 1)
    ],
)


@every_level
def test_it_draws_that_level_whatever_level_is_asked_of_it(task: Task, level: int) -> None:
    there = at_level(task, level)
    assert there.top_level == 0
    for index in range(4):
        for split in SPLITS:
            example = task.example(3, index, split, level)
            assert (
                there.example(3, index, split) == there.example(3, index, split, level=5) == example
            )
    assert f"+level.{level}" in there.full_version
    assert there.full_version.replace(f"+level.{level}", "") == task.full_version
    assert there.description == f"{task.description}; level {level} of 5"


@every_level
def test_at_a_length_it_says_and_asks_the_same_whichever_comes_first(
    task: Task, level: int
) -> None:
    there = at_level(task, level)
    (lengthened,) = lengthen([there], 700, 0.5, count_words_and_signs)
    (full_length,) = lengthen([task], 700, 0.5, count_words_and_signs)
    other = at_level(full_length, level)
    assert lengthened.full_version == other.full_version
    assert lengthened.chance == other.chance == there.chance
    for index in range(3):
        example, plain = lengthened.example(3, index), there.example(3, index)
        assert other.example(3, index) == example
        assert 0.98 * 700 <= count_words_and_signs(example.context) <= 700
        asked, as_plain = (
            [replace(q, spans=()) for q in one.questions] for one in (example, plain)
        )
        assert asked == as_plain


@pytest.mark.parametrize("level", [-1, 6])
def test_a_level_that_a_task_has_not_is_refused_with_those_that_it_has(level: int) -> None:
    with pytest.raises(DatasetError, match=f"base has no level {level}: its levels are 0 to 5"):
        at_level(TASKS["base"], level)


# --- chance


@pytest.mark.parametrize(
    ("task", "level"),
    [
        # Each takes seconds. The lower levels differ in little, and so do tasks that ask of names
        # as base does.
        pytest.param(
            task,
            level,
            id=f"{task.name}{task.variant}-{level}",
            marks=pytest.mark.slow if level < top or task not in OF_THEIR_OWN_KIND else [],
        )
        for task in WITH_LEVELS
        for top in [task.top_level]
        for level in range(top + 1)
    ],
)
def test_chance_is_what_the_best_blind_guesser_scores(task: Task, level: int) -> None:
    assert blind_right(at_level(task, level)) == pytest.approx(task.chances[level], abs=0.5)
