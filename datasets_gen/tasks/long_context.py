"""Task ``long_context``: facts about a few people, hidden at chosen depths in prose that is about
no one."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from datasets_gen.examples.example import Span
from datasets_gen.examples.lexicon import draw_people
from datasets_gen.examples.task import Draft, Length, Request, Task
from datasets_gen.examples.wording import Wording
from datasets_gen.writing.passage import ATTRIBUTES, Fact, Passage, draw_facts, write_fact
from datasets_gen.writing.prose import lay_out, prose_of_tokens, prose_of_words
from datasets_gen.writing.questions import Asker, attribute_questions

# (fewest, most) people, facts about each and words of prose, and phrasings in use, by level; the
# last is the task. First the relation alone tells the answer, then the name alone, then both are
# needed; then the prose grows.
SIZES = (
    ((1, 1), (2, 4), (0, 0), 1),
    ((2, 4), (1, 1), (0, 0), 1),
    ((2, 2), (2, 3), (0, 0), 1),
    ((2, 2), (2, 3), (40, 80), 1),
    ((2, 4), (2, 3), (150, 250), 3),
    ((3, 4), (2, 3), (400, 1300), 3),
)
UNANSWERABLE_SHARE = 0.12
REVERSE_SHARE = 0.4


def make(rng: random.Random, request: Request, length: Length | None = None) -> Draft:
    """Hides facts in prose, drawn apart: of one seed, contexts of any length and depth tell and ask
    the same. Raises :class:`DatasetError` for a length that no prose fills."""
    people_range, facts_range, words_range, phrasings = SIZES[request.level]
    wording = Wording(phrasings, request.held_out)
    people = draw_people(rng, request.split, rng.randint(*people_range))
    facts = draw_facts(rng, people, ATTRIBUTES, facts_range)
    rng.shuffle(facts)
    # Phrasings are chosen before the prose, whose length is found by writing the text several
    # times.
    statements = [(fact, wording.choose(rng, fact.relation.statements)) for fact in facts]
    # Drawn even where a depth is given, so that all draws behind stay the same.
    depths = sorted(rng.random() for _ in facts)
    for_prose = random.Random(rng.getrandbits(64))
    if length is None:
        prose = prose_of_words(for_prose, for_prose.randint(*words_range))
    else:
        if length.depth is not None:
            depths = [length.depth] * len(facts)

        def write(sentences: list[str]) -> str:
            passage, _ = hide(statements, depths, sentences)
            return passage.text

        prose = prose_of_tokens(for_prose, length, write)
    passage, distractors = hide(statements, depths, prose)
    ask = Asker(rng, wording)
    questions = attribute_questions(ask, request, passage, UNANSWERABLE_SHARE, REVERSE_SHARE)
    return Draft(passage.text, passage.stated(), questions, distractors)


def hide(
    statements: Sequence[tuple[Fact, str]], depths: Sequence[float], prose: Sequence[str]
) -> tuple[Passage, tuple[Span, ...]]:
    """Sets facts, each with its template, into prose at ascending depths; returns the spans of the
    prose too."""
    sentences = []
    for fact, template in statements:
        sentence = template.format(subject=fact.subject, value=fact.value)
        sentences.append(sentence)
    text, starts, distractors = lay_out(sentences, depths, prose)
    facts = []
    for (fact, template), start in zip(statements, starts, strict=True):
        _, stated = write_fact(template, fact.subject, fact, start)
        facts.append(stated)
    return Passage(text, tuple(facts)), distractors


def _with_length(length: Length) -> Task:
    description = (
        f"Facts about three or four people, {length.where} in prose about no one, {length.text}"
    )
    variant = length.variant_name(LONG_CONTEXT)
    return replace(
        LONG_CONTEXT, description=description, make=partial(make, length=length), variant=variant
    )


LONG_CONTEXT = Task(
    name="long_context",
    version="2.1.0",
    description="Facts about three or four people, scattered over 400 to 1,300 words of prose about no one",
    make=make,
    chances=(20.4, 19.5, 19.5, 19.5, 12.9, 12.9),
    contexts={"quick": 12, "paper": 100},
    paper="arXiv 2603.01426",
    questions_per_context=10,
    with_length=_with_length,  # it has prose of its own already
)
