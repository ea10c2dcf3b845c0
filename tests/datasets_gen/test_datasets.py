"""The contract of every registered task."""

import hashlib
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_gen import (
    ABSTENTION,
    FROM_DATA,
    RULER,
    TASKS,
    DatasetError,
    Split,
    Task,
    by_name,
    get_task,
    with_questions,
)
from datasets_gen.examples.lexicon import (
    draw_people,
    draw_value,
    full_names,
    name_split,
    read_released,
    value_kinds,
)
from datasets_gen.writing.passage import ATTRIBUTES, BONDS
from leaderboards.metrics.judges.text import marked_answer
from tests.support.tasks.blind import form
from tests.support.tasks.solvers.text import names_someone, sentences
from tests.support.tasks.suite import (
    SOLVERS,
    SPLITS,
    WITHOUT_SOLVER,
    asked,
    every_way,
    evidence,
    facts_in,
    people_in,
    right,
    some,
    stated_in,
    texts,
    without,
)

every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
every_level = pytest.mark.parametrize(
    ("task", "level"),
    [
        pytest.param(t, level, id=f"{t.name}-{level}")
        for t in TASKS.values()
        for level in range(t.top_level + 1)
    ],
)
seeds = st.integers(0, 2**32)
indices = st.integers(0, 10**6)
tasks = st.sampled_from(list(TASKS.values()))
splits = st.sampled_from(SPLITS)
ROOT = Path(__file__).parents[2]
DIGEST = """
import hashlib, datasets_gen
tasks = (*datasets_gen.TASKS.values(), *datasets_gen.RULER.values())
written = [repr(list(t.generate(7, 3, s))) for t in tasks for s in ("train", "test")]
print(hashlib.sha256("".join(written).encode()).hexdigest())
"""


# --- the same bytes, whatever else is asked for


@pytest.mark.parametrize("hash_seed", ["0", "31337"])
def test_same_seed_same_bytes_in_another_process(hash_seed: str) -> None:
    here = [
        repr(list(t.generate(7, 3, split)))
        for t in (*TASKS.values(), *RULER.values())
        for split in SPLITS
    ]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", DIGEST]
    there = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert there.stdout.strip() == hashlib.sha256("".join(here).encode()).hexdigest()


@given(tasks, seeds, indices, splits, st.booleans())
def test_an_example_depends_on_seed_and_index_alone(
    task: Task, seed: int, index: int, split: Split, held_out: bool
) -> None:
    first = task.example(seed, index, split, held_out=held_out)
    task.example(seed + 1, index, split)
    assert task.example(seed, index, split, held_out=held_out) == first
    identity = f"{task.name}/{split}/{seed}/{index}" + "/held_out" * held_out
    assert (first.id, first.index, first.split) == (identity, index, split)


@every_task
def test_other_seeds_and_indices_give_other_contexts(task: Task) -> None:
    contexts = {task.example(seed, index).context for seed in range(10) for index in range(20)}
    assert len(contexts) == 200


# --- train and test have nothing in common


def test_no_full_name_is_in_both_splits() -> None:
    assert not set(full_names("train")) & set(full_names("test"))
    assert min(len(full_names("train")), len(full_names("test"))) > 1000


@given(tasks, seeds, indices, splits, st.booleans())
def test_every_person_named_belongs_to_the_split(
    task: Task, seed: int, index: int, split: Split, held_out: bool
) -> None:
    named = people_in(task.example(seed, index, split, held_out=held_out))
    assert named
    assert {name_split(name) for name in named} == {split}


# --- the evidence


@every_level
def test_the_answer_span_of_a_standard_question_reads_as_a_gold(task: Task, level: int) -> None:
    for example, question in asked(every_way(task, level=level)):
        answers = texts(example, question, "answer")
        assert bool(answers) == question.answerable
        if question.answerable and question.type == "standard":
            assert set(answers) <= set(question.golds)


@every_level
def test_spans_lie_inside_the_context(task: Task, level: int) -> None:
    for example, question in asked(every_way(task, level=level)):
        for span in (*question.spans, *example.spans):
            assert 0 <= span.start < span.end <= len(example.context)


