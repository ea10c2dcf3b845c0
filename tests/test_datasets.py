"""The contract of every registered task."""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_gen import ABSTENTION, TASKS, DatasetError, Example, Question, Split, Task, get_task
from datasets_gen.lexicon import LEXICON_SHA256, full_names, lexicon, name_split, parse_lexicon
from datasets_gen.registry import by_name
from datasets_gen.relations import BONDS
from reader import NAME, read, sentences, solve

every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
every_level = pytest.mark.parametrize(
    ("task", "level"),
    [pytest.param(t, level, id=f"{t.name}-{level}") for t in TASKS.values() for level in range(t.top_level + 1)],
)
seeds = st.integers(0, 2**32)
indices = st.integers(0, 10**6)
tasks = st.sampled_from(list(TASKS.values()))
splits = st.sampled_from(["train", "test"])
ROOT = Path(__file__).parents[1]
DIGEST = """
import hashlib, datasets_gen
written = [repr(list(t.generate(7, 5, s))) for t in datasets_gen.TASKS.values() for s in ("train", "test")]
print(hashlib.sha256("".join(written).encode()).hexdigest())
"""


def some(task: Task, count: int = 40, split: Split = "test", level: int | None = None) -> list[Example]:
    return [task.example(3, index, split, level) for index in range(count)]


def asked(examples: list[Example]) -> list[tuple[Example, Question]]:
    return [(example, question) for example in examples for question in example.questions]


def texts(example: Example, question: Question, *kinds: str) -> list[str]:
    """What the context says where the question has a span of these kinds."""
    return [example.context[span.start : span.end] for span in question.spans if span.kind in kinds]


def people_in(text: str) -> set[str]:
    """Full names of the lexicon; an event or an organisation is written with two capitals as well."""
    known = {f"{given} {family}" for split in ("train", "test") for given, family in full_names(split)}
    return {name for name in re.findall(rf"(?=\b({NAME})\b)", text) if name in known}


# --- the same bytes, whatever else is asked for


@pytest.mark.parametrize("hash_seed", ["0", "1", "31337"])
def test_same_seed_same_bytes_in_another_process(hash_seed: str) -> None:
    here = [repr(list(t.generate(7, 5, split))) for t in TASKS.values() for split in ("train", "test")]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", DIGEST]
    there = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == hashlib.sha256("".join(here).encode()).hexdigest()


@given(tasks, seeds, st.integers(1, 6), st.integers(1, 6))
def test_a_longer_run_begins_with_the_shorter_one(task: Task, seed: int, shorter: int, more: int) -> None:
    longer = task.generate(seed, shorter + more)
    assert list(islice(longer, shorter)) == list(task.generate(seed, shorter))


@given(tasks, seeds, indices, splits)
def test_an_example_depends_on_seed_and_index_alone(task: Task, seed: int, index: int, split: Split) -> None:
    first = task.example(seed, index, split)
    task.example(seed + 1, index, split)
    assert task.example(seed, index, split) == first
    assert (first.id, first.index, first.split) == (f"{task.name}/{split}/{seed}/{index}", index, split)


@every_task
def test_generate_counts_from_zero_and_gives_that_many(task: Task) -> None:
    assert [example.index for example in task.generate(0, 7)] == list(range(7))


@every_task
def test_other_seeds_and_indices_give_other_contexts(task: Task) -> None:
    contexts = {task.example(seed, index).context for seed in range(10) for index in range(10)}
    assert len(contexts) == 100


@every_task
def test_ids_of_questions_are_all_different(task: Task) -> None:
    ids = [question.id for _, question in asked(some(task) + some(task, split="train"))]
    assert len(set(ids)) == len(ids)


# --- train and test have nothing in common


def test_no_full_name_is_in_both_splits() -> None:
    assert not set(full_names("train")) & set(full_names("test"))
    assert min(len(full_names("train")), len(full_names("test"))) > 1000


