"""Task ``base``: a short passage that binds attributes tightly to a few people."""

import random

from datasets_gen.examples.lexicon import draw_people
from datasets_gen.examples.task import Draft, Request, Task
from datasets_gen.examples.wording import Wording
from datasets_gen.writing.passage import ATTRIBUTES, draw_facts, write_passage
from datasets_gen.writing.questions import Asker, attribute_questions

# (fewest, most) people and facts about each, and phrasings in use, by level; the last is the task.
# First the relation alone tells the answer, then the name alone, then both are needed.
SIZES = (
    ((1, 1), (2, 4), 1),
    ((2, 4), (1, 1), 1),
    ((2, 2), (2, 3), 1),
    ((2, 3), (2, 3), 3),
    ((2, 4), (3, 4), 3),
    ((3, 4), (3, 5), 3),
)
UNANSWERABLE_SHARE = 0.15
REVERSE_SHARE = 0.4


def make(rng: random.Random, request: Request) -> Draft:
    people_range, facts_range, phrasings = SIZES[request.level]
    wording = Wording(phrasings, request.held_out)
    people = draw_people(rng, request.split, rng.randint(*people_range))
    passage = write_passage(rng, draw_facts(rng, people, ATTRIBUTES, facts_range), wording)
    # Behind the passage: how many questions are asked does not change what the text says.
    questions = attribute_questions(
        Asker(rng, wording), request, passage, UNANSWERABLE_SHARE, REVERSE_SHARE
    )
    return Draft(passage.text, passage.stated(), questions)


BASE = Task(
    name="base",
    version="3.1.0",
    description="Short passage, tightly bound attributes of three or four people",
    make=make,
    chances=(21.5, 21.6, 18.4, 15.5, 16.0, 16.2),
    contexts={"quick": 12, "paper": 200},
    paper="arXiv 2603.01426",
)