@every_level
def test_facts_and_bridges_are_whole_sentences_each_once(task: Task, level: int) -> None:
    for example, question in asked(every_way(task, level=level)):
        assert set(texts(example, question, "fact", "bridge")) <= set(sentences(example.context))
        places = [
            (span.start, span.end) for span in question.spans if span.kind in ("fact", "bridge")
        ]
        assert len(set(places)) == len(places) == question.hops


@every_level
def test_answers_and_subjects_lie_in_the_evidence(task: Task, level: int) -> None:
    for _, question in asked(every_way(task, level=level)):
        whole = [span for span in question.spans if span.kind in ("fact", "bridge")]
        for span in question.spans:
            if span.kind == "directive":
                assert question.directives
                continue
            assert any(fact.start <= span.start < fact.end for fact in whole)
            assert any(fact.start < span.end <= fact.end for fact in whole)


@every_level
def test_the_question_names_the_mention_it_starts_from(task: Task, level: int) -> None:
    for example, question in asked(every_way(task, level=level)):
        assert all(subject in question.text for subject in texts(example, question, "subject"))


@every_level
def test_unanswerable_questions_have_no_evidence_and_ask_for_an_abstention(
    task: Task, level: int
) -> None:
    for _, question in asked(every_way(task, level=level)):
        if not question.answerable:
            assert (question.golds, question.perfect_output, question.spans, question.hops) == (
                (ABSTENTION,),
                ABSTENTION,
                (),
                0,
            )
            assert ABSTENTION in task.abstentions


# --- the answers


def test_every_task_has_a_solver_or_a_reason_to_have_none() -> None:
    """The reason holds: nothing is asked, or there are no contexts before there are rows."""
    assert set(SOLVERS) | set(WITHOUT_SOLVER) == set(TASKS) | set(FROM_DATA)
    assert set(SOLVERS) == set(TASKS)
    for name in WITHOUT_SOLVER:
        assert FROM_DATA[name].role == "text" or not any(FROM_DATA[name].contexts.values()), name


@given(tasks, seeds, indices, splits, st.booleans(), st.data())
def test_a_reader_finds_the_golds_and_nothing_else(
    task: Task, seed: int, index: int, split: Split, held_out: bool, data: st.DataObject
) -> None:
    level = data.draw(st.integers(0, task.top_level))
    example = task.example(seed, index, split, level, held_out=held_out)
    for question in example.questions:
        assert SOLVERS[task.name](question.text, example.context) == right(question), question


@every_level
def test_the_evidence_alone_gives_the_golds(task: Task, level: int) -> None:
    for example, question in asked(every_way(task, level=level)):
        if question.answerable:
            alone = " ".join(evidence(example, question))
            assert SOLVERS[task.name](question.text, alone) == right(question), question


@every_level
def test_without_what_the_answer_stands_in_or_a_bridge_to_it_the_gold_is_not_found(
    task: Task, level: int
) -> None:
    for example, question in asked(every_way(task, level=level)):
        answers = [span for span in question.spans if span.kind == "answer"]
        needed = {
            example.context[span.start : span.end]
            for span in question.spans
            if span.kind == "bridge"
            or (
                span.kind == "fact"
                and any(a.start < span.end and span.start < a.end for a in answers)
            )
        }
        assert bool(needed) == question.answerable
        for left_out in needed:
            rest = without(left_out, sentences(example.context))
            assert SOLVERS[task.name](question.text, rest).isdisjoint(right(question)), (
                question,
                left_out,
            )


@every_level
def test_what_is_written_ends_in_the_gold_where_it_is_not_the_gold(task: Task, level: int) -> None:
    for _, question in asked(every_way(task, level=level)):
        if not question.directives:
            output = question.perfect_output
            said = marked_answer(output, task.answer_marker) if task.answer_marker else output
            assert said == question.golds[0]


@pytest.mark.parametrize(
    "name", ["base", "multi_entity", "coreference", "hops", "long_context", "instructions"]
)
def test_what_one_fact_implies_is_not_asked_for_as_another(name: str) -> None:
    """Who keeps a heron and owns a canoe has two things; and what somebody's lawyer works as has
    two answers."""
    relations = {relation.name: relation for relation in (*ATTRIBUTES, *BONDS)}
    for example in every_way(TASKS[name], 40):
        facts = facts_in(example)
        had: dict[str, set[str]] = {}
        for relation, subject, _ in facts:
            had.setdefault(subject, set()).add(relation)
        assert all(
            {relations[r].implies for r in of_one}.isdisjoint(of_one) for of_one in had.values()
        )
        bound = {
            value for relation, _, value in facts if relations[relation].implies_of_value == "job"
        }
        for question in example.questions:
            if (
                question.answer_type == "thing"
                and question.direction == "forward"
                and question.answerable
            ):
                of_gold = {
                    (r, subject) for r, subject, value in facts if value == question.golds[0]
                }
                assert not {subject for r, subject in of_gold if r == "job"} & bound