@given(tasks, seeds, indices, splits)
def test_every_person_named_belongs_to_the_split(task: Task, seed: int, index: int, split: Split) -> None:
    example = task.example(seed, index, split)
    named = people_in(" | ".join([example.context, *(question.text for question in example.questions)]))
    assert named
    assert {name_split(name) for name in named} == {split}


@every_task
def test_train_and_test_share_no_subject_and_value(task: Task) -> None:
    train, test = (
        {(said.subject, said.value) for example in some(task, 120, split) for said in read(example.context)}
        for split in ("train", "test")
    )
    assert len(train) > 1000
    assert not train & test


# --- the evidence


@every_level
def test_every_answer_span_reads_as_a_gold(task: Task, level: int) -> None:
    for example, question in asked(some(task, level=level)):
        if question.answerable:
            answers = texts(example, question, "answer")
            assert answers
            assert set(answers) <= set(question.golds)


@every_level
def test_spans_lie_inside_the_context(task: Task, level: int) -> None:
    for example, question in asked(some(task, level=level)):
        for span in question.spans:
            assert 0 <= span.start < span.end <= len(example.context)


@every_level
def test_facts_and_bridges_are_whole_sentences(task: Task, level: int) -> None:
    for example, question in asked(some(task, level=level)):
        whole = sentences(example.context)
        assert all(text in whole for text in texts(example, question, "fact", "bridge"))


@every_level
def test_answer_lies_in_the_fact_and_subject_in_the_evidence(task: Task, level: int) -> None:
    for _, question in asked(some(task, level=level)):
        if not question.answerable:
            continue
        kinds = ("answer", "subject", "fact")
        (answer,), (subject,), (fact,) = ([span for span in question.spans if span.kind == kind] for kind in kinds)
        assert fact.start <= answer.start < answer.end <= fact.end
        evidence = [span for span in question.spans if span.kind in ("fact", "bridge")]
        assert any(span.start <= subject.start < subject.end <= span.end for span in evidence)


@every_level
def test_the_question_names_the_mention_it_starts_from(task: Task, level: int) -> None:
    for example, question in asked(some(task, level=level)):
        assert all(subject in question.text for subject in texts(example, question, "subject"))


@every_level
def test_hops_counts_the_sentences_to_be_read(task: Task, level: int) -> None:
    for example, question in asked(some(task, level=level)):
        assert question.hops == len(set(texts(example, question, "fact", "bridge")))


@every_task
def test_unanswerable_questions_have_no_evidence_and_ask_for_an_abstention(task: Task) -> None:
    unanswerable = [question for _, question in asked(some(task)) if not question.answerable]
    assert unanswerable
    for question in unanswerable:
        assert question.spans == ()
        assert question.golds == (ABSTENTION,)
        assert question.golds[0] in task.abstentions


# --- the questions


@given(tasks, seeds, indices)
def test_no_question_is_asked_twice_of_a_context(task: Task, seed: int, index: int) -> None:
    example = task.example(seed, index)
    asks = [question.text for question in example.questions]
    assert len(asks) == task.questions_per_context
    assert len(set(asks)) == len(asks)


@every_level
def test_a_reader_finds_the_gold_and_nothing_else(task: Task, level: int) -> None:
    for example, question in asked(some(task, level=level)):
        found = solve(question.text, read(example.context))
        assert found == (set(question.golds) if question.answerable else set()), question


@given(tasks, seeds, indices, splits)
def test_a_reader_solves_any_example(task: Task, seed: int, index: int, split: Split) -> None:
    example = task.example(seed, index, split)
    known = read(example.context)
    for question in example.questions:
        assert solve(question.text, known) == (set(question.golds) if question.answerable else set()), question


