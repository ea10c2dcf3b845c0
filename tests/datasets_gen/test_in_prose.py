"""Contexts set in prose: the same is told and asked, at other places, between sentences that say
nothing of anyone."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_gen import TASKS, DatasetError, Example, Length, Span, Split, Task
from datasets_gen.examples.lexicon import lexicon
from datasets_gen.writing.prose import in_prose
from tests.support.tasks.suite import SPLITS, count_words_and_signs

every_task = st.sampled_from([task for task in TASKS.values() if task.name != "long_context"])
tokens = st.integers(450, 900)


def span_words(example: Example, spans: tuple[Span, ...]) -> list[tuple[str, str]]:
    return [(span.kind, example.context[span.start : span.end]) for span in spans]


def both(
    task: Task, index: int, tokens: int, depth: float | None = None, split: Split = "test"
) -> tuple[Example, Example]:
    """A context as it is, and set in prose."""
    return tuple(
        one.example(3, index, split)
        for one in (task, in_prose(task, Length(tokens, count_words_and_signs, depth)))
    )  # type: ignore[return-value]


@settings(max_examples=60)
@given(
    every_task, st.integers(0, 400), tokens, st.none() | st.floats(0, 1), st.sampled_from(SPLITS)
)
def test_the_same_is_asked_and_every_span_has_the_same_words(
    task: Task, index: int, tokens: int, depth: float | None, split: Split
) -> None:
    plain, set_in = both(task, index, tokens, depth, split)
    assert 0.98 * tokens <= count_words_and_signs(set_in.context) <= tokens
    assert (set_in.id, set_in.stated_values) == (plain.id, plain.stated_values)
    for before, after in zip(plain.questions, set_in.questions, strict=True):
        assert (after.id, after.text, after.golds) == (before.id, before.text, before.golds)
        assert after.perfect_output == before.perfect_output
        assert span_words(set_in, after.spans) == span_words(plain, before.spans)
    kept = tuple(span for span in set_in.spans if span.kind != "distractor")
    assert span_words(set_in, kept) == span_words(plain, plain.spans)
    if task.name == "instructions":
        end = max((span.end for span in plain.spans), default=0)
        assert set_in.context[:end] == plain.context[:end], "a system prompt stays whole and first"


@settings(max_examples=40)
@given(every_task, st.integers(0, 400), tokens)
def test_what_is_told_stays_in_its_order_and_the_prose_adds_no_answer(
    task: Task, index: int, tokens: int
) -> None:
    plain, set_in = both(task, index, tokens)
    prose = [
        set_in.context[span.start : span.end] for span in set_in.spans if span.kind == "distractor"
    ]
    rest = set_in.context
    for part in prose:
        rest = rest.replace(part, "", 1)
    assert rest.split() == plain.context.split()
    added, words = {word.strip(".,") for part in prose for word in part.split()}, lexicon()
    for kind in (
        "given",
        "family",
        "city",
        "job",
        "creature",
        "thing",
        "instrument",
        "month",
        "item",
    ):
        assert added.isdisjoint(getattr(words, kind))


@pytest.mark.parametrize(
    ("tokens", "depth", "said"),
    [
        (10, None, "10 tokens are too few for this context"),
        (-5, None, "1 or more tokens and 131072 at most, not -5"),
        (200_000, None, "131072 at most, not 200000"),
        (768, 2, "from 0, the beginning, to 1, the end, not 2"),
        (768, float("nan"), "not nan"),
    ],
)
@pytest.mark.parametrize("name", ["base", "long_context"])
def test_a_length_that_cannot_be_is_one_clear_line(
    name: str, tokens: int, depth: float | None, said: str
) -> None:
    make = TASKS[name].with_length or partial(in_prose, TASKS[name])
    with pytest.raises(DatasetError, match=said):
        make(Length(tokens, len, depth)).example(0, 0)


# --- the sentences
