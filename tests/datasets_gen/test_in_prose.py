"""Contexts set in prose: the same is told and asked, at other places, between sentences that say nothing of anyone."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_gen import TASKS, DatasetError, Example, Span, Task
from datasets_gen.examples.lexicon import lexicon
from datasets_gen.examples.task import Draft
from datasets_gen.writing.in_prose import in_tokens, in_words_of_prose, pieces_of

every_task = st.sampled_from([task for task in TASKS.values() if task.name != "long_context"])
PRONOUN = re.compile(r"\b(He|She|His|Her|he|she|his|her|him)\b")


def words_of(example: Example, spans: tuple[Span, ...]) -> list[tuple[str, str]]:
    return [(span.kind, example.context[span.start : span.end]) for span in spans]


def sentences_of(text: str) -> list[str]:
    return re.split(r"(?<=[.!?]) ", text)


def both(task: Task, index: int, words: int, depth: float | None = None) -> tuple[Example, Example]:
    """A context as it is, and set in prose."""
    return task.example(3, index), in_words_of_prose(task, (words, words), depth).example(3, index)


@settings(max_examples=150, deadline=None)
@given(
    every_task,
    st.integers(0, 400),
    st.integers(0, 600),
    st.none() | st.floats(0, 1),
    st.sampled_from(("test", "train")),
)
def test_the_same_is_asked_and_every_span_has_the_same_words(
    task: Task, index: int, words: int, depth: float | None, split: str
) -> None:
    prosaic = in_words_of_prose(task, (words, words), depth)
    plain, set_in = (one.example(3, index, split) for one in (task, prosaic))  # type: ignore[arg-type]
    assert set_in.id == plain.id
    assert set_in.stated_values == plain.stated_values
    for before, after in zip(plain.questions, set_in.questions, strict=True):
        assert (after.id, after.text, after.golds, after.perfect_output) == (
            before.id,
            before.text,
            before.golds,
            before.perfect_output,
        )
        assert words_of(set_in, after.spans) == words_of(plain, before.spans)
    kept = tuple(span for span in set_in.spans if span.kind != "distractor")
    assert words_of(set_in, kept) == words_of(plain, plain.spans)


@settings(max_examples=100, deadline=None)
@given(every_task, st.integers(0, 400), st.integers(30, 600))
def test_what_is_told_stays_in_its_order_and_all_else_is_prose(task: Task, index: int, words: int) -> None:
    plain, set_in = both(task, index, words)
    prose = [set_in.context[s.start : s.end] for s in set_in.spans if s.kind == "distractor"]
    rest = set_in.context
    for part in prose:
        rest = rest.replace(part, "", 1)
    assert rest.split() == plain.context.split()
    assert sum(len(part.split()) for part in prose) >= words


@settings(max_examples=100, deadline=None)
@given(every_task, st.integers(0, 400), st.integers(100, 600))
def test_prose_adds_no_answer(task: Task, index: int, words: int) -> None:
    """No word that the prose adds is a name or a value, so no question gets a second answer, or a first."""
    _, set_in = both(task, index, words)
    added = {
        word.strip(".,")
        for span in set_in.spans
        if span.kind == "distractor"
        for word in set_in.context[span.start : span.end].split()
    }
    lists = lexicon()
    assert not added & {*lists.given, *lists.family, *lists.city, *lists.job, *lists.creature, *lists.thing}
    assert not added & {*lists.instrument, *lists.month, *lists.item}
    assert not any(character.isdigit() for word in added for character in word)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["coreference", "arithmetic"]), st.integers(0, 400), st.integers(300, 600))
def test_a_sentence_stays_behind_the_one_it_is_understood_from(name: str, index: int, words: int) -> None:
    plain, set_in = both(TASKS[name], index, words)
    neighbours = set(pairwise(sentences_of(plain.context)))
    for before, sentence in pairwise(sentences_of(set_in.context)):
        if PRONOUN.search(sentence) or sentence.startswith(("Then ", "Soon ", "After that ")):
            assert (before, sentence) in neighbours


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 400), st.integers(50, 600), st.none() | st.floats(0, 1))
def test_a_system_prompt_stays_whole_and_first(index: int, words: int, depth: float | None) -> None:
    plain, set_in = both(TASKS["instructions"], index, words, depth)
    end = max(span.end for span in plain.spans)
    assert set_in.context[:end] == plain.context[:end]


def test_facts_are_scattered_over_the_whole_length_or_stand_together() -> None:
    scattered, together = ([], [])  # type: tuple[list[float], list[float]]
    for index in range(60):
        for depth, places in ((None, scattered), (0.5, together)):
            _, set_in = both(TASKS["base"], index, 400, depth)
            starts = {span.start for question in set_in.questions for span in question.spans if span.kind == "fact"}
            places += [start / len(set_in.context) for start in starts]
    assert min(scattered) < 0.05
    assert max(scattered) > 0.9
    assert min(together) > 0.3
    assert max(together) < 0.7


@pytest.mark.parametrize("task", [task for task in TASKS.values() if task.name != "long_context"], ids=lambda t: t.name)
def test_a_length_is_met_to_a_fiftieth(task: Task) -> None:
    def count(text: str) -> int:
        return len(re.findall(r"\w+|[^\w\s]", text))

    for index in range(3):
        assert 0.98 * 768 <= count(in_tokens(task, 768, count).example(0, index).context) <= 768


def test_a_length_that_cannot_be_is_one_clear_line() -> None:
    with pytest.raises(DatasetError, match="too few for this context"):
        in_tokens(TASKS["base"], 10, len).example(0, 0)
    with pytest.raises(DatasetError, match="131072 at most"):
        in_tokens(TASKS["base"], 200_000, len)
    with pytest.raises(DatasetError, match="from 0, the beginning, to 1, the end, not 2"):
        in_words_of_prose(TASKS["base"], (1, 2), 2)
    with pytest.raises(DatasetError, match="not from 5 to 3"):
        in_words_of_prose(TASKS["base"], (5, 3))


def test_a_span_over_two_sentences_holds_them_together() -> None:
    text = "Ada has a dog. It barks. Bo has a cat."
    (piece, other) = pieces_of(Draft(text, (), (), (Span("directive", 0, 24),)))
    assert text[piece.start : piece.end] == "Ada has a dog. It barks."
    assert text[other.start : other.end] == "Bo has a cat."