# --- the questions and the values


@every_level
def test_questions_differ_and_are_as_many_as_wanted_or_as_there_are(task: Task, level: int) -> None:
    for wanted in (1, task.questions_per_context, 40):
        for index in range(15):
            questions = task.example(2, index, level=level, questions=wanted).questions
            assert 1 <= len({question.text for question in questions}) == len(questions) <= wanted
            if level == task.top_level and wanted <= task.questions_per_context:
                assert len(questions) == wanted


@pytest.mark.parametrize("name", ["base", "niah_multikey_2", "instructions"])
def test_fewer_questions_are_the_first_of_the_same_contexts(name: str) -> None:
    task = get_task(name)
    fewer = with_questions(task, 1)
    assert (fewer.questions_per_context, fewer.variant) == (1, "questions.1")
    for index in range(3):
        whole, first = task.example(4, index), fewer.example(4, index)
        assert first.context == whole.context
        assert first.questions == whole.questions[:1]
    assert with_questions(task, task.questions_per_context) == task
    with pytest.raises(DatasetError, match=f"{name} asks 1 to"):
        with_questions(task, task.questions_per_context + 1)


@every_level
def test_stated_values_are_all_that_the_context_states_each_once(task: Task, level: int) -> None:
    for example in every_way(task, level=level):
        assert sorted(example.stated_values) == sorted(stated_in(example))
        assert all(
            re.search(rf"\b{re.escape(value)}\b", example.context)
            for value in example.stated_values
        )
        for question in example.questions:
            if question.answerable and question.type == "standard" and not question.protected:
                assert set(question.golds) <= set(example.stated_values)


# --- phrasings that training never shows


@every_task
def test_the_two_streams_say_and_ask_nothing_in_the_same_words(task: Task) -> None:
    def forms(held_out: bool) -> set[str]:
        """Of questions, and of the sentences that name someone; other prose is the same in both."""
        said: set[str] = set()
        for example in some(task, 150, "train", held_out=held_out):
            said |= {form(question.text) for question in example.questions}
            said |= {
                form(sentence) for sentence in sentences(example.context) if names_someone(sentence)
            }
        return said

    seen, held_out = forms(False), forms(True)
    assert len(held_out) > 1
    assert not seen & held_out


# --- words and errors


def test_a_value_of_the_lexicon_has_its_kind_and_no_other_text_has_one() -> None:
    for kind in ("city", "job", "organisation", "creature", "thing", "event", "date", "number"):
        for seed in range(50):
            assert kind in value_kinds(draw_value(random.Random(seed), kind))
    assert all(
        value_kinds(name) == {"person"} for name in draw_people(random.Random(0), "test", 20)
    )
    assert value_kinds("cello, flute and harp") == {"thing", "instrument"}
    assert value_kinds("1964") == {"year"}
    assert not any(
        value_kinds(text)
        for text in ("Oslo", "B P", "1960s", "two", "I don't know", "Ada", "cello and Oslo", "")
    )


BASE = TASKS["base"]
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "negative index": (lambda: BASE.example(0, -1), "0 or more, not -1"),
    "no contexts": (lambda: BASE.generate(0, 0), "1 or more, not 0"),
    "mistyped task": (lambda: get_task("bsae"), "did you mean 'base'"),
    "unknown task": (lambda: get_task("zzz"), "known: arithmetic, base"),
    "tampered lexicon": (
        lambda: read_released("datasets_gen.examples", "lexicon.json", "another"),
        "lexicon.json of datasets_gen.examples was",
    ),
    "name taken twice": (
        lambda: by_name([BASE, replace(BASE, version="9.0.0")]),
        "two tasks are named 'base'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_in_one_line(case: str) -> None:
    attempt, said = REFUSED[case]
    with pytest.raises(DatasetError) as refused:
        attempt()
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