@given(tasks, seeds, indices)
def test_the_evidence_alone_solves_the_question(task: Task, seed: int, index: int) -> None:
    example = task.example(seed, index)
    for question in example.questions:
        if question.answerable:
            evidence = " ".join(texts(example, question, "fact", "bridge"))
            assert solve(question.text, read(evidence)) == set(question.golds), question


@every_task
def test_without_the_evidence_the_question_cannot_be_solved(task: Task) -> None:
    for example, question in asked(some(task)):
        if question.answerable:
            evidence = texts(example, question, "fact", "bridge")
            for left_out in evidence:
                rest = " ".join(sentence for sentence in sentences(example.context) if sentence != left_out)
                assert solve(question.text, read(rest)) == set(), question


def test_no_bond_is_one_both_ways() -> None:
    """The spouse of a spouse is oneself, though no passage says so: such a chain has an answer that is not its gold."""
    mutual = {"spouse", "neighbour", "cousin", "rival", "friend", "sibling", "colleague", "partner"}
    assert mutual.isdisjoint(bond.name for bond in BONDS)


@every_task
def test_stated_values_are_all_that_the_context_states(task: Task) -> None:
    for example in some(task):
        stated = [name for said in read(example.context) for name in (said.subject, said.value)]
        assert set(example.stated_values) == set(stated)
        assert len(example.stated_values) == len(set(stated))


@every_task
def test_both_directions_and_every_kind_of_question_are_asked(task: Task) -> None:
    questions = [question for _, question in asked(some(task, 200))]
    assert {question.direction for question in questions} == {"forward", "reverse"}
    assert {question.answerable for question in questions} == {True, False}
    assert {q.answer_type for q in questions if q.answerable} >= {"person", "location", "numeral", "date", "event"}


@every_task
def test_the_top_level_is_the_task_itself(task: Task) -> None:
    assert task.example(0, 0, level=task.top_level) == task.example(0, 0)
    assert task.example(0, 0, level=task.top_level + 1) == task.example(0, 0)
    lengths = [sum(len(e.context) for e in some(task, level=level)) for level in (0, task.top_level)]
    assert lengths[0] < lengths[1]


# --- words and errors


def test_the_lexicon_is_the_released_one() -> None:
    content = files("datasets_gen").joinpath("lexicon.json").read_bytes()
    assert hashlib.sha256(content).hexdigest() == LEXICON_SHA256
    assert parse_lexicon(content) == lexicon()


def test_no_word_is_listed_twice() -> None:
    for kind, words in lexicon().model_dump().items():
        if isinstance(words, tuple) and isinstance(words[0], str):
            assert len(set(words)) == len(words), kind


@every_task
def test_the_full_version_changes_with_the_lexicon(task: Task) -> None:
    assert task.full_version == f"{task.version}+lexicon.{LEXICON_SHA256[:8]}"


def _tampered() -> Any:
    content = files("datasets_gen").joinpath("lexicon.json").read_bytes()
    return parse_lexicon(content.replace(b"Ada", b"Eve", 1))


BASE = TASKS["base"]
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "negative index": (lambda: BASE.example(0, -1), "0 or more, not -1"),
    "no contexts": (lambda: BASE.generate(0, 0), "1 or more, not 0"),
    "fewer than no contexts": (lambda: BASE.generate(0, -3), "1 or more, not -3"),
    "mistyped task": (lambda: get_task("bsae"), "did you mean 'base'"),
    "unknown task": (lambda: get_task("zzz"), "Known: base"),
    "tampered lexicon": (_tampered, "lexicon.json was changed"),
    "name taken twice": (lambda: by_name([BASE, replace(BASE, version="2.0.0")]), "two tasks are named 'base'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_in_one_line(case: str) -> None:
    attempt, said = REFUSED[case]
    with pytest.raises(DatasetError) as refused:
        attempt()
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("wrong", [{"level": -1}, {"questions": -1}, {"questions": 0}, {"split": "tset"}], ids=str)
def test_arguments_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DatasetError):
        BASE.example(0, 0, **wrong)
