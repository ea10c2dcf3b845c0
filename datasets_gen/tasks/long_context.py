"""Task ``long_context``: facts about a few people, hidden at chosen depths in prose that is about no one."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from datasets_gen.examples.example import Span
from datasets_gen.examples.lexicon import draw_people
from datasets_gen.examples.task import Draft, Request, Task
from datasets_gen.examples.wording import Wording
from datasets_gen.writing.passage import Fact, Passage, draw_facts, write_fact
from datasets_gen.writing.prose import Fill, Length, fill_words, length_in_tokens, length_in_words, place_in_prose
from datasets_gen.writing.questions import Asker, attribute_questions
from datasets_gen.writing.relations import ATTRIBUTES

# (fewest, most) people, facts about each and words of prose, and phrasings in use, by level; the last is the task.
# First the relation alone tells the answer, then the name alone, then both are needed; then the prose grows.
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

Statements = Sequence[tuple[Fact, str]]  # each fact with the template that states it, in the order of the text


def make(rng: random.Random, request: Request, fill: Fill | None = None, depth: float | None = None) -> Draft:
    """Hides facts in prose. ``fill`` gives the prose of the top level, ``depth`` the place where all facts stand.

    The prose has a generator of its own: of one seed, contexts of any length and depth tell and ask the same.
    """
    people_range, facts_range, words_range, phrasings = SIZES[request.level]
    wording = Wording(phrasings, request.held_out, request.taught)
    people = draw_people(rng, request.split, rng.randint(*people_range))
    facts = draw_facts(rng, people, ATTRIBUTES, facts_range)
    rng.shuffle(facts)
    statements = [(fact, wording.choose(rng, fact.relation.statements)) for fact in facts]
    depths = sorted(rng.random() for _ in facts)
    if depth is not None:
        depths = [depth] * len(facts)
    if fill is None or request.level < len(SIZES) - 1:
        fill = partial(fill_words, words=words_range)
    prose = fill(random.Random(rng.getrandbits(64)), lambda prose: lay_out(statements, depths, prose)[0].text)
    passage, distractors = lay_out(statements, depths, prose)
    questions = attribute_questions(Asker(rng, wording), request, passage, UNANSWERABLE_SHARE, REVERSE_SHARE)
    return Draft(passage.text, passage.stated(), questions, distractors)


def lay_out(statements: Statements, depths: Sequence[float], prose: Sequence[str]) -> tuple[Passage, tuple[Span, ...]]:
    """Sets the facts into the prose; returns the passage, and the spans of the prose between them.

    ``depths``, ascending: the share of the prose that stands before each fact; one sentence is never parted.
    """
    # Each gap between sentences is as likely as any other.
    places = [min(int(depth * (len(prose) + 1)), len(prose)) for depth in depths]
    parts: list[str] = []
    distractors, facts, start = [], [], 0
    for number, (first, last) in enumerate(pairwise([0, *places, len(prose)])):
        if first < last:
            parts.append(" ".join(prose[first:last]))
            distractors.append(Span("distractor", start, start + len(parts[-1])))
            start += len(parts[-1]) + 1
        if number < len(statements):
            fact, template = statements[number]
            sentence, stated = write_fact(template, fact.subject, fact, start)
            parts.append(sentence)
            facts.append(stated)
            start += len(sentence) + 1
    return Passage(" ".join(parts), tuple(facts)), tuple(distractors)


def long_context(words: tuple[int, int], depth: float | None = None) -> Task:
    """Returns the task with (fewest, most) words of prose, its facts scattered, or together at a relative depth."""
    return _variant(length_in_words(words), depth)


def context_of_tokens(
    tokens: int, count: Callable[[str], int], depth: float | None = None, counted_by: str = ""
) -> Task:
    """Returns the task with contexts of ``tokens`` tokens, or up to 2 % less; ``count`` gives the tokens of a text, as
    a tokenizer of that name counts them.

    A context whose evidence needs more than that raises :class:`DatasetError` when it is made.
    """
    return _variant(length_in_tokens(tokens, count, counted_by), depth)


def _variant(length: Length, depth: float | None) -> Task:
    where = place_in_prose(depth)
    description = f"Facts about three or four people, {where} in prose about no one, {length.text}"
    variant = f"{length.text} {where}".replace(" ", "-")
    filled = partial(make, fill=length.fill, depth=depth)
    return replace(LONG_CONTEXT, description=description, make=filled, variant=variant)


LONG_CONTEXT = Task(
    name="long_context",
    version="2.1.0",
    description="Facts about three or four people, scattered over 400 to 1,300 words of prose about no one",
    make=make,
    top_level=len(SIZES) - 1,
    chance=12.9,
    contexts={"quick": 12, "paper": 100},
    paper="arXiv 2603.01426",
    questions_per_context=10,
    with_length=context_of_tokens,  # it has prose of its own already
)
